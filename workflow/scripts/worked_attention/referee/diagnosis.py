"""Which known mistake a wrong stage equals: each one that applies is made in its place and held against what was sent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, fill
from worked_attention.referee.mistakes.entry import Mistake
from worked_attention.referee.mistakes.library import LIBRARY, NUMBERED
from worked_attention.referee.mistakes.scores import scaled_by
from worked_attention.referee.relations import CLOSE, CLOSEST, EXPLAINED, Pair, largest_difference, related, short, size
from worked_attention.stages.catalogue import STAGES, TABLES

EQUALLY = 30.0  # mistakes that fit at most so many times worse than the best are listed as well
TOLD = 3  # so many equal candidates are told; pairs only if no more than these are equal
BESIDE = (*TABLES, "bias", "keep")  # arrays that no earlier stage leads to, and that do not say how the others are made
LARGE = 200_000  # scores; a factor is looked for in cases up to this size
FACTORS = 2.0 ** np.arange(-8, 8.25, 0.25)  # of the scores, between which one is looked for


@dataclass
class Diagnoser:
    """Looks for mistakes. `pairs` counts down how many pairs of them it may still try; those found earlier are tried first."""

    pairs: int = 4000
    seen: list[tuple[str, ...]] = field(default_factory=list)

    def diagnose(
        self, case: dict, parameters: Arrays, given: Arrays, expected: Arrays, stage: str, stages: set[str], u: float
    ) -> dict | None:
        """{mistakes: [{name, stage, sentence, remedy}], sentence, remedy, within, also: [sentence]} of what fits best, or None.

        Known mistakes come first, then how an array is related to ours (no mistakes then), then pairs of mistakes.

        case: in float64. given: what was sent, in float64. expected: what each stage should be. stage: the first that is wrong;
        stages: those in which the mistake may be. u: unit roundoff of the coarsest array that was sent, float32 or coarser.
        """
        trial = _Trial(case, parameters, given, expected, stage, stages, u)
        found = trial.fitting((mistake,) for mistake in [*trial.candidates, *trial.numbered])
        if trial.only_nan and not (found and _neutral(found[0][1])):
            found = trial.fitting(trial.neutral_pairs()) + found  # -inf for another fill, say, and NaN for a row of nothing else
        if not found and (relation := trial.relation()):
            return relation
        if found or trial.only_nan:
            return _told(found) if found else None
        return self._pairs(trial)

    def _pairs(self, trial: "_Trial") -> dict | None:
        """Two mistakes of different kinds that only together equal what was sent; those found in other cases first."""
        known = [tuple(LIBRARY[name] for name in names) for names in self.seen]
        found = trial.fitting(pair for pair in known if all(mistake in trial.candidates for mistake in pair))
        if not found:
            pairs = [(a, b) for i, a in enumerate(trial.candidates) for b in trial.candidates[i + 1 :] if a.kind != b.kind]
            tried = pairs[: max(self.pairs, 0)]
            self.pairs -= len(tried)
            found = trial.fitting(tried)
        if not found or len(found) > TOLD:
            return None
        self.seen.append(tuple(mistake.name for mistake in found[0][1]))
        return _told(found)


class _Trial:
    """One wrong submission and the mistakes that can be tried on it."""

    def __init__(self, case: dict, parameters: Arrays, given: Arrays, expected: Arrays, stage: str, stages: set[str], u: float):
        self.case, self.parameters, self.given, self.expected, self.stage, self.u = case, parameters, given, expected, stage, u
        self.close, self.explained = min(CLOSE * u, CLOSEST), EXPLAINED * (10 if u > 2.0**-24 else 1)
        self.first = min(stages, key=STAGES.index)
        names = [n for s in STAGES[STAGES.index(self.first) : STAGES.index(stage) + 1] for n in case["arrays"][s] if n in given]
        self.compared = [n for n in names if n not in BESIDE or self._differs(n)] or names
        self.sizes = {name: size(given[name]) for name in self.compared}
        self.before = dict(parameters)
        with np.errstate(all="ignore"):
            for earlier in STAGES[1 : STAGES.index(self.first)]:
                self.before |= fill(case, earlier, self.before, self._fitting(earlier))
            self.wrong = self._gap(expected)[0]
        self.only_nan = all(map(self._only_nan, self.compared))
        self.candidates = [m for m in LIBRARY.values() if set(m.changes) & stages and _tried(m.applies, case)]
        self.numbered = [m for n in NUMBERED.values() for m in _tried(n.mistakes, case) or [] if set(m.changes) & stages]
        self.scores_open = "scores" in stages and not any(name in given for name in case["arrays"]["scores"] if name not in BESIDE)

    def _differs(self, name: str) -> bool:
        got, want = self.given[name], self.expected[name]
        return got.shape != want.shape or largest_difference(got, want) > self.close * size(want)

    def _only_nan(self, name: str) -> bool:
        """Whether all that differs in an array is NaN, to which far more mistakes lead than can be told apart."""
        got, want = self.given[name], self.expected[name]
        return got.shape == want.shape and largest_difference(np.where(np.isnan(got), want, got), want) <= self.close * size(want)

    def _fitting(self, stage: str) -> Arrays:
        shapes = self.case["shapes"]
        return {n: self.given[n] for n in self.case["arrays"][stage] if n in self.given and self.given[n].shape == tuple(shapes[n])}

    def _gap(self, made: Arrays) -> tuple[float, float]:
        """(largest relative, largest absolute) difference between what was sent and what was made; infinite where they do not compare."""
        relative, absolute = 0.0, 0.0
        for name in self.compared:
            got, want = self.given[name], made[name]
            if got.shape != want.shape:
                return np.inf, np.inf
            largest = largest_difference(got, want)
            relative, absolute = max(relative, largest / self.sizes[name]), max(absolute, largest)
        return relative, absolute

    def made_by(self, mistakes: tuple[Mistake, ...]) -> Arrays:
        """All arrays up to the wrong stage, made with these mistakes from the submission's own stages before."""
        used, made = dict(self.before), {}
        for stage in STAGES[STAGES.index(self.first) : STAGES.index(self.stage) + 1]:
            go = STAGE[stage]
            for mistake in mistakes:
                go = _within(mistake, stage, go)
            with np.errstate(all="ignore"):
                result = go(self.case, dict(used))
            made |= result
            used |= result
            if stage != self.stage:
                used |= self._fitting(stage)
        return made

    def gap_of(self, mistakes: tuple[Mistake, ...]) -> tuple[float, float]:
        """`_gap` of what these mistakes make; infinite where they cannot be made."""
        return _tried(lambda: self._gap(self.made_by(mistakes))) or (np.inf, np.inf)

    def fitting(self, tries: Iterable[tuple[Mistake, ...]]) -> list[tuple[float, tuple[Mistake, ...]]]:
        """(absolute difference, mistakes) of those that equal what was sent, as well as the best does; neutral ones first, and alone where
        there is nothing but NaN to tell many apart by."""
        found = []
        for mistakes in tries:
            relative, absolute = self.gap_of(mistakes)
            if relative <= self.close and relative <= self.explained * self.wrong:
                found.append((relative, absolute, mistakes))
        best = min((relative for relative, _, _ in found), default=0.0)
        alike = max(EQUALLY * max(best, 2.0**-53), self.u if self.u > 2.0**-24 else 0.0)  # in half precision one rounding decides nothing
        equal = [(absolute, mistakes) for relative, absolute, mistakes in found if relative <= alike]
        if self.only_nan and len(equal) > TOLD:
            equal = [(absolute, mistakes) for absolute, mistakes in equal if _neutral(mistakes)]
        return sorted(equal, key=lambda entry: not _neutral(entry[1]))

    def neutral_pairs(self) -> list[tuple[Mistake, ...]]:
        """Two neutral mistakes of different kinds."""
        return [pair for pair in combinations(self.candidates, 2) if _neutral(pair) and pair[0].kind != pair[1].kind]

    def relation(self) -> dict | None:
        """What is told of how the first wrong array is related to ours, or of a factor on the scores behind it; None if neither is."""
        name = next((name for name in self.compared if self._differs(name)), None)
        if name is None:
            return None
        pair = Pair(self.case, name, self.given[name], self.expected[name], self.u, self.parameters | self.expected)
        if found := _tried(lambda: next(related(pair), None)):
            return _said(f"your {name} {found.sentence}", found.remedy, found.within)
        return self._factor_of_scores(pair) if self.scores_open else None

    def _factor_of_scores(self, pair: Pair) -> dict | None:
        """The one factor on the scaled scores that makes what was sent, looked for along `FACTORS` and their negatives."""
        elements = sum(self.given[name].size for name in self.compared)
        if np.prod(self.case["shapes"]["masked"]) > LARGE or not pair.enough(elements - 1):
            return None

        def gap(factor: float) -> float:
            return self.gap_of((scaled_by(factor),))[0]

        grid = np.concatenate([-FACTORS[::-1], FACTORS])
        gaps = [gap(factor) for factor in grid]
        best = int(np.argmin(gaps))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        for _ in range(60):  # by thirds
            one, other = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, other) if gap(one) <= gap(other) else (one, high)
        factor = (low + high) / 2
        found = self.fitting([(scaled_by(factor),)])
        if not found or abs(factor - 1) <= self.close:
            return None
        number = short(factor)
        return _said(
            f"what you sent is what follows from scores {number} times ours", f"Look for a factor of {number} on the scores.", found[0][0]
        )


def _neutral(mistakes: tuple[Mistake, ...]) -> bool:
    return all(mistake.neutral for mistake in mistakes)


def _tried(function: Callable, *arguments: object) -> object:
    """What `function` returns; None if anything goes wrong, for a trial may cost no verdict: mistakes meet arrays that they do not fit."""
    try:
        return function(*arguments)
    except Exception:
        return None


def _within(mistake: Mistake, stage: str, go):
    """`go` with the mistake in it."""
    return lambda case, arrays: mistake.run(stage, case, arrays, go)


def _told(found: list[tuple[float, tuple[Mistake, ...]]]) -> dict:
    """What is said of the equal candidates that were found, the first one in full."""
    within, best = found[0]
    told = [_words(mistakes) for _, mistakes in found[:TOLD]]
    more = f", or {len(found) - TOLD} more" if len(found) > TOLD else ""
    remedies = [" ".join(dict.fromkeys(mistake.remedy for mistake in mistakes)) for _, mistakes in found[:TOLD]]
    said = _said(f"what you sent equals: {', or '.join(told)}{more}", " Or: ".join(dict.fromkeys(remedies)), within)
    mistakes = [{"name": m.name, "stage": m.stage, "sentence": m.sentence, "remedy": m.remedy} for m in best]
    return said | {"mistakes": mistakes, "also": [_words(mistakes) for _, mistakes in found[1:]]}


def _said(sentence: str, remedy: str, within: float) -> dict:
    return {"mistakes": [], "sentence": f"{sentence} (within {_rounded_up(within)})", "remedy": remedy, "within": within, "also": []}


def in_half(dtype: str, contract: str) -> dict:
    """What is told of wide arrays that hold nothing but numbers of a half precision, `dtype`, and are right there, in this `contract`."""
    remedy = "Look for a setting that computes in fewer bits: of the inference precision, of matrix products, autocast."
    return {
        "mistakes": [],
        "sentence": f"all numbers are those of {dtype}, and right in {contract}",
        "remedy": remedy,
        "within": 0.0,
        "also": [],
    }


def _words(mistakes: tuple[Mistake, ...]) -> str:
    return "; and ".join(mistake.sentence for mistake in mistakes)


def _rounded_up(number: float) -> str:
    """The power of ten above `number`; 0 as it is."""
    return "0" if number == 0 else f"1e{int(np.floor(np.log10(number))) + 1}"
