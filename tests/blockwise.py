"""A kernel that takes queries and keys in blocks, with the softmax over a running maximum, and faults that can be put into it."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from worked_attention.referee.caller import answered, npy
from worked_attention.referee.handed import handed
from worked_attention.referee.submissions import Arrays, Sent, received

FAULTS = [
    "last queries not written",
    "last keys not read",
    "padding behind the last key counted",
    "mask in the first block of keys only",
    "mask in the last block of keys only",
    "largest score not carried",
    "not rescaled",
    "values not rescaled",
    "denominator not rescaled",
    "rescaled twice",
    "divided by the denominator before the last block",
    "causal loop ends one block too early",
    "causal loop ends where the first query of the block does",
    "diagonal from the top left whatever the lengths",
    "diagonal counted within the block",
    "first block of the window lost",
    "window begins where the last query of the block has it",
    "key heads taken in turn",
    "bias of the first block of keys",
    "bias of the first block of queries",
    "sink joins in every block",
    "no sink",
    "document of the first token of the block for all of it",
    "length rounded up to whole blocks",
    "length of the first sequence for all",
    "a block without keys makes NaN",
    "parts merged in base 2",
    "first key read for padding",
]


def padded(x: np.ndarray, axis: int, block: int, first: bool = False) -> np.ndarray:
    """x with zeros behind it along `axis`, up to whole blocks: what a kernel reads beyond the end; or with the `first` row there."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % block)
    found = np.pad(x, widths)
    if first:
        found[..., x.shape[-2] :, :] = x[..., :1, :]
    return found


def seen(case: dict, i: np.ndarray, j: np.ndarray, block: int, fault: str) -> np.ndarray:
    """Whether queries i [n, 1] see keys j [1, m], with a leading axis for the batch where lengths are given."""
    mask, lq, lk = case["mask"], case["dims"]["Lq"], case["dims"]["Lk"]
    bottom = mask.get("causal") == "bottom_right" and fault != "diagonal from the top left whatever the lengths"
    past = j - i - (lk - lq if bottom else 0)
    if fault == "diagonal counted within the block":
        past = j % block - i % block
    keep = np.broadcast_to(j < lk, past.shape) | (fault in ("padding behind the last key counted", "first key read for padding"))
    if "causal" in mask:
        keep = keep & (past <= 0)
    if "window" in mask:
        left, right = (lq + lk if mask["window"][side] is None else mask["window"][side] for side in ("left", "right"))
        keep = keep & (past >= -left) & (past <= right)
    if "documents" in mask:
        of_query, of_key = (np.array(mask["documents"][side]) for side in ("queries", "keys"))
        if fault == "document of the first token of the block for all of it":
            i, j = i // block * block, j // block * block
        keep = keep & (of_query[np.minimum(i, lq - 1)] == of_key[np.minimum(j, lk - 1)])
    if "key_lengths" in mask:
        lengths = np.array(mask["key_lengths"])
        if fault == "length rounded up to whole blocks":
            lengths = np.minimum(-(-lengths // block) * block, lk)
        if fault == "length of the first sequence for all":
            lengths = np.full_like(lengths, lengths[0])
        keep = keep & (j < (lengths[:, None, None, None] if "B" in case["dims"] else lengths[:, None]))
    return keep


def blocks_of_keys(case: dict, first: int, last: int, block: int, fault: str) -> range:
    """The blocks of keys that queries `first` to `last` need."""
    mask, lq, lk = case["mask"], case["dims"]["Lq"], case["dims"]["Lk"]
    begin, end = 0, lk // block if fault == "last keys not read" else -(-lk // block)
    shift = lk - lq if mask.get("causal") == "bottom_right" else 0
    if "window" in mask and mask["window"]["left"] is not None:
        lowest = first if fault != "window begins where the last query of the block has it" else last
        lowest = max(0, lowest + shift - mask["window"]["left"])
        begin = -(-lowest // block) if fault == "first block of the window lost" else lowest // block
    if "causal" in mask:
        highest = (first if fault == "causal loop ends where the first query of the block does" else last) + shift
        end = min(end, highest // block + (0 if fault == "causal loop ends one block too early" else 1))
    return range(begin, end)


def kernel(case: dict, arrays: Arrays, block: int, dtype: str, fault: str = "") -> np.ndarray:
    """The contexts [..., H, Lq, d_v]: the softmax with a running maximum over blocks of keys (Milakov and Gimelshein 2018), in `dtype`.

    case: resolved. arrays: `query`, `key` and `value` per head, and what there is of `bias_table` and `sinks`. fault: one of FAULTS, or
    nothing for the right kernel.
    """
    heads, kv_heads, lq = case["heads"], case["kv_heads"], case["dims"]["Lq"]
    serves = [h % kv_heads if fault == "key heads taken in turn" else h * kv_heads // heads for h in range(heads)]
    again = fault == "first key read for padding"
    q, k, v = (padded(arrays[name].astype(dtype), -2, block, again) for name in ("query", "key", "value"))
    k, v = k[..., serves, :, :], v[..., serves, :, :]
    bias = padded(padded(arrays["bias_table"].astype(dtype), -1, block), -2, block) if "bias_table" in arrays else None
    contexts = np.zeros((*q.shape[:-1], v.shape[-1]), dtype)
    for row in range(lq // block if fault == "last queries not written" else -(-lq // block)):
        queries = slice(row * block, (row + 1) * block)
        i = np.arange(queries.start, queries.stop)[:, None]
        largest = np.full((*q.shape[:-2], block, 1), -np.inf, dtype)
        total, summed = np.zeros_like(largest), np.zeros((*largest.shape[:-1], v.shape[-1]), dtype)
        if "sinks" in arrays and fault != "no sink":
            largest = np.broadcast_to(arrays["sinks"].astype(dtype)[:, None, None], largest.shape)
            total = np.ones_like(largest)
        needed = blocks_of_keys(case, queries.start, min(queries.stop, lq) - 1, block, fault)
        before = total
        for column in needed:
            keys = slice(column * block, (column + 1) * block)
            scores = q[..., queries, :] @ np.swapaxes(k[..., keys, :], -1, -2) * np.dtype(dtype).type(case["scale_factor"])
            if bias is not None:
                ours = slice(0, block) if fault == "bias of the first block of queries" else queries
                scores = scores + bias[..., ours, slice(0, block) if fault == "bias of the first block of keys" else keys]
            j = np.arange(keys.start, keys.stop)[None]
            whole = {"mask in the first block of keys only": column > 0, "mask in the last block of keys only": column < needed[-1]}
            if not whole.get(fault, False):
                scores = np.where(seen(case, i, j, block, fault), scores, -np.inf)
            reached = scores.max(axis=-1, keepdims=True)
            new = reached if fault == "largest score not carried" else np.maximum(largest, reached)
            safe = new if fault == "a block without keys makes NaN" else np.where(new == -np.inf, 0, new)
            p = np.exp(scores - safe)
            grown = np.minimum(np.where(largest == -np.inf, -np.inf, largest - safe), 0)
            shrink = np.exp2(grown) if fault == "parts merged in base 2" else np.exp(grown)
            of_total = 1 if fault in ("not rescaled", "denominator not rescaled") else shrink
            of_values = 1 if fault in ("not rescaled", "values not rescaled") else shrink**2 if fault == "rescaled twice" else shrink
            before = total
            total = total * of_total + p.sum(axis=-1, keepdims=True)
            if "sinks" in arrays and fault == "sink joins in every block":
                total = total + np.exp(arrays["sinks"].astype(dtype)[:, None, None] - safe)
            summed, largest = summed * of_values + p @ v[..., keys, :], new
        if fault == "divided by the denominator before the last block":
            total = before
        contexts[..., queries, :] = summed / np.where(total == 0, 1, total)  # a query may see nothing
    return contexts[..., :lq, :]


TAKEN = {"q_heads", "k_heads", "v_heads", "q", "k", "v", "past_k", "past_v", "bias_table", "sinks"}
SAYS = {"dtype", "heads", "kv_heads", "scale", "mask.causal", "mask.window", "mask.documents", "mask.key_lengths"}


def attention(case: dict, arrays: Arrays, block: int, fault: str = "") -> np.ndarray:
    """The contexts of a case of the judge in its own dtype, with sums in float32 or float64; a case beyond the kernel is refused."""
    options = {name if name.startswith("mask.") else name.partition(".")[0] for name in case["uses"]}
    beyond = sorted((options - SAYS) | (set(case["arrays"]["parameters"]) - TAKEN))
    if beyond:
        raise NotImplementedError(f"has no {', '.join(beyond)}")
    dtype = "float64" if case["dtype"] == "float64" else "float32"
    return kernel(case, arrays, block, dtype, fault).astype(case["dtype"])


def asked(block: int, fault: str = "") -> Callable[[dict, Arrays], Sent]:
    """The kernel as the search for failures asks it, here in the process of the tests."""
    module = SimpleNamespace(attention=lambda case, arrays: attention(case, arrays, block, fault))

    def ask(case: dict, given: Arrays) -> Sent:
        header, sent = answered(module, case, handed(case, given))
        return received(header["word"], header["text"], {name: npy(array) for name, array in sent.items()})

    return ask
