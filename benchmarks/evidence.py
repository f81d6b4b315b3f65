"""What the judge's verdicts on half precision are worth: spoiled answers, known mistakes and honest evaluations, all of them counted.

    python benchmarks/evidence.py           # an hour or two, most of it at 512 tokens; prints Markdown tables, the same at each run
    python benchmarks/evidence.py 12        # every twelfth case, and no 512 tokens: some minutes

Every shipped case, and cases of normal numbers at 8, 64 and 512 tokens, in bfloat16 and float16; the output alone is sent, or all arrays.
Truth starts from inputs that are already rounded. Spoiled: the answers in `SPOILS`, but where one differs nowhere by more than one unit in
the last place of the largest element, so that it is the right answer itself. Mistakes: those of the library that move an array by more
than 5 % of its largest element. Honest: our stages with what each contract stores in half; attention written in other ways (below), and
the kernels of torch, JAX and ONNX Runtime, where they are installed and agree on what a query without keys becomes.
"""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.resolve import resolve  # noqa: E402
from worked_attention.cases.suites import load_config, load_suites  # noqa: E402
from worked_attention.referee.arithmetics import recast  # noqa: E402
from worked_attention.referee.bounds.contracts import CONTRACTS  # noqa: E402
from worked_attention.referee.chain import STAGE  # noqa: E402
from worked_attention.referee.evidence import GRAIN, difference, largest_of  # noqa: E402
from worked_attention.referee.judge import judge_case  # noqa: E402
from worked_attention.referee.mistakes.library import LIBRARY  # noqa: E402
from worked_attention.referee.power import by_mistake  # noqa: E402
from worked_attention.references.registry import LIBRARIES, adapter, present  # noqa: E402
from worked_attention.stages import contexts, outputs, parameters  # noqa: E402
from worked_attention.stages.catalogue import STAGES  # noqa: E402
from worked_attention.stages.masks import fill_value  # noqa: E402
from worked_attention.stages.precision import bfloat16  # noqa: E402
from worked_attention.stages.projections import latest  # noqa: E402
from worked_attention.stages.scores import repeat_heads  # noqa: E402
from worked_attention.stages.whole import from_parameters  # noqa: E402

Arrays = dict[str, np.ndarray]
FOLDER = ROOT / "config" / "suites"
HALF = (bfloat16, np.dtype("float16"))
LENGTHS = (8, 64, 512)
MOVED = 0.05  # of an array's largest element; smaller mistakes are not counted
BLOCK = 16  # keys
SPOILS = {
    "zeros": lambda x: 0 * x,
    "half as much again": lambda x: 1.5 * x,
    "sign flipped": lambda x: -x,
    "rows rolled": lambda x: np.roll(x, 1, axis=max(x.ndim - 2, 0)),
    "the mean everywhere": lambda x: np.full(x.shape, x[np.isfinite(x)].mean() if np.isfinite(x).any() else 0.0),
    "7 everywhere": lambda x: np.full(x.shape, 7.0),
}
OPTIONS = {
    "plain": {},
    "causal": {"mask": {"causal": "top_left"}},
    "rotary": {"rotary": {"pairing": "half"}, "mask": {"causal": "top_left"}},
    "grouped": {"kv_heads": 1},
    "softcap and ALiBi": {"softcap": 5, "alibi": {"slopes": "geometric", "form": "distance"}, "mask": {"causal": "bottom_right"}},
    "norm and window": {"qk_norm": {"kind": "rms"}, "mask": {"window": {"left": 3}, "causal": "top_left"}},
}


# Cases


def shipped() -> list[dict]:
    """Every case of config/suites whose parameters NumPy can make."""
    suites = load_suites(load_config(ROOT / "config" / "config.yaml", {}), FOLDER)
    return [case for suite in suites.values() for case in suite["cases"].values() if not case["torch_draws"]]


def of_length(tokens: int, options: str) -> dict:
    """A case of two heads from x with normal numbers; d_model is 32."""
    names = ("x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")
    drawn = {name: {"normal": {"seed": tokens + i, "std": 1.0 if name == "x" else 0.3}} for i, name in enumerate(names)}
    raw = {"heads": 2, "sizes": {"Lq": tokens, "d_model": 32}, "parameters": drawn, **OPTIONS[options]}
    return resolve(raw, "made", options.replace(" ", "_"), Path(), {"max_array_mb": 1000}, lambda where, what: sys.exit(f"{where}: {what}"))


def exactly(case: dict, given: Arrays, dtype: np.dtype) -> tuple[dict, Arrays, Arrays]:
    """(the case in float64, its parameters rounded to `dtype`, every array from these)."""
    with np.errstate(over="ignore"):
        fill = float(np.asarray(fill_value(case["mask"]["fill"], dtype)).astype(dtype))
        rounded = {name: array if array.dtype == bool else array.astype(dtype).astype(np.float64) for name, array in given.items()}
    mask = case["mask"] | {"fill": fill, "empty_row": {"error": "nan"}.get(case["mask"]["empty_row"], case["mask"]["empty_row"])}
    wide = case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64", "scores": "float64"}, "mask": mask}
    with np.errstate(all="ignore"):
        return wide, rounded, from_parameters(wide, rounded)


def sent_as(dtype: np.dtype, arrays: Arrays) -> Arrays:
    with np.errstate(over="ignore"):
        return {name: array if array.dtype == bool else array.astype(dtype) for name, array in arrays.items()}


# Honest evaluations


def in_stages(case: dict, given: Arrays, dtype: np.dtype, kept: set[str]) -> Arrays:
    """Every stage in float32, and the arrays `kept` rounded to `dtype` before the next one takes them up."""
    case = case | {"dtype": "float32", "precision": {"accumulate": "float32", "softmax": "float32", "scores": "float32"}}
    a = {name: array if array.dtype == bool else array.astype(np.float32) for name, array in given.items()}
    with np.errstate(all="ignore"):
        for stage in STAGES[1:]:
            for name, array in STAGE[stage](case, a).items():
                a[name] = array.astype(dtype).astype(np.float32) if name in kept and array.dtype != bool else array
    return {name: a[name] for stage in STAGES[1:] for name in case["arrays"][stage]}


def sequential(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b^T in float32, one term after the other."""
    total = np.zeros((*a.shape[:-1], b.shape[-2]), np.float32)
    for t in range(a.shape[-1]):
        total += a[..., :, None, t] * b[..., None, :, t]
    return total


def pairwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b^T in float32, the terms added in pairs, the sums in pairs, and so on."""
    terms = [a[..., :, None, t] * b[..., None, :, t] for t in range(a.shape[-1])]
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


def blocked(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b^T in float32, in blocks."""
    parts = [a[..., t : t + BLOCK] @ np.swapaxes(b[..., t : t + BLOCK], -1, -2) for t in range(0, a.shape[-1], BLOCK)]
    return sum(parts[1:], parts[0])


def softmaxed(scores: np.ndarray, v: np.ndarray, product, half: np.dtype | None) -> np.ndarray:
    """softmax(scores) V; weights rounded to `half` if one is given."""
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), np.float32(0), top))
    p = e / np.where(np.isneginf(top), np.float32(1), product(e, np.ones((1, e.shape[-1]), np.float32)))
    return product(p if half is None else p.astype(half).astype(np.float32), np.swapaxes(v, -1, -2))


def online(scores: np.ndarray, v: np.ndarray, half: np.dtype | None, two: bool) -> np.ndarray:
    """softmax(scores) V over blocks of keys with a running maximum, in powers of two if asked, exponentials rounded to `half`."""
    power, scores = (np.exp2, scores * np.float32(np.log2(np.e))) if two else (np.exp, scores)
    top = np.full((*scores.shape[:-1], 1), -np.inf, np.float32)
    total, found = np.zeros(top.shape, np.float32), np.zeros((*scores.shape[:-1], v.shape[-1]), np.float32)
    for t in range(0, scores.shape[-1], BLOCK):
        part = scores[..., t : t + BLOCK]
        new = np.maximum(top, part.max(axis=-1, keepdims=True))
        shift = np.where(np.isneginf(new), np.float32(0), new)
        e, shrink = power(part - shift), power(top - shift)
        total = total * shrink + e.sum(axis=-1, keepdims=True)
        found = found * shrink + (e if half is None else e.astype(half).astype(np.float32)) @ v[..., t : t + BLOCK, :]
        top = new
    return found / np.where(total > 0, total, np.float32(1))


def written(case: dict, given: Arrays, dtype: np.dtype) -> Iterator[tuple[str, Arrays]]:
    """(name, contexts and output) of attention from queries, keys and values in `dtype`, written in other ways."""
    if case["softmax"] != "plain" or {"scaled", "sinks", "dropout_keep"} & set(given) or case["softcap"] or case["mask"]["fill"] != -np.inf:
        return
    if case["mask"]["empty_row"] != "zero" or not case["arrays"]["contexts"]:
        return
    made = given | in_stages(case, given, dtype, CONTRACTS["float32 accumulation"])
    q, k, v = (repeat_heads(latest(made, name), case["heads"]).astype(np.float32) for name in "qkv")
    s, half = np.float32(case["scale_factor"]), lambda x: x.astype(dtype).astype(np.float32)
    bias = made["bias"].astype(np.float32) if "bias" in made else np.float32(0)

    def scores(found: np.ndarray) -> np.ndarray:
        return np.where(made["keep"], found + bias, np.float32(-np.inf)) if "keep" in made else found + bias

    plain = scores(q @ np.swapaxes(k, -1, -2) * s)
    root = np.sqrt(np.abs(s))
    ways = {
        "sums one after the other": lambda: softmaxed(scores(sequential(q, k) * s), v, sequential, None),
        "sums in pairs": lambda: softmaxed(scores(pairwise(q, k) * s), v, pairwise, None),
        "sums in blocks": lambda: softmaxed(scores(blocked(q, k) * s), v, blocked, None),
        "online": lambda: online(plain, v, None, False),
        "online, powers of two, half weights": lambda: online(plain, v, dtype, True),
        "half weights": lambda: softmaxed(plain, v, blocked, dtype),
        "queries scaled first": lambda: softmaxed(scores(half(q * s) @ np.swapaxes(k, -1, -2)), v, blocked, None),
        "both sides scaled first": lambda: softmaxed(
            scores(np.sign(s) * half(q * half(root)) @ np.swapaxes(half(k * half(root)), -1, -2)), v, blocked, None
        ),
        "scores and weights in half": lambda: softmaxed(half(plain), v, blocked, dtype),
    }
    wide = case | {"dtype": "float32", "precision": {"accumulate": "float32", "softmax": "float32", "scores": "float32"}}
    p = {name: array if array.dtype == bool else array.astype(np.float32) for name, array in given.items()}
    for name, way in ways.items():
        found = half(way())
        a = p | {"contexts": found, "concat": contexts.merge_heads(found)}
        yield name, {"contexts": found, **outputs.stage(wide, a)}


def kernels(case: dict, given: Arrays, dtype: np.dtype, empty: bool) -> Iterator[tuple[str, Arrays]]:
    """(name, arrays by our names) of every reference that runs the case in `dtype`; with an `empty` row, under the case's conventions."""
    other, cast = recast(case, given, dtype.name)
    for library in present():
        for name in LIBRARIES[library]:
            module = adapter(library, name)
            if module and not module.supports(other) and not (empty and module.convention(other)):
                found = {key: array for key, array in module.run(other, cast).items() if key in case["shapes"]}
                yield f"{library}.{name}", {key: array for key, array in found.items() if key not in case["arrays"]["parameters"]}


def honest(case: dict, given: Arrays, dtype: np.dtype) -> Iterator[tuple[str, Arrays]]:
    """(name, arrays in `dtype`) of every honest evaluation of the case."""
    wide, rounded, exact = exactly(case, given, dtype)
    for name in CONTRACTS:
        yield f"our stages, {name}", sent_as(dtype, in_stages(wide, rounded, dtype, CONTRACTS[name]))
    for name, arrays in written(wide, rounded, dtype):
        yield name, sent_as(dtype, arrays)
    if case["dtype"] in ("float64", "float32") and not case["spelled"]:
        empty = bool(np.isneginf(exact["masked"]).all(axis=-1).any())
        for name, arrays in kernels(case, given, dtype, empty):
            yield name, sent_as(dtype, arrays)


# Counts


def parts(arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """What is sent of `arrays`: the output alone, and all."""
    if "output" in arrays:
        yield "output", {"output": arrays["output"]}
    if set(arrays) != {"output"}:
        yield "all", arrays


def count_honest(case: dict, given: Arrays, dtype: np.dtype, counts: Counter) -> None:
    """Verdicts on honest evaluations, by (name, verdict)."""
    for name, arrays in honest(case, given, dtype):
        for _, sent in parts(arrays):
            verdict = judge_case(case, given, sent)
            counts[name, verdict["verdict"]] += 1
            if verdict["verdict"] == "wrong":
                print(f"false wrong: {case['suite']}/{case['name']} in {dtype.name}: {name}: {verdict['worst']}")


def count_spoiled(case: dict, given: Arrays, dtype: np.dtype, counts: Counter) -> None:
    """Verdicts on spoiled outputs, alone and beside the other arrays as they should be, by (spoil, verdict)."""
    wide, rounded, exact = exactly(case, given, dtype)
    if "output" not in exact:
        return
    right = sent_as(dtype, in_stages(wide, rounded, dtype, CONTRACTS["float32 accumulation"]))
    for name, spoil in SPOILS.items():
        output = spoil(right["output"].astype(np.float64))
        same = bool((difference(output, exact["output"]) <= GRAIN[dtype.name] * largest_of(exact["output"])).all())
        for _, sent in parts(right | sent_as(dtype, {"output": output})):
            word = "is the right answer" if same else judge_case(case, given, sent)["verdict"]
            counts[name, word] += 1
            if word == "right":
                print(f"spoiled and right: {case['suite']}/{case['name']} in {dtype.name}: {name}")


def moved(made: Arrays, right: Arrays) -> float:
    """The most by which an array differs, in parts of its largest element; fills and biases are no measure."""
    found = [0.0]
    for name, array in made.items():
        if array.dtype != bool and array.shape == right[name].shape and name not in ("masked", "bias") and largest_of(right[name]):
            found.append(float(np.nan_to_num(difference(array, right[name]), posinf=np.inf).max(initial=0.0)) / largest_of(right[name]))
    return max(found)


def count_mistakes(case: dict, given: Arrays, dtype: np.dtype, counts: Counter) -> None:
    """Verdicts on known mistakes that move what is sent by more than MOVED, by (what is sent, verdict)."""
    wide, _, right = exactly(case, given, dtype)
    for mistake in LIBRARY.values():
        made = by_mistake(wide, right, mistake)
        for part, sent in parts(made or {}):
            if moved(sent, right) > MOVED:
                word = judge_case(case, given, sent_as(dtype, sent))["verdict"]
                counts[part, word] += 1
                if word == "right":
                    print(f"mistaken and right: {case['dims']['Lq']} tokens, {case['name']} in {dtype.name}: {mistake.name}, {part}")


def table(title: str, counts: Counter) -> str:
    """Counts by row and verdict as Markdown."""
    words = [word for word in ("right", "undecided", "wrong", "is the right answer") if any(key[1] == word for key in counts)]
    rows = list(dict.fromkeys(row for row, _ in counts))
    lines = [f"| {title} | {' | '.join(words)} |", f"|---|{'---|' * len(words)}"]
    lines += [f"| {row} | {' | '.join(str(counts[row, word]) for word in words)} |" for row in rows]
    totals = [sum(count for (_, word), count in counts.items() if word == column) for column in words]
    return "\n".join([*lines, f"| all | {' | '.join(str(total) for total in totals)} |"])


def main(step: int) -> None:
    warnings.simplefilter("ignore")
    good, spoiled = Counter(), Counter()
    long = [(tokens, of_length(tokens, options)) for tokens in LENGTHS[: 3 if step == 1 else 2] for options in OPTIONS]
    for case in shipped()[::step] + [case for _, case in long]:
        given = parameters.stage(case, FOLDER)
        for dtype in HALF:
            count_honest(case, given, dtype, good)
            count_spoiled(case, given, dtype, spoiled)
    print(table("honest evaluations", good), "\n\n" + table("spoiled outputs", spoiled), sep="")
    for tokens in dict.fromkeys(tokens for tokens, _ in long):
        wrong = Counter()
        for case in [case for length, case in long if length == tokens]:
            given = parameters.stage(case, FOLDER)
            for dtype in HALF:
                count_mistakes(case, given, dtype, wrong)
        print("\n" + table(f"mistakes at {tokens} tokens", wrong), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
