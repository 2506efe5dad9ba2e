"""What an `nn.LSTM` of the job takes with oneDNN off and on, where torch's own kernels did it: timed in the job.

Runs when the operator window closes, between two steps, on tensors of its own; the switch is put back.
"""

import time

import torch

_ROUNDS = 5
_ENOUGH_NS = 60_000_000
_LONG_US = 60_000
"""A layer that takes longer a call is not replayed."""
_TYPES = ("float32", "bfloat16")


def price(record: dict, how: list, module) -> dict:
    """`native_us` and `onednn_us` of a call, forward and (where the job had one) backward; nothing if not replayed.

    Only of what oneDNN does: an LSTM over whole sequences. `how` is what `aten::lstm` got after its weights.
    """
    if record["kernel"] != "aten::lstm" or record["dtype"] not in _TYPES:
        return {}
    spent_us = (record["forward_us"] + record["backward_us"]) / record["calls"]
    if len(record["input"]) != 3 or len(how) != 6 or getattr(module, "proj_size", 1) or spent_us > _LONG_US:
        return {}
    now = bool(torch._C._get_mkldnn_enabled())
    state = torch.get_rng_state()
    try:
        with_gradient = record["backward_us"] > 0 and not torch.is_inference_mode_enabled()
        with torch.set_grad_enabled(with_gradient), torch.autocast("cpu", enabled=False):
            native, onednn = _times(record, how, module, with_gradient)
    except Exception:  # a module of another kind, or not replayable: no price, no harm
        return {}
    finally:
        torch._C._set_mkldnn_enabled(now)
        torch.set_rng_state(state)
    return {"native_us": native / 1000, "onednn_us": onednn / 1000}


def _times(record: dict, how: list, module, with_gradient: bool) -> tuple:
    dtype = getattr(torch, record["dtype"])
    _, layers, dropout, train, bidirectional, batch_first = how
    source = torch.ones(record["input"], dtype=dtype)
    weights = [torch.full(w.shape, 0.01, dtype=dtype).requires_grad_(with_gradient) for w in module._flat_weights]
    samples = source.shape[0 if batch_first else 1]
    states = torch.zeros(layers * (2 if bidirectional else 1), samples, module.hidden_size, dtype=dtype)
    gradient = None
    best = {}
    began = time.perf_counter_ns()
    for attempt in range(_ROUNDS + 1):
        if attempt > 2 and time.perf_counter_ns() - began > _ENOUGH_NS:
            break
        for on in (False, True):
            torch._C._set_mkldnn_enabled(on)
            start = time.perf_counter_ns()
            result = torch._VF.lstm(
                source,
                (states, states),
                weights,
                bool(how[0]),
                layers,
                dropout,
                bool(train),
                bool(bidirectional),
                bool(batch_first),
            )[0]
            if with_gradient:
                gradient = torch.ones_like(result) if gradient is None else gradient
                # Not through torch.autograd: the job's backward passes are counted there.
                torch.autograd.Variable._execution_engine.run_backward(
                    (result,), (gradient,), False, False, tuple(weights), True, False
                )
            took = time.perf_counter_ns() - start
            if attempt:  # the first loads kernels and touches the pages
                best[on] = min(best.get(on, took), took)
    return best[False], best[True]
