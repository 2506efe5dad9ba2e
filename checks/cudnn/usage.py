"""How cuDNN is used: which algorithms it may choose from, and how tensors and weights lie in memory."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement, milliseconds, share
from perfdoctor.api.quantities import Missing

from .case import Case

_BENCHMARK_SAVES = (0.0, 0.3)
"""Of convolution time: speechbrain#294 reports 1.4 and 2.4 times, the tuning guide nothing for some."""
_RETUNING_COSTS = (0.1, 0.9)
"""Of forward and backward in steps with a new shape: pytorch#2759 reports steps 26 to 100 times longer."""
_FIXED_SHAPES = 3
"""Shapes of batches that still count as fixed: a ragged last batch and a validation size."""
_NEW_SHAPES = 0.10
"""Share of batches with a new shape, still in the second half, from which on tuning to each costs more than it gives.
Steps in the ordinary run of training see none."""


def benchmark_on_new_shapes(case: Case) -> Finding | None:
    """cuDNN tries its algorithms again for every new shape."""
    shapes, parts = case.cudnn.shapes, case.step.parts
    if not case.cudnn.benchmark or isinstance(shapes, Missing) or not case.by_cudnn:
        return None
    new = shapes.late / max(1.0, shapes.sampled / 2)
    if new < _NEW_SHAPES:
        return None
    return case.finding(
        "benchmark-on-new-shapes",
        "cuDNN benchmarks its algorithms again for every new shape, and {new} of the batches have one",
        "`torch.backends.cudnn.benchmark` is True, which pays for shapes that come back; {distinct} of "
        "{sampled:batch} looked at had a shape of their own, and new ones still came in the second half",
        (parts.forward + parts.backward) * min(1.0, new),
        _RETUNING_COSTS,
        Fix(text="Switch it off, or bring batches to a few sizes.", code="torch.backends.cudnn.benchmark = False"),
        "forward and backward of the steps with a new shape; how much of that is trying was not measured",
        share("new", new, "of the batches in the second half"),
        Measurement("distinct", shapes.distinct, "count", "shapes seen"),
        Measurement("sampled", shapes.sampled, "count", "batches looked at"),
        at=case.cudnn.benchmark_at,
    )


def benchmark_off(case: Case) -> Finding | None:
    """Fixed shapes, whose algorithms cuDNN could try once."""
    cudnn, shapes, cost = case.cudnn, case.cudnn.shapes, case.ms(case.by_cudnn)
    if cudnn.benchmark or cudnn.deterministic or isinstance(shapes, Missing) or shapes.distinct > _FIXED_SHAPES:
        return None
    if cost / case.step.step_ms < case.limits.convolution_share:
        return None
    return case.finding(
        "benchmark-off",
        "convolutions take {cost_ms} per step ({cost_share}) in algorithms that cuDNN did not benchmark",
        "`torch.backends.cudnn.benchmark` is False, and {sampled:batch} looked at had {distinct:shape}",
        cost,
        _BENCHMARK_SAVES,
        Fix(
            text="Let cuDNN try its algorithms once for each shape.",
            remedies=("cudnn.benchmark",),
            code="torch.backends.cudnn.benchmark = True",
            risk="The first step with a shape takes longer, memory may grow, and the last digits can differ between "
            "runs.",
        ),
        "the device's time in convolutions; nothing to 30 % was reported, not measured in this run",
        Measurement("distinct", shapes.distinct, "count", "shapes seen"),
        Measurement("sampled", shapes.sampled, "count", "batches looked at"),
        note=True,
    )


_DETERMINISTIC_COSTS = (0.05, 0.2)
"""Of convolution time: reports of 10 to 20 % of training (ADD-GCN#13, lerobot#3102)."""


def deterministic(case: Case) -> Finding | None:
    """By the device's time in convolutions."""
    if not case.cudnn.deterministic:
        return None
    return case.finding(
        "deterministic",
        "convolutions take {cost_ms} per step ({cost_share}) with cuDNN's deterministic algorithms only",
        "`torch.backends.cudnn.deterministic` is True",
        case.ms(case.by_cudnn),
        _DETERMINISTIC_COSTS,
        Fix(
            text="Switch it off where runs need not repeat each other to the bit.",
            code="torch.backends.cudnn.deterministic = False",
            risk="Two runs with one seed no longer agree to the last digit.",
        ),
        "the device's time in convolutions; 5 to 20 % was reported, not measured in this run",
        note=True,
        at=case.cudnn.deterministic_at,
    )


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
        note=True,
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
