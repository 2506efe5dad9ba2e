"""The algorithms that cuDNN may choose from: tried for each shape or not, and only deterministic ones."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement, share
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
    )
