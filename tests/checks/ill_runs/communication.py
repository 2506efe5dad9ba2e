"""Two ranks beside each other."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import (
    ALL_GATHER,
    GRADIENTS,
    PIPELINE,
    REDUCE_SCATTER,
    Collective,
    Communication,
    Evidence,
    Parts,
    RankTimes,
    ReducedModel,
    SharedData,
    Site,
    Turns,
)

LINE = Site("train.py", 44, "main")
LOADER = Site("train.py", 30, "main")
_OWN = Parts(input_wait=0.3, forward=8.0, backward=14.0, optimizer=2.0, gc=0.1, other=0.6)
MODEL = ReducedModel(bucket_bytes=(1 << 20, 24 << 20), broadcast_buffers=1)


def times(rank: int, wait_ms: float = 0.5, late_share: float = 0.5, **own: float) -> RankTimes:
    """A rank with more or less of some parts than usual."""
    return RankTimes(rank, with_(_OWN, communication=wait_ms, **own), 24.0, 0.2, late_share, 32.0, 4096.0)


def together(
    *ranks: RankTimes, sending_ms: float = 0.5, calls: tuple[Collective, ...] = (), **more: Any
) -> Communication:
    """Ranks whose steps are as long as each other's; the last is late by what the one before it waits more."""
    compared = ranks or (times(0), times(1))
    late = compared[-1]
    late_ms = min(other.parts.communication for other in compared[:-1]) - late.parts.communication
    seen = Communication(
        steps=150,
        ranks=compared,
        late=late.rank,
        late_ms=late_ms,
        late_low_ms=0.95 * late_ms,
        late_high_ms=1.05 * late_ms,
        exposed_ms=sending_ms,
        collectives=(Collective(GRADIENTS, None, 1.0, sending_ms, sending_ms), *calls),
        model=MODEL,
    )
    return with_(seen, **more) if more else seen


def two_ranks(seen: Communication | None = None, rank: int = 1, **changes: Any) -> Evidence:
    """Healthy but for what is changed: one rank of two."""
    seen = seen or together()
    mine = next(one for one in seen.ranks if one.rank == rank)
    return with_(
        healthy(),
        rank=rank,
        job__world_size=2,
        job__local_ranks=2,
        step=step(mine.parts),
        communication=seen,
        **changes,
    )


def late(rank: int = 1, by_ms: float = 10.0, part: str = "backward") -> Evidence:
    """Rank 1 has so much more of its own, and rank 0 waits for it."""
    usual = _OWN.as_dict()[part]
    return two_ranks(together(times(0, 0.5 + by_ms, 0.0), times(1, 0.5, 1.0, **{part: usual + by_ms})), rank)


def collecting(kind: str, ms: float = 8.0, site: Site | None = LINE, calls_per_step: float = 1.0) -> Evidence:
    """Both ranks wait so long in collectives of this kind."""
    call = Collective(kind, site, calls_per_step, ms + 0.1, ms)
    return two_ranks(together(times(0, ms + 0.5), times(1, ms + 0.5), sending_ms=ms + 0.5, calls=(call,)))


def reducing(ms: float = 8.0, bucket_bytes: tuple[int, ...] = MODEL.bucket_bytes) -> Evidence:
    """Both ranks wait so long for the reduction of gradients."""
    return two_ranks(together(times(0, ms), times(1, ms), sending_ms=ms, model=with_(MODEL, bucket_bytes=bucket_bytes)))


def late_node(by_ms: float = 10.0, part: str = "backward", rank: int = 3, **changes: Any) -> Evidence:
    """Both ranks of node b have so much more of their own, and those of node a wait for them."""
    usual = _OWN.as_dict()[part]
    waiting = [with_(times(one, 0.5 + by_ms, 0.0), node="a") for one in (0, 1)]
    late = [with_(times(one, 0.5, 0.5, **{part: usual + by_ms}), node="b", **changes) for one in (2, 3)]
    seen = together(*waiting, *late, beside=(2,), late_ms=by_ms, late_low_ms=0.95 * by_ms, late_high_ms=1.05 * by_ms)
    return with_(two_ranks(seen, rank), job__world_size=4, job__local_ranks=4)


def by_turns(ms: float = 6.0, part: str = "gc", rank: int = 1, **changes: Any) -> Evidence:
    """Two ranks take twice as long as usual now and then, one as often as the other."""
    turns = Turns(ranks=(1, 0), ms=ms, low_ms=0.9 * ms, share=0.4, part=part, part_ms=0.9 * ms)
    return two_ranks(together(times(0, ms), times(1, ms), turns=with_(turns, **changes)), rank)


def sharding(groups: int = 16, ms: float = 9.0, bytes_each: int = 16_640) -> Evidence:
    """Both ranks wait so long for parameters and gradients, gathered and reduced group by group."""
    calls = (
        Collective(ALL_GATHER, None, 2.0 * groups, 2 / 3 * ms, 2 / 3 * ms),
        Collective(REDUCE_SCATTER, None, 1.0 * groups, ms / 3, ms / 3),
    )
    seen = together(times(0, ms), times(1, ms), sending_ms=ms, model=None, collectives=calls)
    return two_ranks(with_(seen, shard_bytes=(bytes_each,) * groups, resharded=groups))


def pipeline(bubble_ms: float = 8.0, by_ms: float = 10.0) -> Evidence:
    """Two stages, of which the last has more to do and waits less."""
    first = with_(times(0, bubble_ms + by_ms), alike=0)
    last = with_(times(1, bubble_ms, backward=14.0 + by_ms), alike=1)
    calls = (Collective(PIPELINE, None, 16.0, bubble_ms, bubble_ms),)
    more = {"late_ms": 0.0, "late_low_ms": 0.0, "late_high_ms": 0.0, "model": None, "stages": 2}
    return two_ranks(together(first, last, sending_ms=bubble_ms, collectives=calls, **more))


def shared_data(samples: int = 6000) -> Evidence:
    """Two ranks that each go through all of one data set."""
    return two_ranks(together(shared_data=SharedData(samples, LOADER)))
