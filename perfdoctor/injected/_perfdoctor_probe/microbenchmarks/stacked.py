"""Modules of one class as they are called one after the other, and as one call with the weights of all side by side."""

import copy
import time
import warnings

import torch
from torch.func import functional_call, stack_module_state, vmap

from ..windows.equivalents import agree
from . import replay
from .inputs import tensors_in
from .passes import no_obstacle
from .state import State

_LIMIT_NS = 1_000_000_000


def timings(siblings) -> dict:
    """Milliseconds of all their passes, forward and backward, one after the other, `now_ms`, and in one call,
    `stacked_ms`; empty where that cannot be made, or gives other numbers."""
    calls = siblings.calls()
    modules = [call.module() for call in calls]
    if not calls or None in modules or any(call.autocast for call in calls):
        return {}
    states = [State(module) for module in modules]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in modules:
                no_obstacle(module)
            return _timed(modules, [call.inputs for call in calls], siblings.same_input)
    except Exception:  # modules that cannot be called on several weights at once, or not again
        return {}
    finally:
        for state in states:
            state.restore()


def _timed(modules: list, inputs: list, same_input: bool) -> dict:
    arguments = [tuple(args) for args, named in inputs if not named]
    if len(arguments) != len(modules):
        return {}
    weights, buffers = stack_module_state(modules)
    base = copy.deepcopy(modules[0])
    given = arguments[0] if same_input else tuple(map(_stacked, zip(*arguments)))
    apart = tuple(None if same_input or not isinstance(one, torch.Tensor) else 0 for one in given)

    def one_after_the_other() -> list:
        return [next(tensors_in(module(*own))) for module, own in zip(modules, arguments)]

    def call(weight, buffer, *own):
        return next(tensors_in(functional_call(base, (weight, buffer), own)))

    def at_once():
        return vmap(call, in_dims=(0, 0, *apart), randomness="different")(weights, buffers, *given)

    with torch.no_grad():
        wanted, made = torch.stack(one_after_the_other()), at_once()
    if not agree(made, wanted):
        return {}
    own = tuple(one for module in modules for one in module.parameters() if one.requires_grad)
    stacked = tuple(one for one in weights.values() if one.requires_grad)
    ways = (
        lambda: _backward(sum(one.float().sum() for one in one_after_the_other()), own),
        lambda: _backward(at_once().float().sum(), stacked),
    )
    with torch.enable_grad():
        now_ms, stacked_ms = replay.in_turns(list(ways), _LIMIT_NS, time.perf_counter_ns)
    return {"now_ms": now_ms, "stacked_ms": stacked_ms}


def _stacked(values: tuple):
    return torch.stack(values) if isinstance(values[0], torch.Tensor) else values[0]


def _backward(total, wanted: tuple) -> None:
    replay.run_backward(total, torch.ones_like(total), wanted)
