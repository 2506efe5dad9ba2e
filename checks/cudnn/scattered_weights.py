"""Weights of recurrent layers that no longer lie in one chunk of memory."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement

from .case import Case

_COPIES_SAVE = (0.5, 1.0)


def scattered_weights(case: Case) -> Finding | None:
    """By the copies that cuDNN asks for in every call."""
    some = [one for one in case.use.recurrent if one.copies_ms > 0]
    return case.finding(
        "rnn-weights-scattered",
        "scattered weights of recurrent layers are copied in every call: {cost_ms} per step ({cost_share})",
        "`aten::_cudnn_rnn` copied them in {layers:layer}: they no longer lie in one chunk of memory, as after "
        "`deepcopy`, a tied weight or a parametrization",
        min(case.step.step_ms, sum(one.copies_ms for one in some)),
        _COPIES_SAVE,
        Fix(
            text="Put them into one piece again, once, after the model is on its device.",
            code="for module in model.modules():\n    if isinstance(module, torch.nn.RNNBase):\n"
            "        module.flatten_parameters()",
        ),
        "the measured time of the copies on the host's clock",
        Measurement("layers", len(some), "count", "recurrent layers"),
    )
