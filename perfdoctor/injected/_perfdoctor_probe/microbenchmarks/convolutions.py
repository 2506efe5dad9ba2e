"""What the convolution that takes most would take otherwise: on its own shapes, by other layers in its place.

Another layer learns differently, so these are choices, not faults; how much each is worth depends on the shapes. Timed
after the job's last step, forward and backward, on tensors of its own.
"""

import torch

from . import replay

_DOMINANT = 0.3
"""Of the time of all operators, forward and backward: below, no other layer in its place changes the step much."""
_TYPES = ("float32", "bfloat16")
_LIMIT_NS = 600_000_000
_LONGEST_MS = 400.0
"""Of one call forward and back: longer ones would hold up the job's end."""
_SMALL = 3
_GROUPS = 4
_NARROW = 16
"""Channels from which on a bottleneck of a quarter of them still has four."""


def timings(ops: list, arguments: list) -> list:
    """The convolution as it is and as other layers; empty where none takes so much of the time, or it cannot be made of
    others: transposed, dilated, grouped already, of one channel, 1 x 1."""
    every_ms = sum(op["self_ms_per_step"] for op in ops)
    spent: "dict[tuple, float]" = {}
    for op, (name, shapes, *_) in zip(ops, arguments):
        if name in ("aten::convolution", "aten::convolution_backward"):
            # The gradient of the output comes first in the backward pass.
            pair = tuple(map(tuple, shapes[name.endswith("backward") :][:2]))
            spent[pair] = spent.get(pair, 0.0) + op["total_ms_per_step"]
    for op, (name, shapes, _, concrete) in zip(ops, arguments):
        if name != "aten::convolution" or op["dtype"] not in _TYPES or not replay.fits(shapes):
            continue
        pair = tuple(map(tuple, shapes[:2]))
        if spent[pair] < _DOMINANT * every_ms or spent[pair] / op["calls_per_step"] > _LONGEST_MS:
            continue
        try:
            row = _timed(op, shapes, concrete)
        except Exception:  # not made with plain arguments: no timing, no harm
            continue
        if row is not None:
            return [row]
    return []


def _timed(op: dict, shapes: list, concrete: list) -> "dict | None":
    stride, padding, dilation, transposed, _, groups = concrete[3:9]
    weight = shapes[1]
    if transposed or groups != 1 or any(side != 1 for side in dilation) or weight[1] == 1 or max(weight[2:]) < _SMALL:
        return None
    make = _Made(shapes[0], weight, list(stride), list(padding), getattr(torch, op["dtype"]))
    named = {name: layers for name, layers in make.ways().items() if layers}
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        now, *others = replay.in_turns([make.call(layers) for layers in [make.as_it_is(), *named.values()]], _LIMIT_NS)
    return {
        "input_shape": list(shapes[0]),
        "weight_shape": list(weight),
        "now_ms": now,
        "ways": [[name, took] for name, took in zip(named, others)],
    }


class _Made:
    """Layers in the place of one convolution; each is (weight's shape, stride, padding, groups), one after another."""

    def __init__(self, images: list, weight: list, stride: list, padding: list, dtype) -> None:
        self.images, self.stride, self.padding, self.dtype = images, stride, padding, dtype
        self.outputs, self.inputs, *self.kernel = weight
        self.one = [1] * len(self.kernel)
        self.none = [0] * len(self.kernel)

    def as_it_is(self) -> list:
        return [([self.outputs, self.inputs, *self.kernel], self.stride, self.padding, 1)]

    def ways(self) -> "dict[str, list]":
        """By name; an empty list where it cannot be made so."""
        return {
            "small": self._small(),
            "depthwise": [
                ([self.inputs, 1, *self.kernel], self.stride, self.padding, self.inputs),
                ([self.outputs, self.inputs, *self.one], self.one, self.none, 1),
            ],
            "groups": self._groups(),
            "bottleneck": self._bottleneck(),
            "stride": [
                ([self.outputs, self.inputs, *self.kernel], [2 * side for side in self.stride], self.padding, 1)
            ],
        }

    def _small(self) -> list:
        """As many kernels of 3 as see as far; the first has the stride."""
        side = self.kernel[0]
        less = (side - _SMALL) // 2
        if side <= _SMALL or side % 2 == 0 or self.kernel != [side] * len(self.kernel) or min(self.padding) < less:
            return []
        three = [_SMALL] * len(self.kernel)
        first = ([self.outputs, self.inputs, *three], self.stride, [at - less for at in self.padding], 1)
        return [first, *[([self.outputs, self.outputs, *three], self.one, self.one, 1)] * less]

    def _groups(self) -> list:
        if self.inputs % _GROUPS or self.outputs % _GROUPS:
            return []
        return [([self.outputs, self.inputs // _GROUPS, *self.kernel], self.stride, self.padding, _GROUPS)]

    def _bottleneck(self) -> list:
        """A quarter of the channels between two convolutions of 1 x 1."""
        narrow = min(self.inputs, self.outputs) // _GROUPS
        if min(self.inputs, self.outputs) < _NARROW:
            return []
        return [
            ([narrow, self.inputs, *self.one], self.one, self.none, 1),
            ([narrow, narrow, *self.kernel], self.stride, self.padding, 1),
            ([self.outputs, narrow, *self.one], self.one, self.none, 1),
        ]

    def call(self, layers: list):
        """Forward and backward through them, gradients of all weights and of the images."""
        images = torch.ones(self.images, dtype=self.dtype, requires_grad=True)
        weights = [torch.ones(shape, dtype=self.dtype, requires_grad=True) for shape, *_ in layers]

        def forward():
            found = images
            for weight, (_, stride, padding, groups) in zip(weights, layers):
                found = torch.ops.aten.convolution(
                    found, weight, None, stride, padding, self.one, False, self.none, groups
                )
            return found

        gradient = torch.ones_like(forward().detach())
        return lambda: replay.run_backward(forward(), gradient, (images, *weights))
