"""What goes through all parameters of a job, one by one and together: norms, averages, gradients zeroed and let go.

Timed after the job's last step, on tensors of its own with the shapes of the job's.
"""

import torch

from ..rows import rounded
from . import replay

_VALUE = 0.1
"""Of the tensors: neither it nor its square is so small that the CPU takes longer."""
_DECAY = 0.99
_NAMES = ("norms_ms", "norms_together_ms", "averages_ms", "averages_together_ms")


def timings(noted) -> dict:
    """Of the tensors that an `UpdateMicrobenchmark` has noted."""
    if noted.unlike:
        return {"missing": f"the parameters could not be stood in for: {noted.unlike}"}
    try:
        with torch.no_grad():
            return {**_timed(noted.shapes()), "tensors": noted.tensors, "part": rounded(noted.part)}
    except Exception as error:  # a type that these operators do not know: no timing, no harm
        return {"missing": f"the parameters could not be stood in for: {type(error).__name__}: {error}"[:300]}


def _timed(shapes: list) -> dict:
    found = dict(zip(_NAMES, replay.in_turns(_ways(_made(shapes), _made(shapes)))))
    # With no other tensors of these shapes about, whose memory new gradients would be given.
    zeroed, released = _Gradients(shapes), _Gradients(shapes)
    found["zeroed_ms"], found["released_ms"] = replay.in_turns([zeroed.zero_and_add, released.release_and_take])
    return found


def _ways(values: list, averages: list) -> list:
    def norms() -> None:
        for value in values:
            value.norm().item()

    def norms_together() -> None:
        torch.stack(torch._foreach_norm(values)).norm().item()

    def follow() -> None:
        for average, value in zip(averages, values):
            average.mul_(_DECAY).add_(value, alpha=1 - _DECAY)

    def follow_together() -> None:
        torch._foreach_lerp_(averages, values, 1 - _DECAY)

    return [norms, norms_together, follow, follow_together]


def _made(shapes: list) -> list:
    return [torch.full(shape, _VALUE, dtype=dtype) for shape, dtype in shapes]


class _Gradients:
    """Of one model; what a backward pass makes is stood in for by tensors that are filled."""

    def __init__(self, shapes: list) -> None:
        self.shapes = shapes
        self.all = _made(shapes)

    def zero_and_add(self) -> None:
        for one in self.all:
            one.zero_()
        for one, (shape, dtype) in zip(self.all, self.shapes):
            one.add_(torch.full(shape, _VALUE, dtype=dtype))

    def release_and_take(self) -> None:
        self.all.clear()
        self.all.extend(_made(self.shapes))
