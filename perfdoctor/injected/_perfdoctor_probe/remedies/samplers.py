"""Samplers of our own: drawing from the job's would move on its generator, and whatever else it counts or shuffles."""

import copy
import random

import torch
from torch.utils.data import Sampler

_HELD = (list, dict, set)
"""What a sampler may change in place, beside generators, tensors and samplers in it. Copied one level deep: a sampler
of a million indices is copied at each switch of a trial."""


def copied(sampler):
    """A sampler that draws what this one would, and leaves it as it is. What cannot be copied is shared."""
    try:
        other = copy.copy(sampler)
        for name, value in vars(other).items():
            setattr(other, name, _copied(value))
    except Exception:  # without a `__dict__`, or with a way of its own to be copied
        return sampler
    return other


def _copied(value):
    if isinstance(value, Sampler):
        return copied(value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    # numpy's generators and arrays by their module: it need not be installed.
    if isinstance(value, (torch.Generator, random.Random)) or type(value).__module__.startswith("numpy"):
        return copy.deepcopy(value)
    return copy.copy(value) if type(value) in _HELD else value
