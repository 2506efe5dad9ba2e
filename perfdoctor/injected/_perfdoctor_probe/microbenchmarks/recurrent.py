"""What an `nn.LSTM` of the job takes with oneDNN off and on, where torch's own kernels did it.

Timed after the job's last step, on tensors of its own.
"""

import time

import torch

from . import onednn, replay

_LONG_US = 150_000
"""A layer that takes longer a call is replayed in one place only ..."""
_TOO_LONG_US = 300_000
"""... and from here on not at all: four calls of it are more than a second."""
_LIMIT_NS = 1_000_000_000
"""For all layers together; the one that reaches it is the last."""
_TYPES = ("float32", "bfloat16")


def replays(record: dict, how: list, module) -> "dict | None":
    """What it takes to call the layer again; None for what oneDNN would not do, or is too long.

    oneDNN does an LSTM over whole sequences. `how` is what `aten::lstm` got after its weights.
    """
    if record["kernel"] != "aten::lstm" or record["dtype"] not in _TYPES:
        return None
    spent_us = (record["forward_us"] + record["backward_us"]) / record["calls"]
    if len(record["input"]) != 3 or len(how) != 6 or getattr(module, "proj_size", 1) or spent_us > _TOO_LONG_US:
        return None
    return {
        "dtype": record["dtype"],
        "input": record["input"],
        "how": how,
        "hidden": module.hidden_size,
        "weights": [tuple(weight.shape) for weight in module._flat_weights],
        "backward": record["backward_us"] > 0 and not torch.is_inference_mode_enabled(),
        "places": 1 if spent_us > _LONG_US else replay.PLACES,
    }


def timings(replays: list) -> list:
    """`native_us` and `onednn_us` of a call, forward and (where the job had one) backward; empty if not replayed."""
    began = time.perf_counter_ns()
    found = []
    for one in replays:
        found.append({})
        if one is None or time.perf_counter_ns() - began > _LIMIT_NS:
            continue
        try:
            with torch.set_grad_enabled(one["backward"]), torch.autocast("cpu", enabled=False):
                native_us, onednn_us = onednn.off_and_on([_call(one) for _ in range(one["places"])])
            found[-1] = {"native_us": native_us, "onednn_us": onednn_us}
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
