"""A rotation as a drawing: a pair of columns as an arrow in the plane, before and after, and the angle between the two."""

import math

from worked_attention.pages.blocks import Picture
from worked_attention.pages.svg import picture

MIDDLE, LONGEST, ARC = 50, 42, 17  # of the drawing: its middle, the longer arrow, and how far from the middle the angle is drawn
Point = tuple[float, float]


def turn(before: Point, after: Point, angle: float, said: str, caption: str) -> Picture:
    """The arrow `before` turned by `angle` (in radians, counterclockwise) into `after`; `said` is for readers who do not see it."""
    scale = LONGEST / (max(math.hypot(*before), math.hypot(*after)) or 1.0)
    start = math.atan2(before[1], before[0])
    rest = math.fmod(angle, 2 * math.pi)  # what is left of whole turns
    ends = [place((ARC * math.cos(a), ARC * math.sin(a))) for a in (start, start + rest)]
    flags = f"{int(abs(rest) > math.pi)} {int(rest < 0)}"
    parts = [
        f'<path d="M4 {MIDDLE}H{2 * MIDDLE - 4}M{MIDDLE} 4V{2 * MIDDLE - 4}" style="stroke:var(--rule)"/>',
        f'<path d="M{ends[0]}A{ARC} {ARC} 0 {flags} {ends[1]}" style="stroke:var(--warn);stroke-width:2;fill:none"/>',
        arrow(before, scale, "var(--soft)", 'stroke-dasharray="4 3"'),
        arrow(after, scale, "var(--link)", 'stroke-width="2.5"'),
    ]
    return picture(2 * MIDDLE, 2 * MIDDLE, said, parts, caption)


def arrow(point: Point, scale: float, colour: str, looks: str) -> str:
    """From the middle to `point`, with a dot at its tip."""
    tip = place((scale * point[0], scale * point[1]))
    x, y = tip.split()
    return f'<path d="M{MIDDLE} {MIDDLE}L{tip}" {looks} style="stroke:{colour}"/><circle cx="{x}" cy="{y}" r="3.5" style="fill:{colour}"/>'


def place(point: Point) -> str:
    """A point of the plane as a place of the drawing, whose second axis points down."""
    return f"{MIDDLE + point[0]:.1f} {MIDDLE - point[1]:.1f}"
