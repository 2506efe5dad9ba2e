"""The steady step: which steps count (`untouched`, `select`), and where their time goes (`measure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..recording.model import Columns, Ints, ProcessRecording
from ..recording.phases import judged_steps
from ..recording.process import BOUNDARIES, Compiled, Cycle, Sample
from .model import Missing, Parts, Step
from .stats import block_interval, mad, trimmed_mean

Mask = npt.NDArray[np.bool_]

MIN_STEADY = 5
"""Fewer steady steps tell nothing: the first is always left out, and a median needs company."""
_SETTLED = 1.10
"""The warm-up is over when five steps in a row have a median within 10 % of the second half's."""
_RUN = 5
_AROUND = 8
"""Steps on either side of a window that say how long a part was then."""
REGULAR_SHARE = 0.2
"""What happens in more than a fifth of the steps is how this loop works, not an irregularity."""
_LONG = 2.0
"""Times the usual step, from which one that was expected to be long is."""
_FAR, _FAR_US = 10.0, 100_000
"""Times the usual step, and microseconds, beside its parts: a neighbour that takes the CPU for a moment does not."""
BURSTY = ("input_wait", "gc", "checkpoint", "communication", "logging")
SMOOTH = ("forward", "backward", "optimizer")
ALONE = ("gc", "checkpoint", "logging")
"""Parts in which one thread is at work: `Parts.alone`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The steady steps of one process."""

    kind: int
    """Index into `BOUNDARIES`."""
    rows: Columns
    """The rows of that kind."""
    mask: Mask
    """Over `rows`: the steady steps."""
    warmup: int
    windowed: int
    irregular: Mask
    in_windows: Mask
    """Over `rows`: irregular steps that held a window besides: what both take is not known apart."""
    first: int
    """Number of the first step after the warm-up."""
    last: int
    """One past the number of the last step."""
    start_ns: int
    end_ns: int
    samples: tuple[Sample, Sample] | None
    """First and last counters inside the span, clear of the windows where possible."""
    stretches: tuple[tuple[Sample, Sample], ...]
    """Counters around steady steps alone, where those are enough; else that pair. What an evaluation takes is no
    step's: one of 300 steps in six had its page faults told as more than the step lasts."""
    cycle: int = 1
    """Steps after which the loop does the same again; the steady ones are whole cycles."""

    @property
    def count(self) -> int:
        return int(self.mask.sum())

    @property
    def span(self) -> int:
        """Steps after the warm-up, steady or not."""
        return self.last - self.first

    @property
    def watched(self) -> int:
        """How many irregular steps held a window."""
        return int(self.in_windows.sum())

    @property
    def irregular_each(self) -> float:
        """Irregular steps for each that held no window: those that did are taken to be as the others."""
        return 1 + self.watched / max(1, int(self.irregular.sum()))

    def column(self, name: str) -> Ints:
        """A column of the steady steps."""
        return self.rows[name][self.mask]

    def series(self, name: str) -> npt.NDArray[np.float64]:
        """The same, where steps come in cycles as the mean of each."""
        means: npt.NDArray[np.float64] = self.column(name).reshape(-1, self.cycle).mean(axis=1)
        return means

    def around(self, step: int, values: npt.NDArray[np.float64]) -> float:
        """The mean of what the steady steps have that are next to `step`; `values`: one for each steady step."""
        distance = np.abs(self.column("step") - step)
        return trimmed_mean(values[np.argsort(distance, kind="stable")[: 2 * _AROUND]])

    def per_step(self, name: str) -> float | None:
        """Growth of a `Sample` counter per step; None without two samples, or when they lack it."""
        grown = steps = 0
        for pair in self.stretches:
            first, last = (getattr(sample, name) for sample in pair)
            if first is None or last is None or last < first:  # a thread's counters start anew with a new thread
                return None
            grown += last - first
            steps += pair[1].step - pair[0].step
        return float(grown) / steps if steps else None


def untouched(process: ProcessRecording) -> ProcessRecording:
    """`process` up to the step from which remedies were tried, so far as the job ran as it is; all of it when none was.

    All that happened in a step is cut. What is known once (settings, windows, timings, batches' sizes) is kept: it was
    taken before.
    """
    if process.trials is None:
        return process
    end = process.trials.step
    return replace(process, **{f.name: _before(end, getattr(process, f.name)) for f in fields(process)})


def _before(end: int, records: Any) -> Any:
    if isinstance(records, Columns):
        return records.where(records["step"] < end) if "step" in records.arrays else records
    if not isinstance(records, tuple) or not hasattr(next(iter(records), None), "step"):
        return records
    # A sample is taken between two steps.
    return tuple(one for one in records if one.step < end + isinstance(one, Sample))


def warmup_length(wall_us: Ints) -> int:
    """Number of leading steps that are warm-up; at least 1, at most half."""
    n = len(wall_us)
    if n < 2 * _RUN:
        return min(1, n)
    settled = float(np.median(wall_us[n // 2 :])) * _SETTLED
    for start in range(1, n // 2):
        run = wall_us[start : start + _RUN]
        if np.median(run) <= settled:
            # Up to two of the five may still be slow; bursty parts are means, so they must not stay.
            return min(start + int(np.argmax(run <= settled)), n // 2)
    return n // 2


def select(process: ProcessRecording) -> Selection | Missing:
    """The steady steps, or why there are none."""
    if len(process.steps) == 0:
        return Missing("no step was seen")
    kind = _main_kind(process.steps)
    judged = in_judged_phase(process)
    rows = process.steps.where((process.steps["boundary"] == kind) & judged)
    if len(rows) == 0:
        return Missing("no step of the phase that is judged was seen")
    numbers, clean = rows["step"], rows["marked"] == 0
    warm = warmup_length(rows["wall_us"][clean])
    kept = numbers[clean]
    first = int(kept[warm]) if warm < len(kept) else int(numbers[-1]) + 1
    after = numbers >= first
    odd = _irregular(process, rows) & after
    irregular = odd & clean
    mask, cycle = after & clean & ~irregular, 1
    if process.cycle is not None:
        whole = _whole_cycles(mask, numbers, process.cycle)
        if whole.any():
            mask, cycle = whole, process.cycle.length
    count = int(mask.sum())
    if count < MIN_STEADY:
        return Missing(
            f"too few steady steps: {count} of the {len(rows)} seen, and at least {MIN_STEADY} are needed",
            "let the job run longer",
        )
    start = int(np.flatnonzero(after)[0])
    inside = _samples_inside(_at_boundaries(process), first, numbers[~clean])
    widest = (inside[0], inside[-1]) if len(inside) > 1 and inside[-1].step > inside[0].step else None
    return Selection(
        kind=kind,
        rows=rows,
        mask=mask,
        warmup=int((~after & clean).sum()),
        windowed=int((~clean).sum()),
        irregular=irregular,
        in_windows=odd & ~clean,
        first=first,
        last=int(numbers[-1]) + 1,
        start_ns=int(rows["end_ns"][start] - 1000 * rows["wall_us"][start]),
        end_ns=int(rows["end_ns"][-1]),
        samples=widest,
        stretches=_stretches(inside, np.append(numbers[odd], process.steps["step"][~judged]))
        or (() if widest is None else (widest,)),
        cycle=cycle,
    )


def measure(process: ProcessRecording, selection: Selection) -> Step:
    """The steady step of a selection."""
    ms = {name: selection.series(f"{name}_us") / 1000 for name in ("wall", "cpu", *BURSTY, *SMOOTH)}
    other = ms["wall"] - sum(ms[name] for name in (*BURSTY, *SMOOTH))
    # Threads that share an interpreter run by turns: a thousand short forwards, then one that waits for its turn.
    by_turns = any(record.threads > 1 for record in process.forwards_seen)
    typical = _mean if by_turns else trimmed_mean
    parts = Parts(
        **{name: float(ms[name].mean()) for name in BURSTY},
        **{name: typical(ms[name]) for name in SMOOTH},
        other=max(0.0, typical(other)),
    )
    step_ms = parts.total
    low, high = block_interval(ms["wall"])
    # The interval is that of the plain mean; the step leaves out hiccups, so it is moved along.
    shift = step_ms - float(ms["wall"].mean())
    process_cpu = [selection.per_step(name) for name in ("utime_us", "stime_us")]
    delay = selection.per_step("delay_us")
    no_counters = Missing("too few counter samples in the steady span", "let the job run longer")
    return Step(
        boundary=BOUNDARIES[selection.kind],
        count=selection.count,
        seconds=float(selection.column("wall_us").sum()) / 1e6,
        warmup=selection.warmup,
        windowed=selection.windowed,
        irregular=int(selection.irregular.sum()),
        irregular_s=float(selection.rows["wall_us"][selection.irregular].sum()) / 1e6,
        irregular_ms=_seldom_ms(selection, parts) / max(1, selection.span),
        step_ms=step_ms,
        parts=parts,
        median_ms=float(np.median(ms["wall"])),
        mad_ms=mad(ms["wall"]),
        low_ms=max(0.0, low + shift),
        high_ms=high + shift,
        cpu_ms=typical(ms["cpu"]),
        process_cpu_ms=no_counters if None in process_cpu else sum(x or 0.0 for x in process_cpu) / 1000,
        run_delay_ms=no_counters if delay is None else delay / 1000,
        micro_batches=float(np.median(selection.column("micro"))),
        samples=samples_per_step(process, selection),
        first_step_s=_first_step_s(process),
        slope=_slope(ms["wall"]),
        cycle=selection.cycle,
    )


def _seldom_ms(selection: Selection, parts: Parts) -> float:
    """What all irregular steps take beyond steady ones. Where each of them held a window, what is timed by itself: to
    a wait for new workers, or to a checkpoint, a window adds next to nothing."""
    if selection.irregular.any():
        walls = selection.rows["wall_us"][selection.irregular] / 1000
        return float((walls - parts.total).clip(min=0).sum()) * selection.irregular_each
    timed = sum(selection.rows[f"{name}_us"][selection.in_windows] for name in BURSTY) / 1000
    return float((timed - sum(getattr(parts, name) for name in BURSTY)).clip(min=0).sum())


def _mean(values: npt.NDArray[np.float64]) -> float:
    """With every hiccup."""
    return float(values.mean())


def in_judged_phase(process: ProcessRecording) -> Mask:
    """Which of all steps are of the phase of the job that is judged."""
    numbers = process.steps["step"]
    found = np.zeros(len(numbers), dtype=bool)
    for first, end in judged_steps(process.phases):
        found |= (numbers >= first) & (numbers < end)
    return found


def _main_kind(steps: Columns) -> int:
    """Steps of training are the loop, once there are enough; else the commonest kind."""
    counts = np.bincount(steps["boundary"], minlength=len(BOUNDARIES))
    training = (BOUNDARIES.index("optimizer"), BOUNDARIES.index("backward"))
    return next((kind for kind in training if counts[kind] >= MIN_STEADY), int(counts.argmax()))


def _irregular(process: ProcessRecording, rows: Columns) -> Mask:
    """Steps that held something else: the start of an epoch, a validation run, a checkpoint."""
    found = np.zeros(len(rows), dtype=bool)
    starts = np.isin(rows["step"], [iterator.step for iterator in process.iterators])
    micro = rows["micro"]
    usual = np.bincount(micro).argmax() if len(micro) else 0
    another_count = np.zeros(len(rows), dtype=bool) if process.cycle is not None else micro != usual
    for odd in (
        starts,
        another_count,
        rows["checkpoint_us"] > 0,
        compiling(process.compiled, rows),
        _long_again(process, rows),
        _far_longer(process, rows),
    ):
        if odd.mean() <= REGULAR_SHARE:
            found |= odd
    return found


def _long_again(process: ProcessRecording, rows: Columns) -> Mask:
    """Steps that take long at equal distances, as some were seen to; none where whole cycles are what is steady."""
    if process.cycle is not None:
        return np.zeros(len(rows), dtype=bool)
    return awaited(process, rows["step"]) & (rows["wall_us"] > _LONG * np.median(rows["wall_us"]))


def _far_longer(process: ProcessRecording, rows: Columns) -> Mask:
    """Steps beside whose parts something else took many times the usual step: data for the next stage, a report. A
    part that comes in bursts, such as a wait for data, is the step's own however long it is."""
    if process.cycle is not None or not len(rows):
        return np.zeros(len(rows), dtype=bool)
    beside = rows["wall_us"] - sum(rows[f"{name}_us"] for name in (*BURSTY, *SMOOTH))
    far: Mask = beside > max(_FAR * float(np.median(rows["wall_us"])), _FAR_US)
    return far


def awaited(process: ProcessRecording, numbers: Ints) -> Mask:
    """Which of the steps are expected to take long, by how far apart some did."""
    long = process.long_steps
    if long is None:
        return np.zeros(len(numbers), dtype=bool)
    here: Mask = (numbers - long.at) % long.length == 0
    return here


def _whole_cycles(mask: Mask, numbers: Ints, cycle: Cycle) -> Mask:
    """Those of the steps whose whole cycle is among them."""
    of = (numbers - cycle.at) // cycle.length
    kept, steps = np.unique(of[mask], return_counts=True)
    return mask & np.isin(of, kept[steps == cycle.length])


def compiling(compiled: Sequence[Compiled], rows: Columns) -> Mask:
    """Steps in which Dynamo compiled something of that."""
    found = np.zeros(len(rows), dtype=bool)
    times = [one.t for one in compiled]
    places = np.searchsorted(rows["end_ns"], times)
    found[places[places < len(rows)]] = True
    return found


def leaves_compiling_out(process: ProcessRecording, rows: Columns) -> bool:
    """Whether steps that compile are so few that they are irregular."""
    return bool(compiling(process.compiled, rows).mean() <= REGULAR_SHARE)


def _at_boundaries(process: ProcessRecording) -> tuple[Sample, ...]:
    """Without those that were taken as the job ended: they count what came after the last step too, an evaluation or
    the operators that were timed then."""
    latest = int(process.steps["end_ns"][-1]) + 1000 * int(np.median(process.steps["wall_us"]))
    return tuple(sample for sample in process.samples if sample.t <= latest)


def _samples_inside(samples: tuple[Sample, ...], first: int, windowed: Ints) -> list[Sample]:
    """Those in the span; after the last window if that leaves enough steps."""
    inside = [sample for sample in samples if sample.step >= first]
    if windowed.size:
        clear = [sample for sample in inside if sample.step > int(windowed[-1]) + 1]
        if len(clear) >= 2 and clear[-1].step - clear[0].step >= MIN_STEADY:
            return clear
    return inside


def _stretches(samples: list[Sample], irregular: Ints) -> tuple[tuple[Sample, Sample], ...]:
    """Neighbours with no irregular step between them; none where they leave too few steps."""
    found = tuple(
        (one, other)
        for one, other in pairwise(samples)
        if one.step < other.step and not ((irregular >= one.step) & (irregular < other.step)).any()
    )
    return found if sum(other.step - one.step for one, other in found) >= MIN_STEADY else ()


def samples_per_step(process: ProcessRecording, selection: Selection) -> float | Missing:
    """By the sizes of the batches that the steady steps received."""
    sizes: dict[int, int] = {}
    for seen in process.batches_seen:
        sizes[seen.loader] = max(seen.samples, sizes.get(seen.loader, 0))
    steady = np.isin(process.batches["step"], selection.column("step"))
    loaders = process.batches["loader"][steady]
    if not loaders.size or not any(sizes.values()):
        return Missing("the loop takes its batches from something other than a DataLoader")
    numbers, batches = np.unique(loaders, return_counts=True)
    return float(sum(sizes.get(int(loader), 0) * int(n) for loader, n in zip(numbers, batches, strict=True))) / (
        selection.count
    )


def _first_step_s(process: ProcessRecording) -> float | Missing:
    if not len(process.steps):
        return Missing("no step was seen")
    return float(process.steps["end_ns"][0] - process.header.t) / 1e9


def _slope(wall_ms: npt.NDArray[np.float64]) -> float:
    """Median of the last third over that of the first, minus 1; 0 below 30 steps, where it means nothing."""
    third = wall_ms.size // 3
    if third < 10:
        return 0.0
    return float(np.median(wall_ms[-third:]) / np.median(wall_ms[:third])) - 1
