"""What an `nn.LSTM` of the job takes with oneDNN off and on, where torch's own kernels did it.

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


def replay_of(kind, module) -> "dict | None":
    """What it takes to call the layer again; None for what oneDNN would not do, or is too long.

    oneDNN does an LSTM over whole sequences. `kind` is of `library_use`; its `how` is what `aten::lstm` got after its
    weights.
    """
    facts, how = kind.facts, kind.facts["how"]
    if facts["kernel"] != "aten::lstm" or facts["dtype"] not in _TYPES:
        return None
    call_ns = sum(kind.spent) / kind.calls
    if len(facts["input"]) != 3 or len(how) != 6 or getattr(module, "proj_size", 1) or call_ns > _TOO_LONG_NS:
        return None
    return {
        "dtype": facts["dtype"],
        "input": facts["input"],
        "how": how,
        "hidden": module.hidden_size,
        "weights": [tuple(weight.shape) for weight in module._flat_weights],
        "backward": kind.spent[1] > 0 and not torch.is_inference_mode_enabled(),
        "places": 1 if call_ns > _LONG_NS else replay.PLACES,
    }


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
                native_ms, onednn_ms = onednn.off_and_on([_call(one) for _ in range(one["places"])])
            found[-1] = {**layer, "native_ms": native_ms, "onednn_ms": onednn_ms}
        except Exception:  # a module of another kind, or not replayable: no timing, no harm
            continue
    return found


def _call(one: dict):
    dtype, with_gradient = getattr(torch, one["dtype"]), one["backward"]
    biases, layers, dropout, train, bidirectional, batch_first = one["how"]
    source = torch.ones(one["input"], dtype=dtype)
    weights = [torch.full(shape, 0.01, dtype=dtype).requires_grad_(with_gradient) for shape in one["weights"]]
    samples = source.shape[0 if batch_first else 1]
    states = torch.zeros(layers * (2 if bidirectional else 1), samples, one["hidden"], dtype=dtype)
    switches = (bool(biases), layers, dropout, bool(train), bool(bidirectional), bool(batch_first))

    def run() -> None:
        result = torch._VF.lstm(source, (states, states), weights, *switches)[0]
        if with_gradient:
            replay.run_backward(result, torch.ones_like(result), tuple(weights))

    return run
