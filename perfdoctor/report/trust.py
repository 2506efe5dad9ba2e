"""How far to trust a run, and where it ran, as rows of label and text."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..evidence.model import Evidence, Host, Job, JobEnd, JobNode, Machine, Missing, OwnCost, Step, ranks_in_words
from . import wording

STEP_WORDS = {
    "optimizer": "one optimizer step",
    "backward": "all from one update of the parameters to the next (no optimizer step was seen)",
    "batch": "one batch from the data loader (no optimizer step was seen)",
    "forward": "one forward pass (neither optimizer nor data loader was seen)",
    "profiler": "one step of the profiler (`ProfilerStep`)",
    "trace": "all of the trace, which marks no steps (call `prof.step()` after each)",
}
SLOPE_WORTH_SAYING = 0.05
"""A step that grows or shrinks by less over the run is within what the interval says anyway."""

_GOOD_ENDS = ("finished", "stopped")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    label: str
    text: str
    alarming: bool = False
    """Something went wrong, rather than a number."""


def trust_rows(evidence: Evidence) -> tuple[Row, ...]:
    """Steps, noise, contention, our own cost, hooks that failed, and how the job ended."""
    if evidence.job.traced:
        return (*_step_rows(evidence.step), *_recording_rows(evidence))
    return (
        *_step_rows(evidence.step),
        _contention_row(evidence.host, evidence.step),
        _own_cost_row(evidence.own_cost, evidence.step),
        *_fault_rows(evidence),
        _end_row(evidence.job.end),
    )


def alarm_rows(evidence: Evidence) -> tuple[Row, ...]:
    """Hooks that failed, and a job that ended badly."""
    if evidence.job.traced:
        return ()
    return tuple(row for row in (*_fault_rows(evidence), _end_row(evidence.job.end)) if row.alarming)


def trust_brief(evidence: Evidence) -> str:
    """The rows in a line: "210 steady steps, mean ±3.5 %; other processes used 0.01 cores; ..."."""
    step, host, cost = evidence.step, evidence.host, evidence.own_cost
    if isinstance(step, Missing):
        return ""
    parts = [wording.plural(step.count, "step" if evidence.job.traced else "steady step")]
    if step.step_ms > 0:
        parts[0] += f", mean ±{wording.share(step.half_width)}"
    if abs(step.slope) >= SLOPE_WORTH_SAYING:
        parts.append(_growth(step))
    if evidence.job.traced:
        parts += [row.text for row in _recording_rows(evidence)]
    elif isinstance(host, Missing):
        parts.append("other processes not seen")
    else:
        parts.append(f"other processes used {wording.cores(host.others_cpus)}")
        if not isinstance(host.throttled_share, Missing) and host.throttled_share > 0:
            parts.append(f"the CPU quota throttled it in {wording.share(host.throttled_share)} of all periods")
    if not isinstance(cost, Missing) and step.step_ms > 0:
        parts.append(f"perfdoctor's overhead {wording.share(cost.hooks_us_per_step / 1000 / step.step_ms)}")
    return "; ".join(parts)


def _recording_rows(evidence: Evidence) -> tuple[Row, ...]:
    """What recording a trace did to the times in it."""
    seen, step = evidence.activity, evidence.step
    if isinstance(seen, Missing) or isinstance(step, Missing) or step.step_ms <= 0:
        return ()
    took = f"{wording.duration(seen.inflation_ms)} per step ({wording.share(seen.inflation_ms / step.step_ms)})"
    return (Row("recording", f"the profiler itself took about {took} of the host's time, by the number of events"),)


def _fault_rows(evidence: Evidence) -> tuple[Row, ...]:
    return tuple(
        Row("failed hook", wording.clean(f"{f.hook} was switched off after {f.error}"), alarming=True)
        for f in evidence.probe_faults
    )


def _growth(step: Step) -> str:
    return f"the step got {wording.share(abs(step.slope))} {'slower' if step.slope > 0 else 'faster'} over the run"


def environment_rows(evidence: Evidence) -> tuple[Row, ...]:
    """The job and the machine it ran on."""
    return tuple(
        Row(row.label, wording.clean(row.text))
        for row in (*_job_rows(evidence.job), *_machine_rows(evidence.machine))
        if row.text
    )


def _step_rows(step: Step | Missing) -> tuple[Row, ...]:
    if isinstance(step, Missing):
        return (Row("steps", wording.clean(f"none measured: {step}"), alarming=True),)
    left_out = [
        f"{wording.count(number)} {why}"
        for number, why in (
            (step.warmup, "of warm-up"),
            (step.windowed, "while profiling"),
            (step.irregular, "at an epoch's start or around other work such as validation"),
        )
        if number
    ]
    seconds = wording.duration(step.seconds * 1000)
    steps = f"{wording.plural(step.count, 'steady step')} in {seconds}; a step is {STEP_WORDS[step.boundary]}"
    if step.cycle > 1:
        steps += f", and one of {step.cycle} does more than the others: numbers are means of {step.cycle}"
    if left_out:
        steps += f". Left out: {wording.listing(left_out)}"
    if step.irregular and step.irregular_ms > 0:
        steps += f" ({wording.duration(step.irregular_ms)} per step when spread over the run)"
    noise = (
        f"mean {wording.span(step.low_ms, step.high_ms, wording.MEASURED_DIGITS)} with 95 % confidence; "
        f"median {wording.duration(step.median_ms)}, typical deviation (MAD) {wording.duration(step.mad_ms)}"
    )
    if step.median_ms > 0:
        noise += f" ({wording.share(step.mad_ms / step.median_ms)})"
    if abs(step.slope) >= SLOPE_WORTH_SAYING:
        noise += f". {wording.sentence(_growth(step)).rstrip('.')}"
    return Row("steps", steps), Row("noise", noise)


def _contention_row(host: Host | Missing, step: Step | Missing) -> Row:
    if isinstance(host, Missing):
        return Row("contention", wording.clean(f"not known: {host}"))
    parts = [f"other processes kept {wording.cores(host.others_cpus)} busy, the job {wording.cores(host.job_cpus)}"]
    if not isinstance(step, Missing) and not isinstance(step.run_delay_ms, Missing):
        waited = wording.duration(step.run_delay_ms)
        parts.append(f"the training thread waited {waited} per step for a free CPU")
    elif not isinstance(host.job_run_delay_share, Missing):
        waited = wording.share(host.job_run_delay_share)
        parts.append(f"the job's threads waited for a free CPU {waited} of the time")
    if isinstance(host.throttled_share, Missing):
        parts.append(f"throttling not measured ({host.throttled_share.reason})")
    elif host.throttled_share > 0:
        parts.append(f"the CPU quota throttled it in {wording.share(host.throttled_share)} of all periods")
    else:
        parts.append("never throttled by a CPU quota")
    if host.steal_share > 0:
        parts.append(f"the hypervisor took {wording.share(host.steal_share)} of the CPU time")
    text = "; ".join(parts)
    if host.neighbours:
        top = host.neighbours[0]
        text += f". Busiest neighbour: {top.who}, {wording.cores(top.cpus)}"
    return Row("contention", wording.clean(text))


def _own_cost_row(cost: OwnCost | Missing, step: Step | Missing) -> Row:
    name = "own overhead"
    if isinstance(cost, Missing):
        return Row(name, wording.clean(f"not known: {cost}"))
    hooks_ms = cost.hooks_us_per_step / 1000
    parts = [f"perfdoctor added {wording.duration(hooks_ms)} to each step"]
    if not isinstance(step, Missing) and step.step_ms > 0:
        parts[0] += f" ({wording.share(hooks_ms / step.step_ms)})"
    if not isinstance(cost.start_ms, Missing):
        parts[0] += f" and {wording.duration(cost.start_ms)} to the start of the job"
    if cost.window_ms > 0:
        lost = f"{wording.duration(cost.window_ms)} ({wording.share(cost.window_share)} of the observed time)"
        parts.append(f"profiling a few steps cost {lost}, and those steps are left out above")
    if not isinstance(cost.monitor_cpus, Missing):
        parts.append(f"watching from outside took {wording.cores(cost.monitor_cpus)}")
    return Row(name, "; ".join(parts))


def _end_row(end: JobEnd) -> Row:
    name = "end of the job"
    text = {
        "finished": "it finished by itself",
        "stopped": "perfdoctor stopped it, having seen enough",
        "crashed": f"it failed with exit code {end.exit_code}",
        "killed": f"it was killed by {_signal_name(end.signal)}",
        "interrupted": "you interrupted it; this report uses what there was",
        "timeout": "perfdoctor stopped it because it made no progress",
        "running": "it is still running; this report uses what there was so far",
        "unknown": "not known: perfdoctor was ended before it",
    }[end.kind]
    exception = end.exception if end.kind == "crashed" else ""
    text = "; ".join(filter(None, (text, exception, end.detail)))
    return Row(name, wording.clean(text), alarming=end.kind not in _GOOD_ENDS)


def _signal_name(number: int | None) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})" if number is not None else "a signal"
    except ValueError:
        return f"signal {number}"


def _alike(gpus: list[str]) -> str:
    """`8 x NVIDIA A100 (...)`."""
    counted = {gpu: gpus.count(gpu) for gpu in gpus}
    return "; ".join(gpu if number == 1 else f"{number} x {gpu}" for gpu, number in counted.items())


def _job_rows(job: Job) -> tuple[Row, ...]:
    processes = [wording.plural(job.seen_ranks, "training process")]
    if job.world_size > job.seen_ranks:
        processes[0] += f" of {job.world_size}"
    for number, one in ((job.workers, "data-loader worker"), (job.helpers, "helper process")):
        if number:
            processes.append(wording.plural(number, one))
    torch = f"{job.torch_version} ({job.torch_build})".strip() if job.torch_build else job.torch_version
    return (
        Row("command", shlex.join(job.command)),
        Row("directory", job.cwd),
        Row("started", job.started),
        Row("Python", job.python_version),
        Row("PyTorch", torch + (", torch.compile in use" if job.compiled else "")),
        Row("frameworks", wording.listing(sorted(job.frameworks))),
        Row("processes", wording.listing(processes)),
        Row("nodes", _nodes(job.nodes)),
        Row("variables", " ".join(f"{name}={value}" for name, value in sorted(job.environment))),
    )


_MOST_NODES = 4
"""That are listed."""


def _nodes(nodes: Sequence[JobNode]) -> str:
    """`gpu-a (ranks 0 to 7) and gpu-b (ranks 8 to 15)`."""
    told = [f"{one.name} ({ranks_in_words(one.ranks) if one.ranks else 'no rank'})" for one in nodes[:_MOST_NODES]]
    more = [f"{len(nodes) - _MOST_NODES} more"] if len(nodes) > _MOST_NODES else []
    return wording.listing([*told, *more])


def _machine_rows(machine: Machine) -> tuple[Row, ...]:
    cpus = [wording.plural(machine.logical_cpus, "logical CPU")]
    if machine.physical_cores is not None:
        cpus.append(wording.plural(machine.physical_cores, "physical core"))
    quota = "" if machine.quota_cpus is None else f" (quota {wording.count(machine.quota_cpus)})"
    usable = f"the job may use {wording.count(machine.usable_cpus)}{quota}"
    gpus = [
        f"{gpu.name} ({wording.size(gpu.memory_bytes)}, driver {gpu.driver or 'not known'})" for gpu in machine.gpus
    ]
    known = machine.logical_cpus > 0
    return (
        Row("CPU", f"{machine.cpu_model}: {', '.join(cpus)}; {usable}" if known else ""),
        Row("memory", wording.size(machine.memory_bytes) if known else ""),
        Row("GPU", _alike(gpus) or "none"),
        Row("kernel", machine.kernel),
    )
