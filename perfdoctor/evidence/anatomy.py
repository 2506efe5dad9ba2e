"""The anatomy of the job: every millisecond of a rank's process, from its start to its end, in one part."""

from __future__ import annotations

import numpy as np

from ..recording.model import ProcessRecording, RunFacts
from .evaluation import by_row, held, starts_us
from .model import OBSERVED_WHOLE, JobAnatomy, JobParts, Missing
from .steady import Mask, Selection, in_judged_phase
from .whole_job import RECURRING, Recurring, extrapolated


def build(process: ProcessRecording, selection: Selection | Missing, job: RunFacts) -> JobAnatomy | Missing:
    """From clock readings; only what a step holds beyond the steady one is divided by what else happened in it."""
    steps = process.steps
    if not len(steps):
        return Missing("no step was seen")
    own_start = process.settings.start_ms if process.settings is not None else 0.0
    began_ns, last_ns = int(steps["end_ns"][0] - 1000 * steps["wall_us"][0]), int(steps["end_ns"][-1])
    header = process.header
    start_ms = (header.t - header.start) / 1e6 if header.start else 0.0
    before_ms = max(0.0, (began_ns - header.t) / 1e6 - own_start)
    sample = process.samples[-1] if process.samples else None
    # The probe is loaded while torch is imported.
    imports_ms = min(before_ms, max(0.0, sample.import_us / 1000 - own_start)) if sample else 0.0
    gaps_ms = max(0.0, (last_ns - began_ns - 1000 * int(steps["wall_us"].sum())) / 1e6)
    observed_ms = min(gaps_ms, (sample.own_us + sample.window_us) / 1000) if sample else 0.0
    ended = process.exit if process.trials is None else None  # what came after was not the job's alone
    # Python takes itself down after its exit handlers, with torch for half a second and more.
    end_ns = max(ended.t, job.ended_ns) if ended is not None else last_ns
    after = _after(process, last_ns, end_ns)
    loop, recurring = _loop(process, selection)
    parts = JobParts(
        start=start_ms,
        imports=imports_ms,
        set_up=before_ms - imports_ms,
        first_step=loop.first_step,
        warm_up=loop.warm_up,
        other_phases=loop.other_phases,
        steady=loop.steady,
        epoch_starts=loop.epoch_starts,
        evaluation=loop.evaluation + after.evaluation,
        inference=loop.inference + after.inference,
        checkpoints=loop.checkpoints + after.checkpoints,
        logging=loop.logging + after.logging,
        between=loop.between + gaps_ms - observed_ms,
        after=after.after,
        observing=own_start + observed_ms + loop.observing + after.observing,
    )
    stopped = job.end == "stopped"
    whole = extrapolated(process, selection, parts, recurring) if stopped else OBSERVED_WHOLE
    return JobAnatomy(parts.total, ended is not None, stopped, parts, len(steps), whole)


def _after(process: ProcessRecording, last_ns: int, end_ns: int) -> JobParts:
    """From the last step on."""
    ended, found = process.exit, held(process)
    left = max(0.0, (end_ns - last_ns) / 1e6)
    if ended is None or not left:
        return JobParts()
    last = int(process.steps["step"][-1])
    told = {
        "observing": ended.own_us,
        "checkpoints": ended.checkpoint_us,
        "logging": ended.logging_us,
        "evaluation": int(found.evaluations["us"][found.evaluations["step"] > last].sum()),
        "inference": int(found.inference["us"][found.inference["step"] > last].sum()),
    }
    parts = {}
    for name, us in told.items():
        parts[name] = min(left, us / 1000)
        left -= parts[name]
    return JobParts(**parts, after=left)


def _loop(process: ProcessRecording, selection: Selection | Missing) -> tuple[JobParts, tuple[Recurring, ...]]:
    """From the first batch or forward pass to the end of the last step, without what lies between its steps; and what
    of that may come again, after the warm-up."""
    rows, found = process.steps, held(process)
    wall = rows["wall_us"] / 1000
    told = {
        name: rows[f"{column}_us"] / 1000 for name, column in (("checkpoints", "checkpoint"), ("logging", "logging"))
    }
    rest = wall - told["checkpoints"] - told["logging"]
    for name, columns in (("evaluation", found.evaluations), ("inference", found.inference)):
        told[name] = np.minimum(rest, by_row(rows, columns) / 1000)
        rest = rest - told[name]
    starting, starts = starts_us(process, rows, found.training_loaders)
    evaluates, infers = told["evaluation"] > 0, told["inference"] > 0
    # A step after an evaluation starts its epoch too: told apart by what the start itself was timed to take.
    told["epoch_starts"] = np.where(evaluates | infers, np.minimum(rest, starting / 1000), 0.0)
    rest = rest - told["epoch_starts"]
    first = np.arange(len(rows)) == 0
    if isinstance(selection, Missing):
        warm = other = np.zeros(len(rows), dtype=bool)
        steady = ~first
    else:
        other = ~in_judged_phase(process) & ~first
        warm = (rows["step"] < selection.first) & ~first & ~other
        steady = np.isin(rows["step"], selection.column("step"))
    plain = steady & ~starts & ~evaluates & ~infers & ~first
    usual = float(rest[plain if plain.any() else ~first].mean()) if len(rows) > 1 else 0.0
    parts = {name: float(ms.sum()) for name, ms in told.items()}
    parts["first_step"] = float(rest[first].sum())
    parts["warm_up"] = float(rest[warm].sum())
    parts["other_phases"] = float(rest[other].sum())
    parts["steady"] = 0.0
    taken = first | warm | other
    seen = {name: (float(ms[~taken].sum()), (ms > 0) & ~taken) for name, ms in told.items()}
    for name, mask in (
        ("evaluation", evaluates),
        ("inference", infers),
        ("epoch_starts", starts),
        ("observing", rows["marked"] == 1),
        ("steady", steady),
        ("between", np.ones(len(rows), dtype=bool)),
    ):
        chosen: Mask = mask & ~taken
        taken = taken | mask
        whole = float(rest[chosen].sum())
        ordinary = whole if name == "steady" else min(whole, usual * int(chosen.sum()))
        parts["steady"] += ordinary
        parts[name] = parts.get(name, 0.0) + whole - ordinary
        ms, rows_with = seen.get(name, (0.0, chosen))
        seen[name] = ms + whole - ordinary, rows_with | chosen
    recurring = [Recurring(name, ms, rows["step"][found]) for name, (ms, found) in seen.items() if name in RECURRING]
    return JobParts(**parts), tuple(recurring)
