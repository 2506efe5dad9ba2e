"""A module's own pass with each row once, where it was given the same rows several times over."""

import functools

import torch

from ..windows.equivalents import agree
from .inputs import each, tensors_in
from .passes import PassMicrobenchmark, Way, on


def timings(passes: PassMicrobenchmark, rows: int) -> dict:
    """Milliseconds of its call as it is, `now_ms`, and with each of its `rows` once, `once_ms`; or why there are none,
    as where rows give other numbers by themselves than among all."""
    return passes.without({"once": functools.partial(_once, rows)})


def _once(rows: int, call, module) -> Way:
    given = list(tensors_in(call.inputs))
    leading = 1 if given[0].shape[0] == rows else given[0].dim() - 1
    keys = torch.cat([one.detach().reshape(rows, -1).double() for one in given], dim=1)
    numbers = keys.unique(dim=0, return_inverse=True)[1]
    first = torch.zeros(int(numbers.max()) + 1, dtype=torch.int64).scatter_(0, numbers, torch.arange(rows))

    def picked(tensor):
        return tensor.detach().flatten(0, leading - 1)[first].requires_grad_(tensor.requires_grad)

    fewer = each(call.inputs, picked)
    with torch.no_grad(), torch.autocast("cpu", dtype=call.autocast, enabled=call.autocast is not None):
        made = (module(*args, **named) for args, named in (call.inputs, fewer))
        pairs = list(zip(*(tensors_in(one) for one in made)))
    by_row = [(whole, few) for whole, few in pairs if whole.shape[:leading] == given[0].shape[:leading]]
    if not by_row or not all(_agree(whole.flatten(0, leading - 1), few, numbers) for whole, few in by_row):
        raise ValueError("rows give other numbers by themselves")
    return on(fewer)


def _agree(whole, few, numbers) -> bool:
    if few.shape[0] <= int(numbers.max()) or not whole.is_floating_point():
        return False
    return agree(few[numbers], whole)
