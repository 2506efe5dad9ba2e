"""The device's timeline: what the marked steps among the steady ones say."""

from __future__ import annotations

import numpy as np

from ..recording.model import ProcessRecording
from ..recording.operators import OpsWindow
from .model import DeviceParts, DeviceTimeline, Missing, Step
from .stats import trimmed_mean
from .steady import MIN_STEADY, SMOOTH, Selection

HOOK = "device clock"


def timeline(process: ProcessRecording, selection: Selection, step: Step | Missing) -> DeviceTimeline | Missing:
    """Of the steady steps that were marked, or why there is none."""
    absent = _absent(process)
    if absent is not None:
        return absent
    steady = np.isin(process.device["step"], selection.column("step"))
    count = int(steady.sum())
    if count < MIN_STEADY:
        why = "".join(f"; {n} left out because {reason}" for reason, n in sorted(process.device_left_out.items()))
        return Missing(
            f"too few steady steps are marked on the device's timeline: {count}, and at least "
            f"{MIN_STEADY} are needed{why}",
            "let the job run for 60 steps or more",
        )
    ms = {name: column[steady] / 1000 for name, column in process.device.arrays.items()}
    other = ms["total_us"] - sum(ms[f"{name}_us"] for name in ("input_wait", *SMOOTH))
    return DeviceTimeline(
        steps=count,
        parts=DeviceParts(
            input_wait=float(ms["input_wait_us"].mean()),
            **{name: trimmed_mean(ms[f"{name}_us"]) for name in SMOOTH},
            other=max(0.0, trimmed_mean(other)),
        ),
        idle_most_ms=float(ms["idle_most_us"].mean()),
        ahead_low_ms=float(np.median(ms["ahead_low_us"])),
        ahead_high_ms=float(np.median(ms["ahead_high_us"])),
        busy_share=_busy_share(process, step),
    )


def _busy_share(process: ProcessRecording, step: Step | Missing) -> float | Missing:
    window = process.ops
    busy = window.profile.device_busy_ms if isinstance(window, OpsWindow) else None
    if busy is None or isinstance(step, Missing) or step.step_ms <= 0:
        return Missing("the operator window saw no kernels")
    return min(1.0, busy / step.step_ms)


def _absent(process: ProcessRecording) -> Missing | None:
    settings = process.settings
    if settings is None:
        return Missing("the job ended before its settings were read", "let the job run longer")
    if settings.cuda is None:
        return Missing("the process does not use CUDA")
    if settings.device_clock:
        return Missing(settings.device_clock)
    failed = next((fault.error for fault in process.faults if fault.hook == HOOK), None)
    if failed is not None and not len(process.device):
        return Missing(f"marking steps on the device failed ({failed})")
    return None
