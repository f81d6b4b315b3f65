"""Which known mistake a wrong stage equals: each one that applies is made in its place and held against what was sent."""

from dataclasses import dataclass, field

import numpy as np

from worked_attention.referee.chain import STAGE, Arrays, fill
from worked_attention.referee.mistakes.entry import Mistake
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.stages.catalogue import STAGES

CLOSE = 100.0  # what was sent equals a mistake's result if they differ by at most so many unit roundoffs of the largest element
CLOSEST = 0.04  # and by at most this part of it, where a hundred roundings of bfloat16 would be most of it
EXPLAINED = 0.02  # and by at most this part of the difference from the right result; in half precision by ten times that
EQUALLY = 30.0  # mistakes that fit at most so many times worse than the best are listed as well


@dataclass
class Diagnoser:
    """Looks for mistakes. `pairs` counts down how many pairs of them it may still try; those found earlier are tried first."""

    pairs: int = 4000
    seen: list[tuple[str, ...]] = field(default_factory=list)

    def diagnose(
        self, case: dict, parameters: Arrays, given: Arrays, expected: Arrays, stage: str, stages: set[str], u: float
    ) -> dict | None:
        """{mistakes: [{name, stage, sentence, remedy}], sentence, remedy, within, also: [sentence]} of what fits best, or None.

        case: in float64. given: what was sent, in float64. expected: what each stage should be. stage: the first that is wrong;
        stages: those in which the mistake may be. u: unit roundoff of the coarsest array that was sent, float32 or coarser.
        """
        trial = _Trial(case, parameters, given, expected, stage, stages, u)
        singles = [(mistake,) for mistake in trial.candidates]
        found = trial.fitting(singles)
        if not found:
            known = [tuple(LIBRARY[name] for name in names) for names in self.seen]
            found = trial.fitting([pair for pair in known if all(mistake in trial.candidates for mistake in pair)])
        if not found:
            pairs = [(a, b) for i, a in enumerate(trial.candidates) for b in trial.candidates[i + 1 :]]
            tried = pairs[: max(self.pairs, 0)]
            self.pairs -= len(tried)
            found = trial.fitting(tried)
            if found and len(found) <= 3:
                self.seen.append(tuple(mistake.name for mistake in found[0][1]))
        if not found:
            return None
        within, best = found[0]
        return {
            "mistakes": [{"name": m.name, "stage": m.stage, "sentence": m.sentence, "remedy": m.remedy} for m in best],
            "sentence": f"what you sent equals: {_words(best)} (within {_rounded_up(within)})",
            "remedy": " ".join(dict.fromkeys(m.remedy for m in best)),
            "within": within,
            "also": [_words(mistakes) for _, mistakes in found[1:6]],
        }


class _Trial:
    """One wrong submission and the mistakes that can be tried on it."""

    def __init__(self, case: dict, parameters: Arrays, given: Arrays, expected: Arrays, stage: str, stages: set[str], u: float):
        self.case, self.parameters, self.given, self.expected, self.stage = case, parameters, given, expected, stage
        self.close, self.explained = min(CLOSE * u, CLOSEST), EXPLAINED * (10 if u > 2.0**-24 else 1)
        self.first = min(stages, key=STAGES.index)
        self.compared = [n for s in STAGES[STAGES.index(self.first) : STAGES.index(stage) + 1] for n in case["arrays"][s] if n in given]
        self.sizes = {name: _size(given[name]) for name in self.compared}
        self.before = dict(parameters)
        with np.errstate(all="ignore"):
            for earlier in STAGES[1 : STAGES.index(self.first)]:
                self.before |= fill(case, earlier, self.before, self._fitting(earlier))
            self.wrong = self._gap(expected)[0]
        self.candidates = [m for m in LIBRARY.values() if set(m.changes) & stages and self._applies(m)]

    def _fitting(self, stage: str) -> Arrays:
        shapes = self.case["shapes"]
        return {n: self.given[n] for n in self.case["arrays"][stage] if n in self.given and self.given[n].shape == tuple(shapes[n])}

    def _applies(self, mistake: Mistake) -> bool:
        return mistake.applies(self.case)

    def _gap(self, made: Arrays) -> tuple[float, float]:
        """(largest relative, largest absolute) difference between what was sent and what was made; infinite where they do not compare."""
        relative, absolute = 0.0, 0.0
        for name in self.compared:
            got, want = self.given[name], made[name]
            if got.shape != want.shape:
                return np.inf, np.inf
            off = np.abs(got.astype(np.float64) - want.astype(np.float64))
            off = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, off)
            largest = float(off.max(initial=0.0))
            if not np.isfinite(largest):
                return np.inf, np.inf
            relative, absolute = max(relative, largest / self.sizes[name]), max(absolute, largest)
        return relative, absolute

    def made_by(self, mistakes: tuple[Mistake, ...]) -> Arrays:
        """All arrays up to the wrong stage, computed with these mistakes from the submission's own stages before."""
        used, made = dict(self.before), {}
        for stage in STAGES[STAGES.index(self.first) : STAGES.index(self.stage) + 1]:
            go = STAGE[stage]
            for mistake in mistakes:
                go = _within(mistake, stage, go)
            result = go(self.case, dict(used))
            made |= result
            used |= result
            if stage != self.stage:
                used |= self._fitting(stage)
        return made

    def fitting(self, tries: list[tuple[Mistake, ...]]) -> list[tuple[float, tuple[Mistake, ...]]]:
        """(absolute difference, mistakes) of those that equal what was sent, as well as the best does; in the order of the library."""
        found = []
        for i, mistakes in enumerate(tries):
            try:
                with np.errstate(all="ignore"):
                    relative, absolute = self._gap(self.made_by(mistakes))
            except (ValueError, IndexError, KeyError):  # two mistakes that cannot be made together
                continue
            if relative <= self.close and relative <= self.explained * self.wrong:
                found.append((relative, absolute, i))
        best = min((relative for relative, _, _ in found), default=0.0)
        return [(absolute, tries[i]) for relative, absolute, i in found if relative <= EQUALLY * max(best, 2.0**-53)]


def _within(mistake: Mistake, stage: str, go):
    """`go` with the mistake in it."""
    return lambda case, arrays: mistake.run(stage, case, arrays, go)


def _size(array: np.ndarray) -> float:
    """Largest finite element, or 1 where there is none but 0."""
    finite = np.abs(array[np.isfinite(array)]) if array.dtype != bool else np.ones(1)
    return float(finite.max(initial=0.0)) or 1.0


def _words(mistakes: tuple[Mistake, ...]) -> str:
    return "; and ".join(mistake.sentence for mistake in mistakes)


def _rounded_up(number: float) -> str:
    """The power of ten above `number`; 0 as it is."""
    return "0" if number == 0 else f"1e{int(np.floor(np.log10(number))) + 1}"
