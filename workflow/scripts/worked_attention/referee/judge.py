"""The judge: whether somebody's arrays of a case are right, in which arithmetic, and if not, which stage goes wrong first and how.

Each stage is computed in float64 from the submission's own arrays of the stages before, and what was sent is held against that with
a certified bound; so a stage is blamed for what it does itself, not for what it was given. Where arrays are missing, ours stand in
for them, computed from the last ones that were sent; then the bound covers the stages in between, and so does the blame.
"""

from dataclasses import dataclass, field

import numpy as np

from worked_attention.referee.bounds.contracts import CONTRACTS, OUTER, contract, roundoffs
from worked_attention.referee.bounds.rounding import PRESCALED, UNIT, Errors, finish
from worked_attention.referee.bounds.whole import BOUNDS
from worked_attention.referee.chain import STAGE, Arrays, fill
from worked_attention.referee.compare import spelled
from worked_attention.referee.diagnosis import BESIDE, Diagnoser
from worked_attention.stages.catalogue import CATALOGUE, STAGES
from worked_attention.stages.dtypes import HALF
from worked_attention.stages.masks import fill_value
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.projections import latest

OURS = UNIT["float64"]
COMPUTED = STAGES[1:]


@dataclass(frozen=True)
class Arithmetic:
    """A contract by name: unit roundoff of sums, unit roundoff of the arrays that are kept in fewer bits, dtype of the parameters."""

    name: str
    u: float
    kept: dict[str, float]
    dtype: str


def arithmetics(case: dict, given: Arrays) -> list[Arithmetic]:
    """The contracts to try, the strictest first, none stricter than what was sent; half precisions if that or the case has one."""
    shown = {array.dtype.name for array in given.values()}
    found = []
    if not shown & {"float16", "bfloat16"}:
        found = [Arithmetic("float64", OURS, {}, "float64")] * ("float32" not in shown)
        products = OUTER | {"qk"} if "float64" in shown else ()  # arrays in float64 are rounded on their way into a product
        found.append(Arithmetic("float32", UNIT["float32"], dict.fromkeys(products, OURS), "float32"))
    dtypes = {case["dtype"], *shown}
    for dtype in [dtype for dtype in HALF if dtype in dtypes]:
        found += [Arithmetic(f"{name} ({dtype})", UNIT["float32"], contract(name, dtype), dtype) for name in CONTRACTS]
        found.append(Arithmetic(dtype, UNIT[dtype], dict.fromkeys((*CATALOGUE, PRESCALED), UNIT[dtype]), dtype))
    u, kept = roundoffs(case)
    if u > UNIT["float32"] and u > kept:
        found.append(Arithmetic("as the case names it", u, dict.fromkeys(CATALOGUE, kept), case["dtype"]))
    return found


def blocked_score(case: dict, given: Arrays, how: Arithmetic) -> float:
    """What takes the place of a blocked score: in the dtype of `masked` if that was sent, else in the one that scores have in `how`.

    That is a half precision where `how` stores scores so, and where the case itself is in it.
    """
    half = how.dtype == case["dtype"] or max(how.u, how.kept.get("masked", how.u)) > UNIT["float32"]
    dtypes = [how.dtype if half else "float32" if how.u > OURS else "float64"]
    if "masked" in given:
        dtypes = [given["masked"].dtype, case["dtype"], "float32", *dtypes]
    with np.errstate(over="ignore"):
        fills = [float(np.asarray(fill_value(case["mask"]["fill"], np.dtype(dtype))).astype(dtype)) for dtype in dtypes]
    return next((fill for fill in fills if "masked" in given and (given["masked"].astype(np.float64) == fill).any()), fills[0])


def in_float64(case: dict, given: Arrays, how: Arithmetic) -> dict:
    """The case with float64 in every stage; what takes the place of a blocked score is as `blocked_score` says."""
    empty = {"error": "nan"}.get(case["mask"]["empty_row"], case["mask"]["empty_row"])  # the judge does not stop at somebody's empty row
    mask = case["mask"] | {"fill": blocked_score(case, given, how), "empty_row": empty}
    return case | {"dtype": "float64", "precision": {"accumulate": "float64", "softmax": "float64"}, "mask": mask}


def widened(arrays: Arrays) -> Arrays:
    """The arrays in float64, boolean ones as they are."""
    return {name: array if array.dtype == bool else array.astype(np.float64) for name, array in arrays.items()}


@dataclass
class Chain:
    """All stages of a case from what was sent: `expected` as each stage should be, `used` as the next stages get it."""

    case: dict
    parameters: Arrays
    given: Arrays
    expected: Arrays = field(default_factory=dict)
    used: Arrays = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = dict(self.parameters)
        fitting = {name: array for name, array in self.given.items() if array.shape == tuple(self.case["shapes"][name])}
        with np.errstate(all="ignore"):
            for stage in COMPUTED:
                before = dict(self.used)
                self.expected |= STAGE[stage](self.case, before)
                self.used |= fill(self.case, stage, before, fitting)


def distances(case: dict, chain: Chain, rounded: Chain | None, how: Arithmetic, sent: Arrays) -> dict[str, np.ndarray]:
    """How far each array may be from the expected one in the arithmetic `how`, by name.

    rounded: the same chain from parameters rounded to `how.dtype`. sent: what was sent, in its own dtypes.
    """
    of = Errors(case, dict(chain.parameters), how.u, how.kept)
    allowed, lost = {}, False  # lost: a number that was not sent may have been too large for the format, and NaN may follow from it
    for stage in COMPUTED:
        of.centre |= {name: chain.expected[name] for name in case["arrays"][stage] if name in chain.expected}
        with np.errstate(all="ignore"):
            BOUNDS[stage](of)
            for name in case["arrays"][stage]:
                if chain.expected[name].dtype == bool:
                    allowed[name] = np.zeros(chain.expected[name].shape)
                    continue
                shown = UNIT.get(sent[name].dtype.name, 0.0) if name in sent else 0.0
                error = of.of(name) * (1 + OURS / how.u)
                error = finish(chain.expected[name], error, float(shown > how.u), shown) if shown > how.u else error
                if rounded is not None:
                    moved = np.abs(chain.expected[name] - rounded.expected[name])
                    error = error + np.where(np.isfinite(moved), moved, 0.0)
                if name == "masked" and "keep" in chain.expected:
                    error = np.where(chain.expected["keep"], error, 0.0)  # what takes the place of a blocked score is not computed
                allowed[name] = np.where(np.isfinite(sent[name]), error, np.inf) if lost and name in sent else error
        for name in case["arrays"][stage]:
            lost = lost or (name not in sent and bool(np.isinf(allowed[name]).any()))
            of.centre[name] = chain.used[name]
            if name in chain.given:
                of.bound[name] = None  # it is what the next stages get
                if name in ("weights", "dropped"):
                    of.sums = 0.0
                shown = UNIT.get(sent[name].dtype.name, 0.0)
                if shown > UNIT["float32"]:  # it may have been rounded for us to see, and used as it was
                    of.bound[name] = shown * np.abs(np.nan_to_num(chain.used[name], posinf=0.0, neginf=0.0))
                    of.sums = of.sums if name not in ("weights", "dropped") else of.bound[name].sum(axis=-1, keepdims=True)
    return allowed


def excess(got: np.ndarray, expected: np.ndarray, error: np.ndarray) -> np.ndarray:
    """How many times the error that is allowed each element is off: at most 1 where it is right, infinite where no error is allowed."""
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        off = np.where(np.isnan(off), np.inf, off)
        ratio = np.where(error > 0, off / error, np.where(off > 0, np.inf, 0.0))
        same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | np.isinf(error)
    return np.where(same, 0.0, ratio)


def suspects(case: dict, given: Arrays, names: Arrays) -> dict[str, set[str]]:
    """For each stage, the stages that may be at fault if it comes out wrong: itself, and those before of which nothing was sent.

    names: arrays by name, of which the last form of queries, keys and values counts.
    """
    final = {}
    for name in [name for name in "qkv" if f"{name}_heads" in names]:
        array = latest(names, name)
        last = next(key for key in names if names[key] is array)
        final[name] = set() if last in given or last in case["arrays"]["parameters"] else {"projections"}
    kept = "dropped" if "dropped" in case["shapes"] else "weights"
    found = {"projections": {"projections"}}
    found["scores"] = {"scores"} | final.get("q", set()) | final.get("k", set())
    found["weights"] = {"weights"} | (set() if "masked" in given else found["scores"])
    found["contexts"] = {"contexts"} | (set() if kept in given else found["weights"]) | final.get("v", set())
    found["outputs"] = {"outputs"} | (set() if "concat" in given else found["contexts"])
    found["backward"] = {"backward"}
    for stage, array in zip(COMPUTED[1:-1], ("masked", kept, "concat", "output"), strict=True):
        if array not in given:
            found["backward"] |= found[stage]
    return found


def said(stages: set[str]) -> str:
    """The stages in words: one by its name, several as the narrowest range."""
    places = sorted(COMPUTED.index(stage) for stage in stages)
    if len(places) == 1:
        return COMPUTED[places[0]]
    if places[-1] - places[0] == len(places) - 1:
        return f"between {STAGES[places[0]]} and {COMPUTED[places[-1]]}"
    return " or ".join(COMPUTED[place] for place in places)


def worst_of(name: str, got: np.ndarray, expected: np.ndarray, error: np.ndarray) -> dict:
    """{array, index, expected, got, bound} of the element that is farthest beyond its bound; of a wrong shape, {array, reason}."""
    if got.shape != expected.shape:
        return {"array": name, "reason": f"has shape {list(got.shape)}, should have {list(expected.shape)}"}
    ratio = excess(got, expected, error)
    off = np.abs(np.nan_to_num(got.astype(np.float64)) - np.nan_to_num(expected.astype(np.float64)))
    place = np.unravel_index(np.lexsort((-off.ravel(), -ratio.ravel()))[0], ratio.shape)
    number = (lambda x: bool(x)) if expected.dtype == bool else (lambda x: spelled(float(x)))
    worst = {"array": name, "index": [int(i) for i in place], "expected": number(expected[place]), "got": number(got[place])}
    return worst | {"bound": spelled(float(error[place]))}


def judge_case(case: dict, parameters: Arrays, sent: Arrays, diagnoser: Diagnoser | None = None) -> dict:
    """The verdict on what was sent of one case.

    parameters: those of the case by name. sent: any of the case's computed arrays by name, float or boolean, in the dtypes they came in.
    Returns {verdict: right or wrong, contract, convention: None, first_wrong_stage, diagnosis, worst, stages: {stage: right, wrong, follows
    or not sent}};
    contract is the strictest arithmetic in which all is right, first_wrong_stage a stage or a range of stages.
    """
    given, parameters = widened(sent), widened(parameters)
    chains: dict[tuple[float, str], Chain] = {}  # by what takes the place of a blocked score, and by what parameters are rounded to
    for how in arithmetics(case, sent):
        wide = in_float64(case, sent, how)
        fill = wide["mask"]["fill"]
        for dtype in {"float64", how.dtype}:
            if (fill, dtype) not in chains:
                chains[fill, dtype] = Chain(wide, _rounded(parameters, dtype), given)
        chain, rounded = chains[fill, "float64"], chains[fill, how.dtype] if how.dtype != "float64" else None
        allowed = distances(wide, chain, rounded, how, sent)
        wrong = [name for name in CATALOGUE if name in given and _is_wrong(given[name], chain.expected[name], allowed[name])]
        if not wrong:
            return _verdict("right", how.name, stages=_stages(case, given, [], {}))
    blame = suspects(case, given, parameters | chain.used)
    stage = CATALOGUE[wrong[0]].stage
    names = case["arrays"][stage]
    if wrong[0] in BESIDE or any(name in given and name not in BESIDE for name in names[: names.index(wrong[0])]):
        blame[stage] = {stage}  # what the stage itself makes it from was sent, and is right
    verdict = _verdict("wrong", None, stages=_stages(case, given, wrong, blame))
    verdict["first_wrong_stage"] = said(blame[stage])
    verdict["worst"] = worst_of(wrong[0], given[wrong[0]], chain.expected[wrong[0]], allowed[wrong[0]])
    if diagnoser:
        u = max([UNIT["float32"], *(UNIT.get(array.dtype.name, 0.0) for array in sent.values())])
        verdict["diagnosis"] = diagnoser.diagnose(wide, parameters, given, chain.expected, stage, blame[stage], u)
    return verdict


def _verdict(word: str, name: str | None, stages: dict[str, str]) -> dict:
    rest = {"first_wrong_stage": None, "diagnosis": None, "worst": None, "stages": stages}
    return {"verdict": word, "contract": name, "convention": None, **rest}


def _is_wrong(got: np.ndarray, expected: np.ndarray, error: np.ndarray) -> bool:
    return got.shape != expected.shape or bool((excess(got, expected, error) > 1).any())


def _rounded(parameters: Arrays, dtype: str) -> Arrays:
    """The parameters as somebody gets them who computes in `dtype`."""
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    with np.errstate(over="ignore"):
        return {name: array if array.dtype == bool else array.astype(kind).astype(np.float64) for name, array in parameters.items()}


def _stages(case: dict, given: Arrays, wrong: list[str], blame: dict[str, set[str]]) -> dict[str, str]:
    """Each stage in a word. `follows` is one that is wrong where an earlier wrong stage may be the reason."""
    words: dict[str, str] = {}
    for stage in COMPUTED:
        sent = [name for name in case["arrays"][stage] if name in given]
        if not sent:
            words[stage] = "not sent"
        elif not set(sent) & set(wrong):
            words[stage] = "right"
        else:
            earlier = {before for before, word in words.items() if word in ("wrong", "follows")}
            words[stage] = "follows" if earlier & blame[stage] else "wrong"
    return {stage: word for stage, word in words.items() if case["arrays"][stage]}
