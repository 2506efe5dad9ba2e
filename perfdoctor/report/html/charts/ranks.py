"""Ranks by parts of the step."""

from __future__ import annotations

from collections.abc import Mapping

from ....evidence.model import Communication, Missing, Parts
from ... import wording
from ...anatomy import LOOKS
from ...jsonform import plain
from .model import Chart
from .numbers import shortened

MOST_ROWS = 64
"""Of the table: of more ranks it has the latest ones."""
MOST_DRAWN = 4096
"""So that neighbours of a node stand beside each other. Of more ranks every so many-th is drawn, besides those of the
table: a page of megabytes would show no more."""
SMALLEST = 0.005
"""Of the step, in the rank where it is largest: a smaller part is not drawn."""
LATE = 0.01
"""Of the step, at least: by less a rank is late by chance, and no name is worth the reader's time."""


def ranks_chart(parts: Mapping[int, Parts], together: Communication | Missing) -> Chart | None:
    """`parts` of the steady step by rank; `together` says who waits for whom, where that was seen. None where there is
    nobody to compare."""
    if len(parts) < 2:
        return None
    own = {rank: parts[rank].total - parts[rank].communication for rank in sorted(parts)}
    latest = sorted(own, key=lambda rank: -own[rank])[:MOST_ROWS]
    every = -(-len(own) // MOST_DRAWN)
    ranks = sorted({*list(own)[::every], *latest})
    ms = {rank: parts[rank].as_dict() for rank in ranks}
    whole = max(of_rank.total for of_rank in parts.values())
    shown = [name for name in LOOKS if max(of_rank.get(name, 0.0) for of_rank in ms.values()) > SMALLEST * whole]
    late = _late(together, whole)
    last = {} if isinstance(together, Missing) else {times.rank: times.late_share for times in together.ranks}
    left_out = f" The table has the {MOST_ROWS} with most work of their own." if len(own) > MOST_ROWS else ""
    if every > 1:
        left_out = f" Drawn is one rank in {every}, and those of the table.{left_out}"
    return Chart(
        title=f"{len(own):,} ranks beside each other",
        caption=_caption(together, late) + left_out,
        head=("rank", *(LOOKS[name].label for name in shown), "own work", *(("last in",) if last else ())),
        rows=tuple(
            (
                f"{rank}{', late' if rank == late else ''}",
                *(wording.aligned(ms[rank][name], whole) for name in shown),
                wording.aligned(own[rank], whole),
                *((wording.share(last[rank]),) if last else ()),
            )
            for rank in sorted(latest)
        ),
        data=plain(
            {
                "ranks": ranks,
                "late": late,
                "parts": [LOOKS[name].label for name in shown],
                "ms": [[shortened(ms[rank][name]) for rank in ranks] for name in shown],
            }
        ),
    )


def _late(together: Communication | Missing, whole_ms: float) -> int | None:
    if isinstance(together, Missing) or together.late_low_ms <= LATE * whole_ms:
        return None
    return together.late


def _caption(together: Communication | Missing, late: int | None) -> str:
    if isinstance(together, Missing):
        return f"Whether a rank is late cannot be told: {wording.clean(together.reason)}."
    rank = together.late_rank
    last = f"comes last in {wording.share(rank.late_share)} of {wording.plural(together.steps, 'step')}"
    if late is None:
        return f"No rank is late by more than chance: rank {rank.rank}, for which the others wait most, {last}."
    waits = max(together.waits_ms(times.rank) for times in together.others)
    return (
        f"Rank {late} is late: its own work takes {wording.duration(rank.own_ms)} per step, and others wait up to "
        f"{wording.duration(waits)} per step for it. It {last}."
    )
