"""How tensors and weights lie in memory: channels first, recurrent weights in pieces."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement, milliseconds
from perfdoctor.api.quantities import Missing

from .case import Case

_CHANNELS_LAST_SAVES = (0.08, 0.35)
"""Of convolution time in half precision: the memory-format tutorial's range, 22 % for ResNet-50."""
_HALF = ("float16", "bfloat16")
_TENSOR_CORES = (7, 0)


def channels_first(case: Case) -> Finding | None:
    """Half-precision convolutions on tensors with their channels first, which tensor cores do not read."""
    precision = case.evidence.precision
    capability = None if isinstance(precision, Missing) else precision.compute_capability
    if capability is None or capability < _TENSOR_CORES:
        return None
    some = [one for one in case.by_cudnn if one.dtype in _HALF and one.channels_last is False]
    cost = case.ms(some)
    turning = min(case.use.layout_ms, cost)
    low = max(_CHANNELS_LAST_SAVES[0], turning / cost if cost > 0 else 0.0)
    return case.finding(
        "channels-first",
        "half-precision convolutions on channels-first tensors take {cost_ms} per step ({cost_share})",
        "tensor cores do not read that format: the inputs of {convolutions:kind} of convolution were not "
        "channels-last, and kernels that transpose them take {turning_ms} per step",
        cost,
        (low, max(low, _CHANNELS_LAST_SAVES[1])),
        Fix(
            text="Keep model and images in the channels-last format.",
            remedies=("layout.channels-last",),
            code="model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)",
            risk="Operators without a kernel for it turn tensors back; `view` on such tensors can fail, `reshape` does "
            "not.",
        ),
        "the device's time in these convolutions; 8 to 35 % was measured elsewhere, not in this run",
        Measurement("convolutions", len(some), "count", "kinds of convolution"),
        milliseconds("turning_ms", turning, "transposing tensors, per step"),
    )


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
