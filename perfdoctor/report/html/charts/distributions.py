"""How long steady steps take, and their parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....evidence.steady import Selection
from ... import wording
from ...anatomy import LOOKS
from ...jsonform import plain
from .model import Chart
from .numbers import Floats, shortened

QUANTILES = (5, 25, 50, 75, 95)
"""Per cent: half of the steps lie in the box of a strip, nine of ten in its line."""
BINS = 60
"""At most: on a phone each is five pixels."""
FULL = 99.5
"""Per cent of the steps that the axis holds where others are far longer: one step of a minute would leave all the
others one bar."""
FAR = 1.5
"""Times the longest of those."""
SMALLEST = 0.005
"""Of the mean step: a smaller part has no strip."""


@dataclass(frozen=True, slots=True)
class _Strip:
    label: str
    hue: str
    """Of the page's palette; "" for the colour of text."""
    quantiles: list[float]
    longest: float


def distributions_chart(selection: Selection) -> Chart | None:
    """Of the steady steps. None where there is nothing to divide."""
    wall = selection.column("wall_us") / 1000
    parts = {name: selection.column(f"{name}_us") / 1000 for name in LOOKS if f"{name}_us" in selection.rows.arrays}
    rest = np.maximum(0.0, wall - sum(parts.values()))
    # In the order of the anatomy.
    of_step = {name: rest if name == "other" else parts[name] for name in LOOKS if name == "other" or name in parts}
    large = {name: ms for name, ms in of_step.items() if ms.mean() >= SMALLEST * wall.mean()}
    strips = [
        _strip("step", "", wall),
        *(_strip(LOOKS[name].label, LOOKS[name].style, ms) for name, ms in large.items()),
    ]
    top, low = float(np.percentile(wall, FULL)), float(wall.min())
    if wall.max() <= FAR * top:
        top = float(wall.max())
    if top <= low:
        return None
    shown = wall[wall <= top]
    counts, edges = np.histogram(shown, bins=int(min(BINS, max(5, np.sqrt(len(shown))))), range=(low, top))
    beyond = len(wall) - len(shown)
    q = dict(zip(QUANTILES, np.percentile(wall, QUANTILES), strict=True))
    spread = f"{wording.duration(float(q[5]))} to {wording.duration(float(q[95]))}"
    caption = (
        f"{wording.plural(len(wall), 'steady step')}: nine of ten take {spread}, half of them up to "
        f"{wording.duration(float(q[50]))}."
    )
    if beyond:
        are = "is" if beyond == 1 else "are"
        caption += f" {wording.plural(beyond, 'longer step')} {are} beyond the right end, up to "
        caption += f"{wording.duration(float(wall.max()))}."
    return Chart(
        title="How steady steps are spread",
        caption=caption,
        head=("part", *(f"{percent} %" for percent in QUANTILES), "longest"),
        rows=tuple(
            (strip.label, *(wording.duration(value) for value in (*strip.quantiles, strip.longest))) for strip in strips
        ),
        data=plain(
            {
                "from": shortened(low),
                "to": shortened(top),
                "counts": [int(count) for count in counts],
                "width": shortened(float(edges[1] - edges[0])),
                "beyond": beyond,
                "strips": strips,
            }
        ),
    )


def _strip(label: str, hue: str, ms: Floats) -> _Strip:
    quantiles = [shortened(float(value)) for value in np.percentile(ms, QUANTILES)]
    return _Strip(label, hue, quantiles, shortened(float(ms.max())))
