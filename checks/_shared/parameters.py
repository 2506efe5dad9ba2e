"""Lines that go through a model's parameters one by one: what happens around an update. PD17 judges them, and PD10
leaves them to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from perfdoctor.api.quantities import CallSite, Evidence, Line, Missing, Step

from .lines import function, key

LEAST_RUNS = 8
"""Runs of a line per step; fewer are no loop."""
STATE_SHARE = 0.10
"""Of the step, from which on lines that copy a model's state are told: less is not worth the thought."""
_STATE_CALLS = ("_save_to_state_dict", "_load_from_state_dict")
_DEEP_COPY = "torch/nn/parameter.py:__deepcopy__"
"""What `copy.deepcopy(model)` calls for each parameter."""
_OVER_PARAMETERS = re.compile(r"parameters\(|param_groups|\bparams\b|\.grads?\b|state_dict\(|\bgrads\b|\bparameters\b")
"""What is written at the head of a loop over parameters or their gradients."""
_CLIPPING = "torch/nn/utils/clip_grad.py"
_PER_CALL = 5
"""Operators for each tensor from which on clipping is called for each: a call takes 8, and two for each of its tensors
with `foreach=False`, which on a CPU is no slower than all at once (0.71 ms for 124 tensors, and 0.63)."""
_PARTS = ("other", "optimizer")
_MOST = 0.5
"""Of the gradients, for which a hook is called that looks at all: one on every weight, and on no bias."""


@dataclass(frozen=True, slots=True)
class ParameterLoop:
    """Lines of one function that run once for each parameter: between the passes, in the job's own optimizer, or in the
    backward pass, which calls it for each gradient."""

    lines: tuple[Line, ...]
    reads: tuple[CallSite, ...]
    """Scalars that they read."""

    @property
    def main(self) -> Line:
        return max(self.lines, key=lambda line: line.ms_per_step)

    @property
    def ms(self) -> float:
        return sum(line.ms_per_step for line in self.lines)

    @property
    def ops_ms(self) -> float:
        """In their operators."""
        return sum(line.ops_ms for line in self.lines)

    @property
    def ops(self) -> float:
        return sum(line.ops_per_step for line in self.lines)

    @property
    def is_hook(self) -> bool:
        """Whether the backward pass calls it."""
        return self.main.part == "backward"

    @property
    def is_clipping(self) -> bool:
        """Whether torch's function is called for one tensor after another."""
        return self.main.site.via.startswith(_CLIPPING)


def state_lines(step: Step, lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines outside the model's passes that take its state or put it back, and the loops over it beside them; none
    where they cost little."""
    outside = [line for line in lines if line.part == "other"]
    taking = [line for line in outside if is_deep_copy(line) or any(name in line.site.via for name in _STATE_CALLS)]
    functions = {function(line.site) for line in taking}
    same = {key(line.site) for line in taking}

    def belongs(line: Line) -> bool:
        is_loop = line.runs_per_step >= LEAST_RUNS and not line.site.via.startswith("torch/nn/")
        return key(line.site) in same or (is_loop and function(line.site) in functions)

    found = tuple(line for line in outside if belongs(line))
    return found if sum(line.ms_per_step for line in found) >= STATE_SHARE * step.step_ms else ()


def is_deep_copy(line: Line) -> bool:
    """Whether a line copies a whole module with `copy.deepcopy`."""
    return line.site.via.endswith(_DEEP_COPY)


def parameter_loops(
    evidence: Evidence, lines: Iterable[Line], reads: Sequence[CallSite], told: set[tuple[str, int]]
) -> list[ParameterLoop]:
    """Loops over parameters among the lines but for those that were `told`, the dearest first."""
    timing = Missing("no operators") if isinstance(evidence.ops, Missing) else evidence.ops.parameters
    tensors = inf if isinstance(timing, Missing) else max(LEAST_RUNS, timing.tensors)
    reading = {key(read.site) for read in reads}
    of_function: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        is_loop = line.part in _PARTS and _is_loop(line, _PER_CALL * tensors)
        if key(line.site) not in told and (is_loop or (key(line.site) in reading and _is_hook(line, tensors))):
            of_function.setdefault((*function(line.site), line.part), []).append(line)
    loops = []
    for group in of_function.values():
        here = {key(line.site) for line in group}
        loops.append(ParameterLoop(tuple(group), tuple(read for read in reads if key(read.site) in here)))
    return sorted(loops, key=lambda loop: -loop.ms)


def _is_hook(line: Line, tensors: float) -> bool:
    """Of a line that reads numbers: whether the backward pass calls it for most of the gradients."""
    return line.part == "backward" and line.loop is None and line.runs_per_step >= _MOST * tensors


def _is_loop(line: Line, least_ops: float) -> bool:
    """`least_ops`: of a line that clips."""
    if line.site.via.startswith(_CLIPPING):
        return line.ops_per_step >= least_ops
    by_torch = line.site.via.startswith("torch/optim/")
    return line.loop is not None and not by_torch and _OVER_PARAMETERS.search(line.loop.header) is not None
