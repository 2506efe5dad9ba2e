"""The steady step on the CUDA device's own timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...recording.base import Missing
from .step import Divided

Bound = Literal["device", "host", "both"]

CAUGHT_UP = 0.2
"""Share of the step. Without work for no longer, the device bounds it; ahead by no more, the host does. A judgement:
launch, the last kernels of a part and the bounds' own width make some per cent of a step of milliseconds."""
BUSY = 0.8
"""From this share of the step with kernels on, the host does not bound it alone, wherever it waits."""


@dataclass(frozen=True, slots=True)
class DeviceParts(Divided):
    """The step on the device, milliseconds: from the event at a part's beginning to the one at its end.

    A part holds the work that the host asked for in it, and the time in which the device had none because the host
    was late. In `input_wait` the host asks for nothing: it is what the wait for a batch left the device without work.
    """

    input_wait: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    other: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """CUDA events at the borders of the parts, in a share of the steady steps, on one stream of one device.

    As on the host, `input_wait` is a mean and the other parts are 5 % trimmed means.
    """

    steps: int
    """Marked steps behind the numbers."""
    parts: DeviceParts
    idle_most_ms: float
    """Mean time per step in which the device can have been without work, at most: between two borders, what the host
    spent there beyond its lead at the first."""
    ahead_low_ms: float
    ahead_high_ms: float
    """Medians of the bounds on the host's lead over the device, at the border where it was furthest ahead."""
    busy_share: float | Missing
    """Share of the step with a kernel on some device, from the operator window."""

    @property
    def total_ms(self) -> float:
        return self.parts.total

    @property
    def bound(self) -> Bound:
        """Who bounds the step.

        The device, when it has work nearly all the time. The host, when the device has caught up with it at every
        border. Else both do by turns: the host waits for the device within the step, or the device for the host.
        """
        if self.idle_most_ms <= CAUGHT_UP * self.total_ms:
            return "device"
        busy = not isinstance(self.busy_share, Missing) and self.busy_share >= BUSY
        return "host" if self.ahead_high_ms <= CAUGHT_UP * self.total_ms and not busy else "both"
