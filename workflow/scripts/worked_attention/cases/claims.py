"""The numbers that a source prints: whether a case's claims fit its arrays."""

from worked_attention.cases.literals import PRINTED, SPELLED, Report
from worked_attention.cases.options import filled, schema
from worked_attention.cases.words import did_you_mean, shown


def claims(raw: dict, shapes: dict[str, tuple], fail: Report) -> list[dict]:
    """The claims of a case as a flat list of {array, at, values}, each fitting its array; what does not fit goes to `fail`.

    raw: `claims` as the suite says it. shapes: of every array of the case, by name.
    """
    found = []
    for array, entries in raw.items():
        if array not in shapes:
            fail(("claims", array), f"this case computes no such array{did_you_mean(array, shapes)}")
            continue
        for i, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            where = ("claims", array, i) if isinstance(entries, list) else ("claims", array)
            claim, axes = filled(schema("suite")["$defs"]["claim"], entry), shapes[array]
            at, values = claim["at"], claim["values"]
            if len(at) > len(axes) or any(index >= n for index, n in zip(at, axes, strict=False)):
                fail((*where, "at"), f"{at} lies outside {array}, whose shape is {list(axes)}; count from 0")
            elif _printed(values, axes[len(at) :], (*where, "values"), fail):
                found.append({"array": array, "at": at, "values": values})
    return found


def _printed(values: object, axes: tuple, where: tuple, fail: Report) -> bool:
    """Whether `values` are printed numbers nested to the shape `axes`."""
    if axes:
        if not isinstance(values, list) or len(values) != axes[0]:
            got = f"a list of {len(values)}" if isinstance(values, list) else shown(values)
            fail(where, f"is {got}, should be a list of {axes[0]}, for what is left of the shape is {list(axes)}")
            return False
        return all([_printed(value, axes[1:], (*where, i), fail) for i, value in enumerate(values)])
    if not isinstance(values, str) or not (PRINTED.fullmatch(values) or values in SPELLED):
        fail(where, f'is {shown(values)}, should be a printed number in quotes, such as "0.2831"')
        return False
    return True
