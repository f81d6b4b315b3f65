"""The exact numbers of a case, in slices: some queries of one head of one sequence at a time, so that it needs little memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from worked_attention.referee.truth import backward
from worked_attention.referee.truth.balls import BITS, Balls, Filed, Settled, balls, settle, working_bits
from worked_attention.referee.truth.contexts import concat, contexts
from worked_attention.referee.truth.outputs import outputs
from worked_attention.referee.truth.parts import Part, axes, blocks, place
from worked_attention.referee.truth.projections import STEPS, columns, entering, inputs, projected
from worked_attention.referee.truth.scores import scores
from worked_attention.referee.truth.weights import weights
from worked_attention.stages.catalogue import BOOLEAN, COMPUTED

HEAD = {"scores": scores, "weights": weights, "contexts": contexts}  # stages of one head
TOKENS, CELLS = 128, 2**14  # queries whose heads are put side by side, and scores of a head, at a time
KEYS = ("Lk", "Lc")  # the last axis of arrays of scores


class Found(dict[str, Settled]):
    """What is told, by name; midpoints of what has a row of keys for each query lie in files in the folder `scratch`, if one is given."""

    def __init__(self, scratch: Path | None):
        self.scratch = scratch

    def begin(self, name: str, shape: tuple[int, ...]) -> None:
        """Room for array `name`."""
        known = name in BOOLEAN
        dtype = np.dtype(bool if known else np.float64)
        filed = self.scratch is not None and axes(name)[-1] in KEYS
        middle = Filed(self.scratch / name, dtype, tuple(shape)) if filed else np.empty(shape, dtype)
        self[name] = Settled(middle, np.zeros(shape), rounded=not known)


def truth(case: dict, arrays: dict[str, np.ndarray], scratch: Path | None = None) -> dict[str, Settled]:
    """Every array of every stage by name, with midpoint and radius, from the exact parameters of the case; see `balls.Settled`.

    arrays: at least the case's parameters, as stages.parameters makes them. scratch: an empty folder, to be kept as long as what is
    returned, for scores and weights that take too much memory. `keep` is boolean, with radius 0. A number that 4096 bits do not certify
    has the midpoint NaN and an infinite radius. Raises ValueError for an empty row where the case says `error`.
    """
    return _certified(case, {name: arrays[name] for name in case["arrays"]["parameters"]}, COMPUTED, scratch)


def stage_truth(case: dict, stage: str, arrays: dict[str, np.ndarray]) -> dict[str, Settled]:
    """The arrays of one stage as `truth` gives them, recomputed from `arrays`, which are taken as exact."""
    made = set(case["arrays"][stage]) - set(case["arrays"]["parameters"])
    return _certified(case, {name: array for name, array in arrays.items() if name not in made}, (stage,))


def _certified(case: dict, given: dict[str, np.ndarray], stages: tuple[str, ...], scratch: Path | None = None) -> dict[str, Settled]:
    """With as many bits as it takes, queries that are certified but once. What is NaN where all bits do not do may be so for that reason,
    and is not certified either.

    Raises NotImplementedError where the case has an array that has no formula here.
    """
    wanted = [name for stage in stages for name in case["arrays"][stage]]
    found = Found(scratch)
    found |= {name: _unchanged(given[name]) for name in wanted if name in given}
    unsure = _queries(case)
    for bits in BITS:
        with working_bits(bits):
            _compute(case, given, stages, found, unsure)
        if missing := [name for name in wanted if name not in found]:
            raise NotImplementedError(f"truth has no formula for {', '.join(missing)}")
        if all(settled.wide.max(initial=0.0) < np.inf for settled in found.values()):
            break
        unsure = _unsure(case, found)
    else:
        for name, x in found.items():
            if (unknown := np.isnan(x.middle[...])).any():
                found[name] = replace(x, wide=np.where(unknown, np.inf, x.wide))
    return {name: found[name] for name in wanted}


def _queries(case: dict) -> list[tuple[int, slice]]:
    """Every sequence and block of its queries."""
    return [(b, rows) for b in range(case["dims"].get("B", 1)) for rows in blocks(case["dims"]["Lq"], TOKENS)]


def _unsure(case: dict, found: Found) -> list[tuple[int, slice]]:
    """Those of `_queries` of which something is not certified; all if it is something that they share, or if there are gradients."""
    anything = {name: np.isinf(settled.wide) for name, settled in found.items() if np.isinf(settled.wide).any()}
    if case["backward"] or not all("Lq" in axes(name) for name in anything):
        return _queries(case)
    group = case["heads"] // case["kv_heads"]

    def of(b: int, rows: slice) -> bool:
        return any(there[place(axes(name), there.shape, group, {"b": b, "rows": rows})].any() for name, there in anything.items())

    return [(b, rows) for b, rows in _queries(case) if of(b, rows)]


def _compute(case: dict, given: dict[str, np.ndarray], stages: tuple[str, ...], found: Found, queries: list[tuple[int, slice]]) -> None:
    """Note the arrays of these stages in `found`, with the bits that balls have now, from those that are given: of these `queries`."""
    shared: dict[str, Balls] = {}  # gradients by weights and biases, to which every sequence adds
    for b in sorted({b for b, _ in queries}):
        part = Part(case, given).cut(b=b)
        if "projections" in stages:
            made = inputs(case, part.cut())  # a part of its own, so that balls of x do not stay
            _note(case, found, made, b=b)
            part.add(made)
            for name in "qkv":
                part.add(_projected(case, part.cut(), name, found))
        entered = _attended(case, part, stages, found, shared, [rows for other, rows in queries if other == b])
        if entered:
            made = backward.of_projections(case, part, entered)
            _share(shared, {name: made.pop(name) for name in list(made) if "B" not in axes(name)})
            _note(case, found, made, b=b)
    _note(case, found, shared)


def _projected(case: dict, part: Part, name: str, found: Found) -> dict[str, Balls]:
    """Queries, keys or values of one sequence, and of their forms the last, which is used; gradients go back through all of them."""
    made = projected(case, part, name)
    _note(case, found, made, b=part.b)
    forms = [form for form in STEPS[name] if form in made]
    return made if case["backward"] else {form: made[form] for form in forms[-1:]}


def _attended(
    case: dict, part: Part, stages: tuple[str, ...], found: Found, shared: dict[str, Balls], queries: list[slice]
) -> dict[str, Balls]:
    """Scores to outputs of some queries of one sequence, and the way back, if there is one, to gradients by what entered scores and
    contexts (returned)."""
    back = "backward" in stages and case["backward"] is not None
    entered = {name: balls(np.zeros(_entering_shape(case, name))) for name in "qkv"} if back else {}
    forward = [stage for stage in stages if case["arrays"][stage]]
    for rows in queries:
        tokens = part.cut(rows=rows)
        made = backward.of_outputs(case, tokens) if back else {}
        tokens.add(made)
        by_head = [_head(case, tokens, h, forward, found, entered) for h in range(case["heads"])]
        if "contexts" in forward:
            made |= concat(by_head)
            tokens.add(made)
        if "outputs" in forward:
            made |= outputs(case, tokens)
        if back and "w_o" in part:
            _share(shared, backward.of_linear("o", made["d_output"], tokens["concat"]))
        _note(case, found, made, b=part.b, rows=rows)
    return entered


def _head(case: dict, tokens: Part, h: int, forward: list[str], found: Found, entered: dict[str, Balls]) -> Balls | None:
    """Scores and weights of one head, and the contexts [n, d_v] that are returned; gradients are added to those in `entered`, if any."""
    head, by_rows = tokens.cut(h=h), []
    for name in [name for name in "kv" if f"{name}_heads" in head]:
        entering(head, name)  # they become balls once for all rows
    if entered:
        head.add({"d_contexts": columns(tokens["d_concat"], case["heads"])[h]})
    for rows in blocks(len(head.queries), max(1, CELLS // case["dims"]["Lk"])):
        part, made = head.cut(rows=rows), {}
        for stage in [stage for stage in HEAD if stage in forward]:
            new = HEAD[stage](case, part)
            part.add(new)
            made |= new
        numbers = slice(part.queries.start, part.queries.stop)
        if entered:
            new, by_entered = backward.of_head(case, part)
            made |= new
            for name, slope in by_entered.items():
                entered[name][(h, numbers) if name == "q" else h // (case["heads"] // case["kv_heads"])] += slope
        _note(case, found, made, b=part.b, h=h, rows=numbers)
        by_rows.append(made.get("contexts"))
    return np.vstack(by_rows) if "contexts" in forward else None


def _entering_shape(case: dict, name: str) -> tuple[int, int, int]:
    """Shape of the queries, keys or values of one sequence that enter scores and contexts."""
    dims = case["dims"]
    return (
        *{"q": (dims["H"], dims["Lq"]), "k": (dims["H_kv"], dims["Lk"]), "v": (dims["H_kv"], dims["Lk"])}[name],
        dims["d_v" if name == "v" else "d_k"],
    )


def _share(shared: dict[str, Balls], made: dict[str, Balls]) -> None:
    for name, value in made.items():
        shared[name] = shared[name] + value if name in shared else value


def _unchanged(array: np.ndarray) -> Settled:
    """What is given, in float64 and without a copy if it is that already; not to be written to."""
    view = array.astype(np.float64, copy=False).view()
    view.flags.writeable = False
    return Settled(view, np.zeros(array.shape), rounded=False)


def _note(case: dict, found: Found, made: dict[str, np.ndarray], **where: int | slice) -> None:
    """Write what was `made` of a part to its place; arrays that are one and the same (`masked` without a mask is `scaled`) stay so."""
    names: dict[int, str] = {}
    for name in [name for name in made if name in case["shapes"] and name not in case["arrays"]["parameters"]]:
        twin = names.setdefault(id(made[name]), name)
        if twin != name:
            found[name] = found[twin]
            continue
        if name not in found:
            found.begin(name, case["shapes"][name])
        whole, part = found[name], settle(made[name])
        at = place(axes(name), whole.middle.shape, case["heads"] // case["kv_heads"], where)
        whole.middle[at] = part.middle
        if part.wide.any() or whole.wide[at].any():  # what is never written takes no memory
            whole.wide[at] = part.wide
