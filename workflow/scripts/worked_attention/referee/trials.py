"""What somebody sent, held against the arithmetics in which it may have been made, one after another.

Each stage is computed in float64 from the submission's own arrays of the stages before. Where arrays are missing, ours stand in for them,
computed from the last ones that were sent; then the bound covers the stages in between.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from worked_attention.referee.bounds import contracts
from worked_attention.referee.bounds.contracts import INNER, OUTER, SUMS, roundoffs
from worked_attention.referee.bounds.rounding import UNIT, Errors, finish, smallest
from worked_attention.referee.bounds.whole import BOUNDS, certain_overflow, near_overflow
from worked_attention.referee.chain import STAGE, Arrays, fill
from worked_attention.referee.evidence import Finding, coarsest, difference, source_of, weigh
from worked_attention.referee.typical.rounding import Spread, finite, rounding
from worked_attention.referee.typical.weights import reach_of_sums
from worked_attention.referee.typical.whole import TYPICAL
from worked_attention.stages.catalogue import COMPUTED
from worked_attention.stages.dtypes import HALF, usual_precision
from worked_attention.stages.masks import fill_value

OURS = UNIT["float64"]
ANY = "any"  # contract: that of the dtype which each array shows


@dataclass(frozen=True)
class Arithmetic:
    """A contract by name: unit roundoff of sums, unit roundoff of the arrays that are kept in fewer bits, the dtype that arrays are in,
    and whether the parameters were rounded to it before anything else."""

    name: str
    u: float
    kept: dict[str, float]
    dtype: str
    rounded: bool = False
    printed: bool = False  # whether arrays are numbers printed to some decimals, and rounded by that

    @property
    def half(self) -> bool:
        """Whether arrays are kept in a half precision."""
        return self.dtype in HALF


def halves(dtype: str) -> list[Arithmetic]:
    """The contracts of a half precision, the strictest first; each from parameters that are rounded first, and from those as they are."""
    found = [(dtype if name == SUMS else f"{name} ({dtype})", u, kept) for name, u, kept in contracts.halves(dtype)]
    return [Arithmetic(name, u, kept, dtype, rounded) for name, u, kept in found for rounded in (True, False)]


def arithmetics(case: dict, shown: str, given: Arrays, asked: str) -> list[Arithmetic]:
    """The contracts to try for an array of the dtype `shown`, the strictest first, and none that is stricter than this dtype.

    An array in half precision may be made in any contract of it, one in float64 also in float32; only what the case itself asks for is
    allowed besides. given: everything that was sent. asked: the dtype of a contract that is asked for, then nothing
    coarser is tried; or ANY.
    """
    if shown in HALF:
        found = halves(shown)
    else:
        found = [Arithmetic("float64", OURS, {}, "float64")] * (shown != "float32")
        mixed = any(array.dtype == np.float64 for array in given.values())
        products = OUTER | {"qk"} if mixed else ()  # arrays in float64 are rounded on their way into a product
        found.append(Arithmetic("float32", UNIT["float32"], dict.fromkeys(products, OURS), "float32"))
        found += halves(case["dtype"]) if case["dtype"] in HALF else []
    u, kept = roundoffs(case)
    own = UNIT[case["dtype"]]
    if (u > UNIT["float32"] and u > own) or UNIT[case["precision"]["scores"]] > own:
        found.append(Arithmetic("as the case names it", u, kept, case["dtype"]))
    if asked == ANY:
        return found
    found = [how for how in found if UNIT[how.dtype] <= UNIT[asked] and max([how.u, *how.kept.values()]) <= UNIT[asked]]
    return found or [Arithmetic(asked, UNIT[asked], {}, asked)]


def blocked_score(case: dict, given: Arrays, how: Arithmetic) -> float:
    """What takes the place of a blocked score: in the dtype of `masked` if that was sent, else in the one that scores have in `how`.

    That is a half precision where `how` stores scores so, and where the case itself is in it.
    """
    half = how.dtype == case["dtype"] or max(how.u, how.kept.get("masked", how.u)) > UNIT["float32"]
    own = case["precision"]["scores"]
    dtypes = [own if how.dtype == case["dtype"] else how.dtype if half else "float32" if how.u > OURS else "float64"]
    if "masked" in given:
        dtypes = [given["masked"].dtype, own, "float32", *dtypes]
    with np.errstate(over="ignore"):
        fills = [float(np.asarray(fill_value(case["mask"]["fill"], np.dtype(dtype))).astype(dtype)) for dtype in dtypes]
    return next((fill for fill in fills if "masked" in given and (given["masked"].astype(np.float64) == fill).any()), fills[0])


def in_float64(case: dict, given: Arrays, how: Arithmetic, certain: float = np.inf) -> dict:
    """The case with float64 in every stage; what takes the place of a blocked score is as `blocked_score` says. Scores beyond `certain` are
    infinite."""
    empty = {"error": "nan"}.get(case["mask"]["empty_row"], case["mask"]["empty_row"])  # the judge does not stop at somebody's empty row
    mask = case["mask"] | {"fill": blocked_score(case, given, how), "empty_row": empty}
    limits = case["overflow"] | {"certain": certain}
    return case | {"dtype": "float64", "precision": usual_precision("float64"), "mask": mask, "overflow": limits}


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


def bounded(case: dict, chain: Chain, rounded: Chain | None, how: Arithmetic, sent: Arrays, steps: Arrays) -> Iterator[Arrays]:
    """How far each array may certainly be from the expected one in the arithmetic `how`, by name, stage after stage.

    rounded: the same chain from parameters rounded to `how.dtype`. sent: what was sent, in its own dtypes. steps: unit of the last printed
    decimal of each element, of arrays that are printed numbers; such an array is off by half of it, and so is what it leads to.
    """
    of = Errors(case, dict(chain.parameters), how.u, how.kept)
    for stage in COMPUTED:
        allowed = {}
        of.centre |= {name: chain.expected[name] for name in case["arrays"][stage] if name in chain.expected}
        with np.errstate(all="ignore"):
            BOUNDS[stage](of)
            for name in case["arrays"][stage]:
                if chain.expected[name].dtype == bool:
                    allowed[name] = np.zeros(chain.expected[name].shape)
                    continue
                shown = _shown(sent, name, how)
                error = of.of(name) * (1 + OURS / how.u)
                error = finish(chain.expected[name], error, float(shown > how.u), shown) if shown > how.u else error
                if rounded is not None:
                    moved = np.abs(chain.expected[name] - rounded.expected[name])
                    error = error + np.where(np.isfinite(moved), moved, 0.0)
                if name == "masked" and "keep" in chain.expected:
                    error = np.where(chain.expected["keep"], error, 0.0)  # what takes the place of a blocked score is not computed
                allowed[name] = error + steps[name] / 2 if name in steps else error
        yield allowed
        for name in case["arrays"][stage]:
            of.centre[name] = chain.used[name]
            if name in chain.given:
                shown = _shown(sent, name, how) if how.half else 0.0
                if shown:  # it may have been rounded for us to see, and used as it was
                    own = of.of(name) + difference(chain.used[name], chain.expected[name])
                    size = np.abs(np.nan_to_num(chain.used[name], posinf=0.0, neginf=0.0))
                    of.bound[name] = np.fmin(shown * size + smallest(shown), own)  # 0 may be what was too small for the dtype
                else:
                    of.bound[name] = None  # it is what the next stages get
                if name in steps:
                    of.bound[name] = steps[name] / 2
                if name in ("weights", "dropped"):
                    of.sums = of.of(name).sum(axis=-1, keepdims=True)


def spread(case: dict, chain: Chain, how: Arithmetic, sent: Arrays, steps: Arrays) -> Iterator[Arrays]:
    """Standard deviation of each array in the arithmetic `how`, by name, where roundings are typical; all else as in `bounded`."""
    of = Spread(case, dict(chain.parameters), how.u, how.kept)
    for stage in COMPUTED:
        found, names = {}, case["arrays"][stage]
        of.centre |= {name: chain.expected[name] for name in names}
        with np.errstate(all="ignore"):
            TYPICAL[stage](of)
            for name in [name for name in names if chain.expected[name].dtype != bool]:
                shown = _shown(sent, name, how)
                more = rounding(finite(chain.expected[name]), shown) if shown > of.unit(name) else 0.0
                found[name] = np.sqrt(of.of(name) + more + (steps[name] ** 2 / 12 if name in steps else 0.0))
        yield found
        with np.errstate(all="ignore"):
            of.centre |= {name: chain.used[name] for name in names}
            for name in [name for name in names if name in chain.given]:
                known = rounding(finite(chain.used[name]), _shown(sent, name, how)) if how.half else np.zeros(chain.used[name].shape)
                of.take(name, known + steps[name] ** 2 / 12 if name in steps else known)


class Known:
    """Arrays by name that are computed stage after stage, no further than they are asked for."""

    def __init__(self, stages: Iterator[Arrays]):
        self.stages, self.found = stages, {}

    def __getitem__(self, name: str) -> np.ndarray:
        """The array `name`. Raises StopIteration if no stage has it."""
        while name not in self.found:
            self.found |= next(self.stages)
        return self.found[name]


def _shown(sent: Arrays, name: str, how: Arithmetic) -> float:
    """Unit roundoff of the dtype in which an array was sent, which may have rounded it once more; 0 where `how` has none so coarse."""
    unit = UNIT.get(sent[name].dtype.name, 0.0) if name in sent else 0.0
    return unit if unit <= UNIT[how.dtype] else 0.0


def unlimited(chain: Chain, rounded: Chain | None, how: Arithmetic, sent: Arrays, steps: Arrays) -> Known:
    """`bounded`, as if no score overflowed and none were rounded to be stored; all but `chain` as there."""
    free = chain.case | {"overflow": dict.fromkeys(chain.case["overflow"], np.inf)}
    wide = replace(how, kept={name: unit for name, unit in how.kept.items() if name not in INNER["scores"]})
    fitting = {name: steps[name] for name in steps if name in sent and how.printed}
    return Known(bounded(free, chain, rounded, wide, {name: sent[name] for name in sent if name not in INNER["scores"]}, fitting))


class Trial:
    """What was sent, held against one arithmetic."""

    def __init__(self, chain: Chain, rounded: Chain | None, how: Arithmetic, sent: Arrays, steps: Arrays):
        """chain: from the parameters as `how` has them. rounded: see `bounded`. sent: what the chain was taken up from, as it was sent.
        steps: see `bounded`."""
        self.case, self.chain, self.how, self.sent = chain.case, chain, how, sent
        self.steps = steps if how.printed else {}
        fitting = {name: self.steps[name] for name in self.steps if name in sent}
        self.bound = Known(bounded(self.case, chain, rounded, how, sent, fitting))
        self.sigma = Known(spread(self.case, chain, how, sent, fitting))

    def weigh(self, name: str, got: np.ndarray) -> Finding:
        """What `got` [any shape, float64 or bool] shows of the array `name`."""
        expected = self.chain.expected[name]
        if got.shape != expected.shape:
            return Finding("wrong", "certified", (), np.inf, 0.0, 0.0)
        got, wide, source = got.astype(np.float64), expected.astype(np.float64), source_of(name, self.chain.used)
        bound, grain = self.bound[name], coarsest(self.how.u, UNIT[self.how.dtype])
        if name not in self.steps:
            found = weigh(got, wide, bound, lambda: self.sigma[name], grain, source)
            return replace(found, word="undecided") if name == "weights" and found.word == "right" and self.unsummed(got) else found
        there = np.isfinite(self.steps[name])  # the others were left open
        step = self.steps[name][there]
        more = 0.0 if there.all() else step / 2  # an array with gaps leads nowhere, so it has no part in the bounds
        found = weigh(
            got[there],
            wide[there],
            bound[there] + more,
            lambda: np.hypot(self.sigma[name][there], more),
            grain,
            source,
            float(step.max(initial=0.0)),
        )
        return replace(found, index=tuple(int(i) for i in np.argwhere(there)[found.index[0]]))

    def unsummed(self, weights: np.ndarray) -> bool:
        """Whether a row of weights in half precision does not sum to 1, though its elements are within what errors of the scores may
        make of them; nothing is known of rows in which a sink has a part."""
        if not self.how.half or self.case["softmax"] != "plain" or "sinks" in self.case["shapes"]:
            return False
        stored = max(self.how.u, self.how.kept.get("weights", 0.0), _shown(self.sent, "weights", self.how))
        off = np.abs(weights.sum(axis=-1) - self.chain.expected["weights"].sum(axis=-1))
        return bool((off > reach_of_sums(weights, self.how.u, stored)).any())


class Trials:
    """All trials of a case; each chain is computed once."""

    def __init__(self, case: dict, parameters: Arrays, sent: Arrays, steps: Arrays):
        """steps: see `bounded`; NaN where an element was left open. What is of another shape, or has gaps, leads to no other array."""
        self.case, self.parameters, self.sent = case, parameters, sent
        self.steps = {name: step for name, step in steps.items() if sent[name].shape == tuple(case["shapes"][name])}
        gaps = {name for name, step in self.steps.items() if np.isnan(step).any()}
        self.fitting = {n: array for n, array in sent.items() if array.shape == tuple(case["shapes"][n]) and n not in gaps}
        self.wide = tuple(n for n, array in self.fitting.items() if array.dtype.name not in HALF and n not in self.steps)
        self.chains: dict[tuple, Chain] = {}
        self.made: dict[tuple, Trial] = {}

    def chain(self, how: Arithmetic, dtype: str, taken: tuple[str, ...], certain: float = np.inf) -> Chain:
        """The chain from parameters rounded to `dtype`, taken up at the arrays `taken`; scores beyond `certain` are infinite."""
        wide = in_float64(self.case, self.sent, how, certain)
        key = (wide["mask"]["fill"], dtype, taken, certain)
        if key not in self.chains:
            given = widened({name: self.sent[name] for name in taken})
            self.chains[key] = Chain(wide, _rounded(self.parameters, dtype), given)
        return self.chains[key]

    def chains_of(self, how: Arithmetic, taken: tuple[str, ...], certain: float = np.inf) -> tuple[Chain, Chain | None]:
        """`chain` from parameters as `how` has them, and from rounded ones where that makes a difference that it allows."""
        chain = self.chain(how, how.dtype if how.rounded else "float64", taken, certain)
        return chain, self.chain(how, how.dtype, taken, certain) if not how.half and how.dtype != "float64" else None

    def of(self, how: Arithmetic) -> list[Trial]:
        """Those of one arithmetic. An array in half precision, or in print, is no excuse for another one that is neither: it was either
        used as it was sent, or only rounded to be sent."""
        takes = [tuple(self.fitting)] + [self.wide] * (not how.half and not how.printed and len(self.wide) < len(self.fitting))
        found = []
        for taken in takes:
            key = (how.name, how.rounded, taken)
            if key not in self.made:
                sent = {name: self.sent[name] for name in taken}
                chain, other = self.chains_of(how, taken)
                if near_overflow(chain.case, chain.expected):
                    certain = certain_overflow(chain.case, chain.expected, unlimited(chain, other, how, sent, self.steps))
                    chain, other = self.chains_of(how, taken, certain)
                self.made[key] = Trial(chain, other, how, sent, self.steps)
            found.append(self.made[key])
        return found

    def is_rounded(self, dtype: str) -> bool:
        """Whether the parameters are numbers of `dtype` already."""
        rounded = _rounded(self.parameters, dtype)
        return all(np.array_equal(rounded[name], array, equal_nan=array.dtype != bool) for name, array in self.parameters.items())

    def best(self, name: str, asked: str) -> tuple[Finding, Trial]:
        """The first trial in which an array is right; else the first in which nothing can be told; else the last."""
        got, undecided = widened({name: self.sent[name]})[name], None
        hows = arithmetics(self.case, self.sent[name].dtype.name, self.sent, asked)
        if name in self.steps and asked == ANY:
            hows = [Arithmetic(f"numbers rounded to {_decimals(self.steps[name])} decimals", OURS, {}, "float64", printed=True)]
        for how in hows:
            if how.half and not how.rounded and self.is_rounded(how.dtype):
                continue  # the same as the one before
            for trial in self.of(how):
                finding = trial.weigh(name, got)
                if finding.word == "right":
                    return finding, trial
                if finding.word == "undecided":
                    undecided = undecided or (replace(finding, unless=how.name if how.name != hows[0].name else None), trial)
        return undecided or (finding, trial)


def _decimals(step: np.ndarray) -> str:
    """How many decimals, in words, the coarsest printed number has."""
    coarsest_step = float(np.nan_to_num(step).max(initial=0.0))
    return str(max(0, round(-np.log10(coarsest_step)))) if coarsest_step else "all"


def _rounded(parameters: Arrays, dtype: str) -> Arrays:
    """The parameters as somebody gets them who computes in `dtype`."""
    with np.errstate(over="ignore"):
        return {name: array if array.dtype == bool else array.astype(dtype).astype(np.float64) for name, array in parameters.items()}
