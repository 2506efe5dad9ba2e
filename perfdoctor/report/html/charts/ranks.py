"""Ranks by parts of the step."""

from __future__ import annotations

from ....evidence.model import Communication
from ... import wording
from ...anatomy import LOOKS
from .model import Chart
from .numbers import shortened

MOST_ROWS = 64
"""Of the table: of more ranks it has the latest ones. A chart has them all."""
SMALLEST = 0.005
"""Of the step, in the rank where it is largest: a smaller part is not drawn."""
LATE = 0.01
"""Of the step, at least: by less a rank is late by chance, and no name is worth the reader's time."""


def ranks_chart(together: Communication) -> Chart | None:
    """None where there is nobody to compare."""
    ranks = together.ranks
    if len(ranks) < 2:
        return None
    parts = [times.parts.as_dict() for times in ranks]
    whole = max(times.parts.total for times in ranks)
    shown = [name for name in LOOKS if max(part.get(name, 0.0) for part in parts) > SMALLEST * whole]
    late = together.late if together.late_low_ms > LATE * whole else None
    latest = sorted(ranks, key=lambda times: -times.own_ms)[:MOST_ROWS]
    left_out = f" The table has the {MOST_ROWS} with most work of their own." if len(ranks) > MOST_ROWS else ""
    return Chart(
        title=f"{len(ranks):,} ranks beside each other",
        caption=_caption(together, late) + left_out,
        head=("rank", *(LOOKS[name].label for name in shown), "own work", "last in"),
        rows=tuple(
            (
                f"{times.rank}{', late' if times.rank == late else ''}",
                *(wording.aligned(times.parts.as_dict()[name], whole) for name in shown),
                wording.aligned(times.own_ms, whole),
                wording.share(times.late_share),
            )
            for times in sorted(latest, key=lambda times: times.rank)
        ),
        data={
            "ranks": [times.rank for times in ranks],
            "late": late,
            "parts": [LOOKS[name].label for name in shown],
            "ms": [[shortened(part[name]) for part in parts] for name in shown],
        },
    )


def _caption(together: Communication, late: int | None) -> str:
    rank = together.late_rank
    last = f"comes last in {wording.share(rank.late_share)} of {wording.plural(together.steps, 'step')}"
    if late is None:
        return f"No rank is late by more than chance: rank {rank.rank}, for which the others wait most, {last}."
    waits = max(together.waits_ms(times.rank) for times in together.others)
    return (
        f"Rank {late} is late: its own work takes {wording.duration(rank.own_ms)} per step, and others wait up to "
        f"{wording.duration(waits)} per step for it. It {last}."
    )
