"""The suite `blocks`: a kernel that takes queries and keys in blocks is right on every case, and each of its known faults is not."""

import numpy as np
import pytest
from conftest import ROOT
from shipped import shipped

from worked_attention.referee.judge import judge_case
from worked_attention.stages.parameters import stage as parameters_of

CASES = shipped("blocks")["cases"]
PARAMETERS = {name: parameters_of(case, ROOT) for name, case in CASES.items()}

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
]


def padded(x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """x with zeros behind it along `axis`, up to whole blocks: what a kernel reads beyond the end."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % block)
    return np.pad(x, widths)


def seen(case: dict, i: np.ndarray, j: np.ndarray, block: int, fault: str) -> np.ndarray:
    """Whether queries i [n, 1] see keys j [1, m], with a leading axis for the batch where lengths are given."""
    mask, lq, lk = case["mask"], case["dims"]["Lq"], case["dims"]["Lk"]
    bottom = mask.get("causal") == "bottom_right" and fault != "diagonal from the top left whatever the lengths"
    past = j - i - (lk - lq if bottom else 0)
    if fault == "diagonal counted within the block":
        past = j % block - i % block
    keep = np.broadcast_to(j < lk, past.shape) | (fault == "padding behind the last key counted")
    if "causal" in mask:
        keep = keep & (past <= 0)
    if "window" in mask:
        left, right = mask["window"]["left"], mask["window"]["right"]
        keep = keep & (past >= -left) & (past <= (lq + lk if right is None else right))
    if "documents" in mask:
        document = np.array(mask["documents"]["queries"])
        if fault == "document of the first token of the block for all of it":
            i, j = i // block * block, j // block * block
        keep = keep & (document[np.minimum(i, lq - 1)] == document[np.minimum(j, lk - 1)])
    if "key_lengths" in mask:
        lengths = np.array(mask["key_lengths"])
        if fault == "length rounded up to whole blocks":
            lengths = np.minimum(-(-lengths // block) * block, lk)
        if fault == "length of the first sequence for all":
            lengths = np.full_like(lengths, lengths[0])
        keep = keep & (j < lengths[:, None, None, None])
    return keep


def blocks_of_keys(case: dict, first: int, last: int, block: int, fault: str) -> range:
    """The blocks of keys that queries `first` to `last` need."""
    mask, lq, lk = case["mask"], case["dims"]["Lq"], case["dims"]["Lk"]
    begin, end = 0, lk // block if fault == "last keys not read" else -(-lk // block)
    shift = lk - lq if mask.get("causal") == "bottom_right" else 0
    if "window" in mask:
        lowest = first if fault != "window begins where the last query of the block has it" else last
        lowest = max(0, lowest + shift - mask["window"]["left"])
        begin = -(-lowest // block) if fault == "first block of the window lost" else lowest // block
    if "causal" in mask:
        highest = (first if fault == "causal loop ends where the first query of the block does" else last) + shift
        end = min(end, highest // block + (0 if fault == "causal loop ends one block too early" else 1))
    return range(begin, end)


def kernel(case: dict, arrays: dict[str, np.ndarray], block: int, dtype: str, fault: str = "") -> np.ndarray:
    """The output [..., Lq, H*d_v]: the softmax with a running maximum over blocks of keys (Milakov and Gimelshein 2018), in `dtype`.

    case and arrays: of the suite. fault: one of FAULTS, or nothing for the right kernel.
    """
    heads, kv_heads, lq = case["heads"], case["kv_heads"], case["dims"]["Lq"]
    serves = [h % kv_heads if fault == "key heads taken in turn" else h * kv_heads // heads for h in range(heads)]
    q, k, v = (padded(arrays[f"{name}_heads"].astype(dtype), -2, block) for name in "qkv")
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
            shrink = np.exp(np.minimum(np.where(largest == -np.inf, -np.inf, largest - safe), 0))
            of_total = 1 if fault in ("not rescaled", "denominator not rescaled") else shrink
            of_values = 1 if fault in ("not rescaled", "values not rescaled") else shrink**2 if fault == "rescaled twice" else shrink
            before = total
            total = total * of_total + p.sum(axis=-1, keepdims=True)
            if "sinks" in arrays and fault == "sink joins in every block":
                total = total + np.exp(arrays["sinks"].astype(dtype)[:, None, None] - safe)
            summed, largest = summed * of_values + p @ v[..., keys, :], new
        if fault == "divided by the denominator before the last block":
            total = before
        with np.errstate(invalid="ignore"):  # queries behind the last one may see nothing
            contexts[..., queries, :] = summed / total
    contexts = np.swapaxes(contexts[..., :lq, :], -2, -3)
    return contexts.reshape(*contexts.shape[:-2], -1)


ways = pytest.mark.parametrize(("block", "dtype"), [(block, dtype) for block in (16, 64) for dtype in ("float64", "float32")])


@ways
@pytest.mark.parametrize("name", CASES)
def test_the_right_kernel_is_right(name: str, block: int, dtype: str):
    sent = {"output": kernel(CASES[name], PARAMETERS[name], block, dtype)}
    assert sent["output"].dtype == dtype
    result = judge_case(CASES[name], PARAMETERS[name], sent)
    assert (result["verdict"], result["contract"]) == ("right", dtype), result["worst"]


@ways
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_wrong_somewhere(fault: str, block: int, dtype: str):
    noticed = []
    for name, case in CASES.items():
        sent = kernel(case, PARAMETERS[name], block, dtype, fault)
        if np.array_equal(sent, kernel(case, PARAMETERS[name], block, dtype)):
            continue  # the fault does nothing here
        if judge_case(case, PARAMETERS[name], {"output": sent})["verdict"] == "wrong":
            noticed.append(name)
    print(f"{fault}, {dtype}, blocks of {block}: {', '.join(noticed)}")
    assert noticed
