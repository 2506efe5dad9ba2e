"""What an `nn.LSTM` of the job takes another way, where torch's own kernels did it: with oneDNN off and on, and
where it was given packed sequences, as those and padded.

Timed after the job's last step, on tensors of its own.
"""

import time

import torch

from . import onednn, replay

_LONG_NS = 150_000_000
"""A layer that takes longer a call is replayed in one place only ..."""
_TOO_LONG_NS = 300_000_000
"""... and from here on not at all: four calls of it are more than a second."""
_LIMIT_NS = 1_000_000_000
"""For all layers together; the one that reaches it is the last."""
_TYPES = ("float32", "bfloat16")
_PADDED = 4
"""Times as many steps in padded sequences as in packed ones, at most: beyond that there is nothing to ask."""


def replay_of(kind, title) -> "dict | None":
    """What it takes to call the layer again; None for what oneDNN would not do, or is too long.

    oneDNN does an LSTM over whole sequences. `kind` is of `library_use`; its `how` is what `aten::lstm` got after its
    weights. `title`: of its layer.
    """
    facts, module = kind.facts, title.module
    if facts["kernel"] != "aten::lstm" or facts["dtype"] not in _TYPES or getattr(module, "proj_size", 1):
        return None
    call_ns = sum(kind.spent) / kind.calls
    if call_ns > _TOO_LONG_NS:
        return None
    whole = _of_packed(facts, title.packed) if len(facts["input"]) == 2 else _of_padded(facts)
    if whole is None:
        return None
    return {
        **whole,
        "dtype": facts["dtype"],
        "hidden": module.hidden_size,
        "weights": [tuple(weight.shape) for weight in module._flat_weights],
        "backward": kind.spent[1] > 0 and not torch.is_inference_mode_enabled(),
        "places": 1 if call_ns > _LONG_NS else replay.PLACES,
    }


def _of_padded(facts: dict) -> "dict | None":
    if len(facts["input"]) != 3 or len(facts["how"]) != 6:
        return None
    return {"input": facts["input"], "how": facts["how"], "batch_sizes": None}


def _of_packed(facts: dict, batch_sizes) -> "dict | None":
    """In the other direction a padded sequence begins with its padding, which gives other results."""
    if batch_sizes is None or len(facts["how"]) != 6:
        return None
    sizes, (number, features) = batch_sizes.tolist(), facts["input"]
    _, biases, layers, dropout, train, bidirectional = facts["how"]
    if bidirectional or sum(sizes) != number or sizes[0] * len(sizes) > _PADDED * number:
        return None
    shape, how = [len(sizes), sizes[0], features], (biases, layers, dropout, train, False, False)
    return {"input": shape, "how": how, "batch_sizes": batch_sizes}


def timed(layers: list, replays: list) -> list:
    """The layers, with a call, forward and (where the job had one) backward, both ways where it was replayed."""
    began = time.perf_counter_ns()
    found = []
    for layer, one in zip(layers, replays):
        found.append(layer)
        if one is None or time.perf_counter_ns() - began > _LIMIT_NS:
            continue
        try:
            with torch.set_grad_enabled(one["backward"]), torch.autocast("cpu", enabled=False):
                found[-1] = {**layer, **_both_ways(one)}
        except Exception:  # a module of another kind, or not replayable: no timing, no harm
            continue
    return found


def _both_ways(one: dict) -> "dict[str, float]":
    places = range(one["places"])
    if one["batch_sizes"] is None:
        return dict(zip(("native_ms", "onednn_ms"), onednn.off_and_on([_call(one) for _ in places])))
    ways = replay.in_places([[_call(one, packed=True), _call(one)] for _ in places])
    return dict(zip(("packed_ms", "padded_ms"), ways))


def _call(one: dict, packed: bool = False):
    """Forward and backward, on whole sequences; `packed`: on as many of their steps as there were."""
    dtype, with_gradient = getattr(torch, one["dtype"]), one["backward"]
    biases, layers, dropout, train, bidirectional, batch_first = one["how"]
    source = torch.ones(one["input"], dtype=dtype)
    weights = [torch.full(shape, 0.01, dtype=dtype).requires_grad_(with_gradient) for shape in one["weights"]]
    samples = source.shape[0 if batch_first else 1]
    states = torch.zeros(layers * (2 if bidirectional else 1), samples, one["hidden"], dtype=dtype)
    switches = (bool(biases), layers, dropout, bool(train), bool(bidirectional))
    if packed:
        given = (source.flatten(0, 1)[: int(one["batch_sizes"].sum())], one["batch_sizes"], (states, states), weights)
    else:
        given, switches = (source, (states, states), weights), (*switches, bool(batch_first))

    def run() -> None:
        result = torch._VF.lstm(*given, *switches)[0]
        if with_gradient:
            replay.run_backward(result, torch.ones_like(result), tuple(weights))

    return run
