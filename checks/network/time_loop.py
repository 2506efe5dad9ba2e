"""Recurrent cells, and whole recurrent layers, that Python calls once per time step."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import InTurn, Layer, Missing

from .._shared.lines import CELLS
from .._shared.run_again import saved_in_turn
from .case import Case
from .layer_table import about

_WHOLE = frozenset(CELLS.values())
"""Layers for whole sequences, which a loop may call with one time step each."""
_FUSED_SAVES = (0.3, 0.8)
"""An `nn.LSTM` of the same sizes computes the input's products at once and runs no Python per time step: 7 to 91 % of
four sizes, forward and backward, on a CPU with one thread."""
_UNFUSED_SAVES = (0.0, 0.4)
"""`nn.GRU` and `nn.RNN` have no such kernel on a CPU: -5 to 18 % and -14 to 37 % of the same sizes; in two whole
programs 15 and 35 %, because the loop's indexing goes too."""


def time_loops(case: Case) -> tuple[Finding, ...]:
    """One for each cell that is called often and costs enough, and is in no module of which PD10 tells as much."""
    ops = case.evidence.ops
    in_turn = () if isinstance(ops, Missing) else ops.in_turn
    least_ms = case.limits.min_share * case.step.step_ms
    told = [one for one in in_turn if saved_in_turn(case.step, one)[0] >= least_ms]
    return tuple(
        _time_loop(case, cell, fused)
        for cell in case.profile.layers
        if (fused := _fused(case, cell)) is not None
        and cell.calls_per_step >= case.limits.cell_calls
        and case.sure_share(cell.ms) >= case.limits.min_share
        and not any(_holds(one, cell) for one in told)
    )


def _holds(one: InTurn, cell: Layer) -> bool:
    if not one.name:  # the loop calls it itself, and so names its layers without it
        return cell.calls_per_step == one.calls_per_step
    return cell.name == one.name or cell.name.startswith(f"{one.name}.")


def _fused(case: Case, cell: Layer) -> str | None:
    """The layer that would take the whole sequence; None for what is no cell, and is not used like one."""
    if cell.kind not in _WHOLE:
        return CELLS.get(cell.kind)
    # One time step: sequences have two dimensions, or three with a batch before or after the time. Where the whole
    # network is called as often, each call is a batch of one, or waits for what the last one led to.
    outer = max((layer.calls_per_step for layer in case.profile.layers if not layer.name), default=1.0)
    passes = outer if cell.name else 1.0
    one_step = len(cell.input_shape) > 1 and 1 in cell.input_shape[:-1]
    return cell.kind if one_step and cell.calls_per_step >= case.limits.cell_calls * max(1.0, passes) else None


def _time_loop(case: Case, cell: Layer, fused: str) -> Finding:
    in_one = fused == "LSTM" or case.evidence.on_cuda
    least, most = _FUSED_SAVES if in_one else _UNFUSED_SAVES
    return Finding(
        id="PD09.time-loop",
        severity=case.severity(Cost(case.step, cell.ms if in_one else most * cell.ms)),
        confidence=Confidence.MEDIUM,
        message="a Python loop calls {layer} {calls:time} per step: {cost_ms} ({cost_share})",
        reasoning="each time step issues small operators of its own; "
        + (
            "a fused layer runs the whole sequence in one, and computes the input's products for all time steps at once"
            if in_one
            else f"`nn.{fused}` has no fused kernel on a CPU, but needs no Python per time step"
        ),
        evidence=(*about(cell, case.step), Measurement("calls", cell.calls_per_step, "count", "calls per step")),
        location=location(cell.called_at),
        fix=Fix(
            text=f"Run whole sequences through `nn.{fused}`; if steps feed back into their input, shorten the sequence "
            "that is trained at once.",
            code=f"self.rnn = nn.{fused}(inputs, hidden, batch_first=True)\noutput, state = self.rnn(x)",
            risk="Sums are taken in another order, so the last digits of results may differ.",
        ),
        savings=Cost(case.step, cell.ms).savings(
            (least, most),
            "the measured time of the cell; a layer for whole sequences saves "
            + ("30 to 80 % of it" if in_one else "up to 40 % of it"),
        ),
    )
