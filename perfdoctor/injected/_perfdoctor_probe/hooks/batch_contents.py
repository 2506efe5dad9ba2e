"""What is in a batch."""

from collections.abc import Mapping

import torch

_SIZED_LEAVES = 512
_LEAVES = 8
"""Looked at for a tensor of images or sequences."""


def describe_batch(batch) -> "tuple[int, int, list[str], list[str]]":
    """Samples (first dimension of the first tensor), tensor bytes, types and devices of a batch of any nesting."""
    samples = total = 0
    dtypes, devices = set(), set()
    for tensor in _tensors(batch, _SIZED_LEAVES):
        total += tensor.numel() * tensor.element_size()
        dtypes.add(str(tensor.dtype)[6:])
        devices.add(str(tensor.device))
        if not samples and tensor.dim():
            samples = tensor.shape[0]
    return samples, total, sorted(dtypes), sorted(devices)


def first_image(batch) -> "tuple | None":
    """Shape of the first tensor of three dimensions or more, a few levels deep: of images, sounds, sequences."""
    return next((tuple(tensor.shape) for tensor in _tensors(batch, _LEAVES) if tensor.dim() > 2), None)


def _tensors(batch, most: int):
    """The tensors among the first `most` items of a batch, containers counted too."""
    stack = [batch]
    for _ in range(most):
        if not stack:
            return
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, Mapping):
            stack.extend(reversed(list(item.values())[:most]))
        elif isinstance(item, (list, tuple)):
            stack.extend(reversed(item[:most]))
