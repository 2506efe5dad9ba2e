"""The guide's figures for a network, and the table of its slowest layers, as measurements."""

from __future__ import annotations

from collections import Counter

from perfdoctor.api.findings import Cost, Measurement, milliseconds, share
from perfdoctor.api.quantities import Layer, LayerProfile, Step

_SHOWN = 5
"""Layers in the table."""
LESS = (0.5, 0.95)
"""Of a layer's time: half the width, or half of the elements that it works on, saves half; without the layer nearly all
goes (95 % in a program of 3.7x)."""
POOLED = (0.75, 0.98)
"""The same on pictures: pooling by two leaves a quarter of them, to a few values next to nothing (88 % and all was
saved, 3.7x and 3.6x)."""


def title(layer: Layer) -> str:
    """`encoder.0 (Linear)`; the class alone for what the loop calls itself."""
    return f"{layer.name} ({layer.kind})" if layer.name else layer.kind


def shape(sizes: tuple[int, ...]) -> str:
    """`32 x 512`."""
    return " x ".join(map(str, sizes))


def last_linear(profile: LayerProfile) -> Layer | None:
    """The `Linear` that was called last."""
    linear = [layer for layer in profile.layers if layer.kind == "Linear" and layer.weight_shape]
    return max(linear, key=lambda layer: layer.order, default=None)


def about(layer: Layer, step: Step) -> tuple[Measurement, ...]:
    """What a finding says of a layer. The first is what tells layers apart."""
    return (
        Measurement("layer", title(layer), "text"),
        *Cost(step, layer.ms).measured("its forward and backward"),
        milliseconds("forward_ms", layer.forward_ms, "forward"),
        milliseconds("backward_ms", layer.backward_ms, "backward"),
        share("time_share", layer.time_share, "of the profiled time"),
        share("flop_share", layer.flop_share, "of the FLOPs"),
        Measurement("weight", shape(layer.weight_shape) or "none", "text", "weight"),
        Measurement("weights", layer.parameters, "count", "parameters"),
    )


def figures(profile: LayerProfile, step: Step, parameters: int) -> tuple[Measurement, ...]:
    """Information only: none of these numbers is too large by itself."""
    layers = profile.layers
    slowest = layers[0]
    first = min(layers, key=lambda layer: layer.order)
    kinds = Counter(layer.kind for layer in layers if layer.leaf)
    found = [
        Measurement("layers", profile.count, "count", "modules called"),
        Measurement("slowest", title(slowest), "text", "slowest layer"),
        milliseconds("slowest_ms", slowest.ms, "its forward and backward"),
        share("slowest_share", Cost(step, slowest.ms).share, "of the step"),
        Measurement("kinds", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(4)) or "none", "text"),
        Measurement("input", shape(first.input_shape) or "not a tensor", "text", "input"),
        Measurement("parameters", parameters, "count", "parameters"),
        Measurement("parameter_bytes", sum(layer.parameter_bytes for layer in layers), "bytes", "parameters in memory"),
    ]
    kernels = [max(layer.weight_shape[2:]) for layer in layers if layer.kind.startswith("Conv") and _has_kernel(layer)]
    if kernels:
        found.append(Measurement("kernel", max(kernels), "count", "largest kernel"))
    if widest := max(layer.width for layer in layers):
        found.append(Measurement("width", widest, "count", "widest layer"))
    if last := last_linear(profile):
        found.append(Measurement("outputs", last.weight_shape[0], "count", "outputs of the last Linear"))
    for number, layer in enumerate(layers[:_SHOWN], 1):
        name = title(layer)
        found += [
            milliseconds(f"layer_{number}_ms", layer.ms, f"{name}: forward and backward"),
            share(f"layer_{number}_time", layer.time_share, f"{name}: of the profiled time"),
            share(f"layer_{number}_flops", layer.flop_share, f"{name}: of the FLOPs"),
        ]
    return tuple(found)


def _has_kernel(layer: Layer) -> bool:
    return len(layer.weight_shape) > 2
