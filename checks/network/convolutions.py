"""A convolution that takes most of the step because of its kernel, its channels or the points it is computed at."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, present, share
from perfdoctor.api.quantities import ConvolutionTiming, Layer, Missing

from .case import Case
from .layer_table import about, shape

_SMALL = 3
"""Side of the kernels that a larger one can be replaced by: two of 3 see as far as one of 5."""


@dataclass(frozen=True, slots=True)
class _Excess:
    """The one factor of a convolution's arithmetic that is furthest beyond what it could be."""

    factor: str
    times: float
    """Over the neighbours' median; of a kernel over the small one's."""


def dominant_convolutions(case: Case) -> tuple[Finding, ...]:
    """One that takes and computes most: seldom two."""
    convolutions = [
        layer
        for layer in case.profile.layers
        if layer.leaf and layer.kind.startswith("Conv") and len(layer.weight_shape) > 2 and layer.flops_per_step
    ]
    return present(*(_dominant(case, layer, convolutions) for layer in convolutions))


def _dominant(case: Case, layer: Layer, convolutions: list[Layer]) -> Finding | None:
    limits = case.limits
    cost = Cost(case.step, layer.ms)
    if case.sure_share(layer.ms) < limits.oversized_share or layer.flop_share < limits.oversized_share:
        return None
    others = [other for other in convolutions if other is not layer]
    excess = _excess(layer, others)
    if excess.times < limits.convolution_excess:
        return None
    usual = statistics.median(other.flops_per_step for other in others) if others else layer.flops_per_step
    ill = excess.factor == "kernel" and layer.flops_per_step >= limits.convolution_flops * usual
    timed = _timing(case, layer)
    saved = _saved(layer, excess.factor, timed)
    return Finding(
        id="PD09.dominant-convolution",
        severity=case.severity(cost) if ill else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="one convolution, {layer}, takes {cost_ms} per step ({cost_share})",
        reasoning="it does {flop_share} of the arithmetic, "
        + ("{of_usual} that of a usual one here, " if others else "")
        + {
            "kernel": "because of its kernel: {weight} has {excess} the weights of one with sides of 3",
            "channels": "because of its channels: {weight} connects {excess} as many as the other convolutions do",
            "places": "because of its place: it is computed at {excess} as many points as the other convolutions",
        }[excess.factor],
        evidence=(
            *about(layer, case.step),
            Measurement("of_usual", layer.flops_per_step / usual, "ratio", "its arithmetic over the others' median"),
            Measurement("excess", excess.times, "ratio", excess.factor),
            Measurement("input", shape(layer.input_shape) or "no tensor", "text", "input"),
            *(share(f"as_{way}", left, f"of its time: {_WAYS[way]}") for way, left in _left(timed).items()),
        ),
        fix=_fix(excess.factor, timed),
        location=location(layer.place),
        savings=cost.savings(saved, _method(excess.factor, timed)),
    )


def _excess(layer: Layer, others: list[Layer]) -> _Excess:
    """Arithmetic is kernel x channels x places. A smaller kernel can always be asked for; for the others only
    neighbours say what is usual."""
    kernel = layer.weight_shape[2:]
    found = [_Excess("kernel", math.prod(kernel) / math.prod(min(_SMALL, side) for side in kernel))]
    if layer.weight_shape[1] == 1:  # depthwise, or of one channel: a large kernel is cheap there
        found = [_Excess("kernel", 1.0)]
    if others:
        for factor, of in (("channels", _channels), ("places", _places)):
            found.append(_Excess(factor, of(layer) / statistics.median(map(of, others))))
    return max(found, key=lambda excess: excess.times)


def _channels(layer: Layer) -> float:
    return math.prod(layer.weight_shape[:2])


def _places(layer: Layer) -> float:
    """In proportion to them: operations for each weight."""
    return layer.flops_per_step / math.prod(layer.weight_shape)


def _timing(case: Case, layer: Layer) -> ConvolutionTiming | None:
    ops = case.evidence.ops
    timings = () if isinstance(ops, Missing) else ops.convolution_timings
    of_layer = (timing for timing in timings if timing.weight_shape == layer.weight_shape)
    return next((timing for timing in of_layer if timing.input_shape == layer.input_shape), None)


def _left(timing: ConvolutionTiming | None) -> dict[str, float]:
    """What other layers leave of its time, by name, the least first."""
    left = {way: timing.share(way) for way, _ in timing.ways} if timing is not None else {}
    return dict(sorted(((way, part) for way, part in left.items() if part is not None), key=lambda pair: pair[1]))


def _cheaper(timing: ConvolutionTiming | None) -> dict[str, float]:
    """Those that are worth a word."""
    return {way: part for way, part in _left(timing).items() if part <= 1 - _WORTH}


def _saved(layer: Layer, factor: str, timing: ConvolutionTiming | None) -> tuple[float, float]:
    """Of the layer's time. Of a kernel: with as many small ones as see as far, by timing where there is one, and with
    one. Else with the layers that were timed in its place, the dearest and the cheapest of them."""
    if factor != "kernel":
        parts = _cheaper(timing).values()
        return (1 - max(parts), 1 - min(parts)) if parts else (0.0, 0.0)
    kernel = layer.weight_shape[2:]
    one = math.prod(min(_SMALL, side) for side in kernel) / math.prod(kernel)
    as_many = max(1, (max(kernel) - 1) // (_SMALL - 1))
    left = timing.share("small") if timing is not None else None
    return max(0.0, 1 - (_LESS_WELL * as_many * one if left is None else max(one, left))), max(0.0, 1 - one)


def _method(factor: str, timing: ConvolutionTiming | None) -> str:
    if factor != "kernel":
        return (
            "other layers timed in its place in the job's process, on its shapes: the dearest and the cheapest of them"
            if _cheaper(timing)
            else "not predicted: it depends on how much smaller the layer may be"
        )
    small = "kernels of 3 that see as far together"
    if timing is not None and timing.share("small") is not None:
        return f"at least with {small}, timed in the job's process; at most with one of them, by its arithmetic"
    return f"the layer's time by the arithmetic that is left: at least with {small}, at most with one of them"


def _fix(factor: str, timing: ConvolutionTiming | None) -> Fix:
    """By what was timed, the cheapest first."""
    told = ", ".join(f"{_WAYS[way]} {{as_{way}}}" for way in _cheaper(timing))
    if not told:
        return _FIXES[factor]
    return Fix(text=f"Put another layer in its place. Timed here on its shapes, of its time: {told}.", risk=_ANOTHER)


_LESS_WELL = 2.0
"""Time per operation of small kernels over that of a large one, at worst: 0.6 to 1.8 of nine shapes on a CPU, in one
and two dimensions, with kernels of 5 to 31."""
_WORTH = 0.1
"""Of its time: what another layer must save to be worth a word."""
_WAYS = {
    "small": "kernels of 3 that see as far",
    "depthwise": "a depthwise one and a 1x1",
    "groups": "four groups",
    "bottleneck": "a quarter of the channels between two of 1x1",
    "stride": "twice the stride (where pooling follows)",
}
_ANOTHER = "Each is another model: train it anew, and compare the validation loss."
_LESS = "A smaller layer may learn less: compare the validation loss."
_FIXES = {
    "kernel": Fix(
        text="Replace the kernel by one or several of 3, which see as far one after another; or by a depthwise one "
        "(`groups=channels`) and a 1x1 convolution.",
        risk=_LESS,
    ),
    "channels": Fix(
        text="Narrow its channels, compute it on fewer (a 1x1 convolution before and after), or in `groups`.",
        risk=_LESS,
    ),
    "places": Fix(
        text="Compute it at fewer points: a stride or pooling before it, or more of the network after the next "
        "pooling.",
        risk=_LESS,
    ),
}
