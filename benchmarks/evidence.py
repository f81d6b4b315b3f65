"""What the judge's verdicts on half precision are worth: spoiled answers, known mistakes and honest evaluations, all of them counted.

    python benchmarks/evidence.py                   # some 40 minutes on one core; prints Markdown tables, the same at each run
    python benchmarks/evidence.py shipped/12 8 64   # every twelfth case, and no 512 tokens: some minutes
    python benchmarks/evidence.py shipped/12+1      # every twelfth case from the second one on

Every shipped case at its own size, and cases of normal numbers at 8, 64 and 512 tokens with all kinds of options, in bfloat16 and
float16; the output alone is sent, or all arrays. Truth starts from inputs that are already rounded. Spoiled: the answers in `SPOILS`, but
where one differs nowhere by more than one unit in the last place of the largest element from the right answer, or from the evaluation
that is spoiled. Mistakes: those of the library that move an array by more than 5 % of its largest element, in every case; at 64 and 512
tokens each in the first case that shows it; weights rounded to half are none where everything is. Honest: our stages with what each
contract stores in half; attention written in other ways (below), and the kernels of torch, JAX and ONNX Runtime, where they are
installed and agree on what a query without keys becomes.
"""

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.columns import libraries  # noqa: E402
from worked_attention.cases.resolve import resolve  # noqa: E402
from worked_attention.cases.suites import UNLIMITED, load_config, load_suites  # noqa: E402
from worked_attention.referee.arithmetics import recast  # noqa: E402
from worked_attention.referee.bounds.contracts import CONTRACTS  # noqa: E402
from worked_attention.referee.chain import STAGE  # noqa: E402
from worked_attention.referee.evidence import GRAIN, NO_SUMS, difference, largest_of, source_of  # noqa: E402
from worked_attention.referee.judge import judge_case  # noqa: E402
from worked_attention.referee.mistakes.library import LIBRARY  # noqa: E402
from worked_attention.referee.power import by_mistake  # noqa: E402
from worked_attention.referee.report import case_verdict  # noqa: E402
from worked_attention.referee.submissions import Sent  # noqa: E402
from worked_attention.referee.trials import ANY, Trials, widened  # noqa: E402
from worked_attention.references.registry import adapter, present  # noqa: E402
from worked_attention.stages import contexts, outputs, parameters  # noqa: E402
from worked_attention.stages.catalogue import CATALOGUE, STAGES  # noqa: E402
from worked_attention.stages.dtypes import DTYPES  # noqa: E402
from worked_attention.stages.masks import fill_value  # noqa: E402
from worked_attention.stages.precision import bfloat16  # noqa: E402
from worked_attention.stages.projections import latest  # noqa: E402
from worked_attention.stages.scores import repeat_heads  # noqa: E402
from worked_attention.stages.whole import from_parameters  # noqa: E402

Arrays = dict[str, np.ndarray]
FOLDER = ROOT / "config" / "suites"
HALF = (bfloat16, np.dtype("float16"))
MOVED = 0.05  # of an array's largest element; smaller mistakes are not counted
BLOCK = 16  # keys
ALL = frozenset(LIBRARY)
SPOILS = {
    "zeros": lambda x: 0 * x,
    "half as much again": lambda x: 1.5 * x,
    "sign flipped": lambda x: -x,
    "rows rolled": lambda x: np.roll(x, 1, axis=max(x.ndim - 2, 0)),
    "the mean everywhere": lambda x: np.full(x.shape, x[np.isfinite(x)].mean() if np.isfinite(x).any() else 0.0),
    "7 everywhere": lambda x: np.full(x.shape, 7.0),
}
OPTIONS = {  # by the number of tokens; what the suites have as a minimal variant each, here several at a time
    "plain": lambda n: {},
    "causal": lambda n: {"mask": {"causal": "top_left"}},
    "rotary": lambda n: {"rotary": {"pairing": "half"}, "mask": {"causal": "top_left"}},
    "grouped": lambda n: {"kv_heads": 1},
    "softcap and ALiBi": lambda n: {
        "softcap": 5,
        "alibi": {"slopes": "geometric", "form": "distance"},
        "mask": {"causal": "bottom_right"},
    },
    "norm and window": lambda n: {"qk_norm": {"kind": "rms"}, "mask": {"window": {"left": 3}, "causal": "top_left"}},
    "gradients": lambda n: {"backward": "ones", "mask": {"causal": "top_left"}},
    "gradients of norm, YaRN, softcap, sinks and dropout": lambda n: {
        "backward": "ones",
        "qk_norm": {"kind": "rms"},
        "rotary": {"pairing": "interleaved", "dims": 8, "base": 100, "scaling": {"rule": "yarn", "factor": 4, "original_length": 16}},
        "positions": {"offset": 3},
        "softcap": 2,
        "dropout": 0.25,
        "parameters": {"g_q": drawn(1), "g_k": drawn(2), "sinks": drawn(3), "dropout_keep": coins(2, n, n)},
    },
    "cache and appended keys": lambda n: {
        "kv_heads": 1,
        "extra_key": "zero",
        "sizes": {"Lp": n // 2},
        "rotary": {"pairing": "half"},
        "qk_norm": {"kind": "rms"},
        "mask": {"causal": "bottom_right", "window": {"left": 5}},
        "parameters": {"past_k": drawn(1), "past_v": drawn(2), "bias_k": drawn(3), "bias_v": drawn(4)},
    },
    "documents, padding, biases and sinks": lambda n: {
        "sizes": {"B": 2, "buckets": 8},
        "alibi": {"slopes": "interleaved", "form": "relative"},
        "t5": {"direction": "both", "longest": 20},
        "positions": {"offset": 3},
        "mask": {"documents": [i * 2 // n for i in range(n)], "key_lengths": [n, 3 * n // 4], "add": drawn(5)},
        "parameters": {"t5_table": drawn(1), "bias_table": drawn(2), "sinks": drawn(3)},
    },
    "sinusoids, prefix and plus one": lambda n: {
        "heads": 4,
        "kv_heads": 2,
        "sinusoidal": {},
        "softmax": "plus_one",
        "mask": {"causal": "top_left", "prefix": n // 4, "fill": -1e9},
    },
    "queries without keys": lambda n: {
        "sizes": {"B": 2},
        "mask": {"causal": "bottom_right", "key_lengths": [n, n // 2], "diagonal": "own"},
    },
    "hardmax": lambda n: {"softmax": "hardmax"},
    "cross-attention and a window to both sides": lambda n: {
        "heads": 6,
        "kv_heads": 3,
        "sizes": {"Lk": n + n // 2, "d_k": 8, "d_v": 6, "d_kv": 16, "d_out": 10},
        "scale": -0.2,
        "alibi": {"slopes": "interleaved", "form": "key_index"},
        "mask": {"window": {"left": 2, "right": 3, "align": "bottom_right"}},
        "parameters": {"x_kv": drawn(1)},
    },
    "some columns rotated, NTK, another scale": lambda n: {
        "scale": "1/sqrt(d_model)",
        "rotary": {"pairing": "interleaved", "dims": 8, "base": 100, "scaling": {"rule": "ntk", "factor": 4}},
        "positions": {"queries": [2 * i for i in range(n)], "keys": [2 * i for i in range(n)]},
    },
}


def drawn(seed: int) -> dict:
    """Normal numbers."""
    return {"normal": {"seed": seed}}


def coins(*shape: int) -> list:
    """True three times of four."""
    return (np.random.Generator(np.random.Philox(6)).random(shape) < 0.75).tolist()


# Cases


def shipped() -> list[dict]:
    """Every case of config/suites whose parameters NumPy can make."""
    suites = load_suites(load_config(ROOT / "config" / "config.yaml", {}), FOLDER)
    return [case for suite in suites.values() for case in suite["cases"].values() if not case["torch_draws"]]


def of_length(tokens: int, options: str) -> dict:
    """A case from x with normal numbers, of two heads if the options say nothing else; d_model is 32."""
    names = ("x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")
    numbers = {name: {"normal": {"seed": tokens + i, "std": 1.0 if name == "x" else 0.3}} for i, name in enumerate(names)}
    said = OPTIONS[options](tokens)
    sizes, parameters = {"Lq": tokens, "d_model": 32} | said.get("sizes", {}), numbers | said.get("parameters", {})
    raw = {"heads": 2} | said | {"sizes": sizes, "parameters": parameters}
    name = "".join(letter if letter.isalnum() else "_" for letter in options.lower())
    return resolve(raw, "made", name, Path(), UNLIMITED | {"max_array_mb": 1000}, lambda where, what: sys.exit(f"{where}: {what}"))


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
    """The arrays rounded to `dtype`, as somebody sends them."""
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
    for library in present(libraries()):
        for name in libraries()[library]:
            module = adapter(library, name)
            if module and not module.supports(other) and not (empty and module.convention(other)):
                found = {key: array for key, array in module.run(other, cast).items() if key in case["shapes"]}
                yield f"{library}.{name}", {key: array for key, array in found.items() if key not in case["arrays"]["parameters"]}


def honest(case: dict, given: Arrays, dtype: np.dtype) -> Iterator[tuple[str, Arrays]]:
    """(name, arrays in `dtype`) of every honest evaluation of the case."""
    wide, rounded, exact = exactly(case, given, dtype)
    float_scores = DTYPES[case["dtype"]].half and not DTYPES[case["precision"]["scores"]].half  # the case says so
    scores = set(case["arrays"]["scores"]) if float_scores else set()
    for name, kept in CONTRACTS.items():
        if not scores & kept:
            made = in_stages(wide, rounded, dtype, kept)
            yield f"our stages, {name}", sent_as(dtype, made) | {key: made[key] for key in scores}
    for name, arrays in written(wide, rounded, dtype):
        yield name, sent_as(dtype, arrays)
    if case["dtype"] in ("float64", "float32") and not case["spelled"]:
        empty = bool(np.isneginf(exact["masked"]).all(axis=-1).any())
        for name, arrays in kernels(case, given, dtype, empty):
            yield name, sent_as(dtype, arrays)


# Verdicts


def worst(words: Iterator[str]) -> str:
    """The verdict that follows from the words on single arrays, of which no more are asked for than decide it."""
    found = "right"
    for word in words:
        if word == "wrong":
            return word
        found = word if word == "undecided" else found
    return found


class Judge:
    """Verdicts of `judge_case`, in a word, on outputs beside the same other arrays, or alone. No array is made from the output, so all that
    the judge computes but its last comparison is the same for all of them, and is done once."""

    def __init__(self, case: dict, given: Arrays, others: Arrays):
        """case: resolved; given: its parameters; others: what is sent beside the output."""
        self.case, self.given, self.others = case, widened(given), others
        self.trials: dict[tuple, Trials] = {}
        self.words: dict[tuple, list[str]] = {}

    def verdict(self, output: np.ndarray | None) -> str:
        """right, wrong or undecided; None: nothing is sent but the others."""
        sent = self.others if output is None else self.others | {"output": output}
        kind = None if output is None else (output.shape, output.dtype)
        if kind not in self.trials:
            self.trials[kind] = Trials(self.case, self.given, sent, {})
        trials = self.trials[kind]
        trials.sent = sent
        return worst(self._words(trials, kind))

    def _words(self, trials: Trials, kind: tuple | None) -> Iterator[str]:
        if kind is not None:
            yield trials.best("output", ANY)[0].word
        words = self.words.setdefault(kind, [])
        names = [name for name in CATALOGUE if name in self.others]
        yield from words
        for name in names[len(words) :]:
            words.append(trials.best(name, ANY)[0].word)
            yield words[-1]


# Counts


def count_honest(case: dict, given: Arrays, dtype: np.dtype, counts: Counter) -> None:
    """Verdicts on honest evaluations, the output alone and all arrays, by (name, verdict)."""
    alone = Judge(case, given, {})
    for name, arrays in honest(case, given, dtype):
        words = [alone.verdict(arrays["output"])] if "output" in arrays else []
        if others := {key: array for key, array in arrays.items() if key != "output"}:
            words.append(Judge(case, given, others).verdict(arrays.get("output")))
        if "wrong" in words and case_verdict(case, given, Sent(arrays), {}, None)["verdict"] == "convention":
            words = ["convention"]
        for word in words:
            counts[name, word] += 1
        if "wrong" in words:
            print(f"false wrong: {case['suite']}/{case['name']} in {dtype.name}: {name}: {judge_case(case, given, arrays)['worst']}")


def count_spoiled(case: dict, given: Arrays, dtype: np.dtype, counts: Counter) -> None:
    """Verdicts on spoiled outputs, alone and beside the other arrays as they should be, by (spoil, verdict)."""
    wide, rounded, exact = exactly(case, given, dtype)
    if "output" not in exact:
        return
    right = sent_as(dtype, in_stages(wide, rounded, dtype, CONTRACTS["float32 accumulation"]))
    judges = Judge(case, given, {}), Judge(case, given, {name: array for name, array in right.items() if name != "output"})
    for name, spoil in SPOILS.items():
        output = spoil(right["output"].astype(np.float64))
        grain = GRAIN[dtype.name] * max(largest_of(exact["output"]), largest_of(right["output"].astype(np.float64)))
        same = any(bool((difference(output, other.astype(np.float64)) <= grain).all()) for other in (exact["output"], right["output"]))
        for judge in judges:
            word = "is the right answer" if same else judge.verdict(sent_as(dtype, {"output": output})["output"])
            counts[name, word] += 1
            if word == "right":
                print(f"spoiled and right: {case['suite']}/{case['name']} in {dtype.name}: {name}")


def measures(arrays: Arrays) -> dict[str, float]:
    """The largest element of each array, or, where its terms cancel altogether, that of what it is made from, as far back as need be."""
    found: dict[str, float] = {}
    for name in [name for name in CATALOGUE if name in arrays]:
        before = CATALOGUE[name].made_from if CATALOGUE[name].stage != "backward" and name not in NO_SUMS else ()
        source = max([source_of(name, arrays), *(found[other] for other in before if other in found)])
        own = largest_of(arrays[name])
        found[name] = own if own > GRAIN["float64"] * source else source
    return found


def moved(made: Arrays, right: Arrays) -> float:
    """The most by which an array differs, in parts of its measure; fills and biases are no measure."""
    found, sizes = [0.0], measures(right)
    for name, array in made.items():
        size = sizes[name]
        if array.dtype != bool and array.shape == right[name].shape and name not in ("masked", "bias") and size:
            found.append(float(np.nan_to_num(difference(array, right[name]), posinf=np.inf).max(initial=0.0)) / size)
    return max(found)


def count_mistakes(case: dict, given: Arrays, dtype: np.dtype, counts: Counter, known: frozenset[str] = ALL) -> set[str]:
    """Verdicts on `known` mistakes that move what is sent by more than MOVED, by (what is sent, verdict); returns which ones do."""
    wide, rounded, right = exactly(case, given, dtype)
    fills = {case["mask"]["fill"], fill_value(case["mask"]["fill"], np.dtype(case["dtype"]))}
    with np.errstate(all="ignore"):  # one that a dtype does not hold is infinite there; the case's dtype and a wider one count as well
        fills |= {float(np.asarray(fill).astype(case["dtype"])) for fill in fills if not isinstance(fill, str)}
        readings = [right, *(from_parameters(wide | {"mask": wide["mask"] | {"fill": fill}}, rounded) for fill in fills)]
    alone, found = Judge(case, given, {}), set()
    for mistake in [LIBRARY[name] for name in LIBRARY if name in known and LIBRARY[name].applies({**wide, "dtype": dtype.name})]:
        made = by_mistake(wide, right, mistake) or {}
        output = {name: made[name] for name in ("output",) if name in made}
        others = {name: array for name, array in made.items() if name != "output"}
        for part, sent, judge in (("output", output, alone), ("all", made, Judge(case, given, sent_as(dtype, others)))):
            if sent and min(moved(sent, reading) for reading in readings) > MOVED:
                found.add(mistake.name)
                word = judge.verdict(sent_as(dtype, output).get("output"))
                counts[part, word] += 1
                if word == "right":
                    print(f"mistaken and right: {case['suite']}/{case['name']} in {dtype.name}: {mistake.name}, {part}")
    return found


def table(title: str, counts: Counter) -> str:
    """Counts by row and verdict as Markdown."""
    words = [word for word in ("right", "convention", "undecided", "wrong", "is the right answer") if any(key[1] == word for key in counts)]
    rows = list(dict.fromkeys(row for row, _ in counts))
    lines = [f"| {title} | {' | '.join(words)} |", f"|---|{'---|' * len(words)}"]
    lines += [f"| {row} | {' | '.join(str(counts[row, word]) for word in words)} |" for row in rows]
    totals = [sum(count for (_, word), count in counts.items() if word == column) for column in words]
    return "\n".join([*lines, f"| all | {' | '.join(str(total) for total in totals)} |"])


def chapter(title: str, cases: list[dict], once: bool) -> None:
    """Count over these cases and print the tables. once: each known mistake only in the first case that shows it."""
    good, spoiled, mistaken = Counter(), Counter(), Counter()
    left, found = dict.fromkeys(HALF, ALL), set()
    for case in cases:
        given = parameters.stage(case, FOLDER)
        for dtype in HALF:
            count_honest(case, given, dtype, good)
            count_spoiled(case, given, dtype, spoiled)
            here = count_mistakes(case, given, dtype, mistaken, left[dtype])
            found |= here
            left = left | {dtype: left[dtype] - here} if once else left
    print(f"\n## {title}: {len(cases)} cases, {len(found)} of {len(LIBRARY)} known mistakes\n")
    for what, counts in (("honest evaluations", good), ("spoiled outputs", spoiled), ("mistakes", mistaken)):
        print(table(what, counts) + "\n", flush=True)


def main(chapters: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in chapters:
        what, _, every = name.partition("/")
        step, _, first = every.partition("+")
        cases = shipped() if what == "shipped" else [of_length(int(what), key) for key in OPTIONS]
        cases = cases[int(first or 0) :: int(step or 1)]
        chapter(name if what == "shipped" else f"{what} tokens", cases, what in ("64", "512"))
        print(f"{name}: {time.process_time():.0f} s of CPU so far", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["shipped", "8", "64", "512"])
