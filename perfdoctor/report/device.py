"""What the device's own timeline adds to the anatomy of a step. Nothing in a job without CUDA."""

from __future__ import annotations

from ..evidence.model import Activity, DeviceTimeline, Evidence, Missing, Step
from . import wording


def device_column(evidence: Evidence, step: Step) -> dict[str, str]:
    """Part name -> its time on the device; empty without a timeline."""
    timeline = evidence.device
    if isinstance(timeline, Missing):
        return {}
    return {name: wording.aligned(ms, step.parts.total) for name, ms in timeline.parts.as_dict().items()}


def bound_by(evidence: Evidence) -> str:
    """ ", bound by the device," or the host, as part of a sentence; "" where neither bounds the step alone."""
    timeline = evidence.device
    if isinstance(timeline, Missing) or timeline.bound == "both":
        return ""
    return f", bound by the {timeline.bound},"


def device_bounds(evidence: Evidence) -> DeviceTimeline | None:
    """The device's timeline where the device bounds the step."""
    timeline = evidence.device
    return None if isinstance(timeline, Missing) or timeline.bound != "device" else timeline


def device_sentence(evidence: Evidence) -> str:
    """Whether host or device bounds the step, and how that is known; "" where no CUDA device computes."""
    timeline = evidence.device
    if not isinstance(evidence.activity, Missing):
        return _beside_host(evidence.activity)
    if isinstance(timeline, Missing):
        if not evidence.on_cuda:
            return ""
        unknown = wording.clean(f"Whether the host or the device bounds the step is not known: {timeline}.")
        return unknown + _by_device(evidence)
    return f"{_who(timeline)}{_by_device(evidence) or _kernels(timeline)}"


_SHARE_WORTH_SAYING = 0.005
"""Of the step, idle for one cause."""


def _beside_host(seen: Activity) -> str:
    """What a trace shows: how busy the device is, and what the host did while it was not."""
    if seen.step_ms <= 0:
        return ""
    device = f" ({wording.clean(seen.device)})" if seen.device else ""
    other = f", the busiest of {wording.count(seen.devices)}" if seen.devices > 1 else ""
    text = f"The device{device}{other} computes for {_of_step(seen.computing_ms, seen)}"
    if seen.collectives is not None:
        text += f", communicates for {_of_step(seen.collectives.ms, seen)}"
    if seen.copying_ms >= _SHARE_WORTH_SAYING * seen.step_ms:
        text += f", copies for {_of_step(seen.copying_ms, seen)}"
    causes = [one for one in seen.idle if one.ms >= _SHARE_WORTH_SAYING * seen.step_ms]
    text += f", and has nothing to do for {_of_step(seen.idle_ms, seen)}"
    if not causes:
        return f"{text}."
    return f"{text}: {'; '.join(f'{one.cause.value} {_of_step(one.ms, seen)}' for one in causes)}."


def _of_step(ms: float, seen: Activity) -> str:
    return wording.share(ms / seen.step_ms)


def _by_device(evidence: Evidence) -> str:
    """How long each of several devices had a kernel on, and some of them: for a model that lies on several."""
    ops, step = evidence.ops, evidence.step
    if isinstance(ops, Missing) or isinstance(step, Missing) or ops.device_busy_ms is None or step.step_ms <= 0:
        return ""
    busy = [device for device in ops.devices if device.busy_ms > 0]
    if len(busy) < 2:
        return ""
    each = wording.listing(
        [f"{wording.share(min(1.0, one.busy_ms / step.step_ms))} of it on cuda:{one.index}" for one in busy]
    )
    some = wording.share(min(1.0, ops.device_busy_ms / step.step_ms))
    return f" In the operator window some device had a kernel on for {some} of the step: {each}."


def _who(timeline: DeviceTimeline) -> str:
    idle = wording.duration(timeline.idle_most_ms)
    share = wording.share(timeline.idle_most_ms / timeline.total_ms) if timeline.total_ms > 0 else "all"
    low, high = wording.duration(timeline.ahead_low_ms), wording.duration(timeline.ahead_high_ms)
    if timeline.bound == "device":
        return (
            f"The device bounds the step: it lacks work for at most {idle} of it ({share}), and the host, which gets "
            f"at least {low} ahead, waits for it in some of the parts above."
        )
    if timeline.bound == "host":
        return (
            f"The host bounds the step: at every border between parts the device has caught up with it, but for at "
            f"most {high}, so the device's times include waiting for the host."
        )
    return (
        f"Host and device wait for each other: the host gets {low} to {high} ahead, and the device may lack work for "
        f"up to {idle} of the step ({share})."
    )


def _kernels(timeline: DeviceTimeline) -> str:
    if isinstance(timeline.busy_share, Missing):
        return ""
    return f" In the operator window kernels took {wording.share(timeline.busy_share)} of the step."
