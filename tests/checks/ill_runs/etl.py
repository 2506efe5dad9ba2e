"""Runs with loops that wait for data."""

from __future__ import annotations

from typing import Any

from samples import FETCH, LOADER, healthy, on_gpu, step, with_

from perfdoctor.evidence.model import (
    CodeLine,
    EpochStarts,
    Evidence,
    Fetch,
    FixedPart,
    LateSharding,
    Loader,
    Missing,
    Parts,
    SameResult,
    SamplesAsked,
    Site,
)

from .gc import GC_LINE

IN_PROCESS = Missing("no queue: batches are made in the training process")


def fetch(
    getitem: tuple[float, float] = (0.01, 0.01), collate: tuple[float, float] = (0.5, 0.5), **changes: Any
) -> Fetch:
    """Wall and CPU time of the two halves of making a batch, ms."""
    return with_(
        FETCH,
        getitem_ms=getitem[0],
        getitem_cpu_ms=getitem[1],
        collate_ms=collate[0],
        collate_cpu_ms=collate[1],
        **{"run_delay_ms": 0.0, "read_bytes": 0.0, "batch_bytes": 100_000.0, **changes},
    )


def waiting(wait_ms: float, made: Fetch | Missing, *, train_ms: float = 5.0, cpus: int = 2, **loader: Any) -> Evidence:
    """A loop that trains for 5 ms on one of two CPUs and waits for its one loader, which has one worker."""
    changed: Loader = with_(
        LOADER,
        **{
            "num_workers": 1,
            "wait_ms": wait_ms,
            "wait_p95_ms": 1.5 * wait_ms,
            "empty_share": 1.0,
            "fetch": made,
            **loader,
        },
    )
    if not changed.num_workers:
        changed = with_(changed, empty_share=IN_PROCESS, start_method="", prefetch_factor=None, transport_ms=0.0)
    parts = Parts(input_wait=wait_ms, forward=0.3 * train_ms, backward=0.6 * train_ms, optimizer=0.1 * train_ms)
    own_cpu = 0.0 if changed.num_workers or isinstance(made, Missing) else made.getitem_cpu_ms + made.collate_cpu_ms
    seen = step(parts, cpu_ms=train_ms + own_cpu, process_cpu_ms=train_ms + own_cpu, run_delay_ms=0.0)
    return with_(
        healthy(),
        step=seen,
        loaders=(changed,),
        machine__affinity_cpus=cpus,
        machine__logical_cpus=cpus,
        gc=Missing("not part of this case"),
        ops=Missing("not part of this case"),
        memory=Missing("not part of this case"),
    )


def _loaders(evidence: Evidence) -> tuple[Loader, ...]:
    assert not isinstance(evidence.loaders, Missing)
    return evidence.loaders


def waiting_for_each(*waits: Evidence, train_ms: float = 10.0) -> Evidence:
    """One loop that waits for the loaders of these runs, one after the other: of data sets A, B, C, each at a line of
    its own."""
    loaders = tuple(
        with_(
            loader, id=number, ids=(number,), dataset=chr(ord("A") + number), site=Site("train.py", 20 + number, "main")
        )
        for number, wait in enumerate(waits)
        for loader in _loaders(wait)
    )
    whole = sum(loader.wait_ms * loader.steady_batches_per_step for loader in loaders)
    made = (loader.fetch for loader in loaders if not loader.num_workers and not isinstance(loader.fetch, Missing))
    cpu_ms = train_ms + sum(one.getitem_cpu_ms + one.collate_cpu_ms for one in made)
    parts = Parts(input_wait=whole, forward=0.3 * train_ms, backward=0.6 * train_ms, optimizer=0.1 * train_ms)
    seen = step(parts, cpu_ms=cpu_ms, process_cpu_ms=cpu_ms, run_delay_ms=0.0)
    longest_first = sorted(loaders, key=lambda loader: -loader.wait_ms * loader.steady_batches_per_step)
    return with_(waits[0], step=seen, loaders=tuple(longest_first))


def waiting_crowded(wait_ms: float = 10.0, **changes: object) -> Evidence:
    """A worker that is always busy, beside training on two threads and two CPUs: the step of 60 ms waits 10 ms for its
    batch, and 20 ms for a CPU."""
    evidence = waiting(wait_ms, fetch((45.0, 36.0), (0.6, 0.6), run_delay_ms=9.0), train_ms=60.0 - wait_ms)
    host = {"host__job_run_delay_share": 0.33, "host__idle_cpus": 0.1, "host__others_cpus": 0.0}
    return with_(evidence, **{"step__run_delay_ms": 20.0, "threads__intra_op": 2, **host, **changes})


def crowding_workers(**changes: object) -> Evidence:
    """The same, but each batch is there in time."""
    return waiting_crowded(0.3, **changes)


BANK_LINE = Site("data.py", 30, "__getitem__")
BANK = SameResult(
    function="mel_bank",
    at=BANK_LINE,
    defined_at=Site("data.py", 8, "mel_bank"),
    part="other",
    calls_per_step=32.0,
    arguments=1,
    ms_per_step=23.0,
)
"""A filter bank that is made for each of 32 samples."""
SHARE_LINE = Site("data.py", 52, "__iter__")
SHARDED = LateSharding(SHARE_LINE, samples=32, share_number=1, shards=2, share=0.96)
"""Two workers that keep every second sample."""
LOOP_LINE = Site("data.py", 41, "recoloured")


def same_result(*others: SameResult, loader: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    """One worker makes batches in 26 ms, and the loop waits 20 of them."""
    made = fetch((25.0, 25.0), (0.7, 0.7), same=(with_(BANK, **changes), *others))
    return waiting(20.7, made, **{"empty_share": 0.95, **(loader or {})})


FEATURES = SameResult(
    function="spectral_frames",
    at=Site("data.py", 64, "train_dataloader"),
    defined_at=Site("data.py", 40, "spectral_frames"),
    part="other",
    calls_per_step=1.0,
    arguments=1,
    ms_per_step=300.0,
)
"""Features of all recordings."""


def made_each_epoch(*others: SameResult, every: int = 50, regular: bool = False, **changes: Any) -> Evidence:
    """Steps of 20 ms, and before each 50th one 320 ms in which features are made."""
    starts = EpochStarts((with_(FEATURES, **changes), *others), (), (), 3, every, 320.0, regular)
    of_step = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=1.7)
    return with_(
        healthy(), step=step(of_step, samples=32.0, irregular_ms=0.0 if regular else 320 / every), epoch_starts=starts
    )


def sharded_late(loader: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    """Two workers that make batches in 50 ms, half of them for nobody; the loop waits 20 for each."""
    made = fetch((49.3, 49.3), (0.7, 0.7), sharded=with_(SHARDED, **changes))
    return waiting(20.0, made, **{"num_workers": 2, "empty_share": 0.95, "iterable": True, **(loader or {})})


def made_again(made: Fetch | None = None, **loader: Any) -> Evidence:
    """The same, with 5,000 samples of 40 kB, which are the same each time."""
    again = {"again": SamplesAsked(0, True, 40_000), "length": 5_000, "empty_share": 0.95}
    return waiting(loader.pop("wait_ms", 20.7), made or fetch((25.0, 25.0), (0.7, 0.7)), **{**again, **loader})


def part_made_again(share: float = 0.8, bytes: int = 40_000, **loader: Any) -> Evidence:
    """The same, of samples that differ by what is drawn at random in the end."""
    fixed = FixedPart(share, bytes, Site("data.py", 21, "__getitem__"), Site("data.py", 23, "__getitem__"))
    return made_again(**{"again": SamplesAsked(0, False, 40_000, fixed=fixed), **loader})


def scattered(again: SamplesAsked | None = None, made: Fetch | None = None, **loader: Any) -> Evidence:
    """A batch of 64 samples whose numbers lie far apart takes 2 ms, most of it to collate; the loop waits so long."""
    asked = again or SamplesAsked(0, True, 6_000, scattered=True)
    settings = {"num_workers": 0, "batch_size": 64, "collate": "default_collate", "again": asked, **loader}
    return waiting(2.0, made or fetch((0.4, 0.4), (1.5, 1.5)), **settings)


def lost_by_workers(kept: float = 0.95, **loader: Any) -> Evidence:
    """The same, of a data set that keeps what it has made, in workers that end with each epoch."""
    return made_again(**{"again": SamplesAsked(0, False, 40_000, kept=kept), "persistent_workers": False, **loader})


def looping(share: float = 0.6, runs: float = 64.0, **changes: Any) -> Evidence:
    """A transform with a line that runs so often for each of 32 samples."""
    line = CodeLine(LOOP_LINE, "other", True, 0.0, share, runs_per_step=32 * runs)
    made = fetch((25.0, 17.0), (0.7, 0.7), run_delay_ms=8.0, lines=(line,))
    return waiting(22.3, made, **{"empty_share": 0.95, **changes})


def asking(share: float = 0.8, asked: float = 64.0, **changes: Any) -> Evidence:
    """64 rows that a manager's process keeps: 4.6 ms of 5.8 to make a batch."""
    line = CodeLine(Site("data.py", 18, "__getitem__"), "input_wait", True, 4.6, share, asked_per_step=asked)
    made = fetch((5.2, 2.6), (0.6, 0.6), lines=(line,))
    return waiting(5.4, made, train_ms=2.4, **{"num_workers": 0, "batch_size": 64, **changes})


DRAW_LINE = Site("sampler.py", 47, "__iter__")


def slow_sampler(
    draw_ms: float = 8.2, part: str = "input_wait", called: bool = True, made: Fetch | None = None
) -> Evidence:
    """Indices drawn one by one: 8 of the 10 ms that the loop waits; a batch is made in 0.2."""
    line = CodeLine(DRAW_LINE, part, called, draw_ms, draw_ms / 10.0)
    return with_(waiting(10.0, made or fetch((0.1, 0.1), (0.1, 0.1)), num_workers=0), code_lines=(line,))


UNEVEN_MS = tuple(60.0 if i % 20 == 5 else 4.0 for i in range(200))
"""Two workers keep up with a loop of 5 ms; one batch in 20 holds it up."""


def uneven_batches(wait_ms: float = 2.5, each_ms: tuple[float, ...] = UNEVEN_MS, **changes: Any) -> Evidence:
    made = fetch((6.3, 1.0), (0.5, 0.5), each_ms=each_ms)
    return waiting(wait_ms, made, cpus=4, **{"num_workers": 2, "empty_share": 0.2, **changes})


def collecting_workers(gc_ms: float = 30.0, line: Site | None = GC_LINE, workers: int = 2) -> Evidence:
    """Making a batch takes 10 ms and the workers' collections; training takes 5."""
    made = with_(fetch((9.0, 9.0), (1.0, 1.0)), gc_ms=gc_ms, gc_line=line)
    return waiting((10.0 + gc_ms) / workers - 5.0, made, num_workers=workers)


def pageable_copies(copies_ms: float = 5.0) -> Evidence:
    return on_gpu(ops__device_copies_ms=copies_ms, ops__pageable_copies_ms=copies_ms)


def restarted_workers(start_ms: float = 100.0, epoch: float = 10.0, irregular_ms: float | None = None) -> Evidence:
    """Workers that every epoch starts anew; what that takes lies in irregular steps."""
    extra = start_ms / epoch if irregular_ms is None else irregular_ms
    return with_(
        healthy(),
        loader__persistent_workers=False,
        loader__iterators=20,
        loader__iterator_start_ms=start_ms,
        loader__batches_per_iterator=epoch,
        step__irregular=19,
        step__irregular_ms=extra,
    )
