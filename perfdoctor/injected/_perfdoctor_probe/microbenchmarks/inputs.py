"""What a module is called with."""

import torch


class NotRepeatableError(Exception):
    """Says why."""


def tensors_in(value):
    """Those in nested tuples, lists and dictionaries, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one)


def each(value, change):
    """The same value with each tensor changed. Raises `NotRepeatableError` where tensors may hide."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise NotRepeatableError("an input is no plain tensor on the CPU")
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(each(one, change) for one in value)
    if type(value) is dict:
        return {name: each(one, change) for name, one in value.items()}
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return value
    raise NotRepeatableError(f"an input is a {type(value).__name__}")


def batch_of(tensors: list) -> "tuple[int, bool]":
    """The number of samples, and whether the inputs are one sample without a dimension for them."""
    sizes = {tensor.shape[0] for tensor in tensors if tensor.dim() > 1}
    if not sizes:
        flat = [tensor for tensor in tensors if tensor.dim() == 1]
        if flat and all(tensor.is_floating_point() for tensor in flat):
            return 1, True
        sizes = {tensor.shape[0] for tensor in flat}
    if len(sizes) > 1:
        sizes.discard(1)  # made as wide as the others
    if len(sizes) != 1:
        raise NotRepeatableError("the inputs have no common first dimension")
    batch = sizes.pop()
    if any(_picks(tensor, batch) for tensor in tensors):
        raise NotRepeatableError("an input picks rows of another one, such as the edges of a graph")
    return batch, False


def _picks(tensor, batch: int) -> bool:
    """Whether it lists more rows than there are, which would stay as they are: of a graph with twice as many nodes, the
    edges of one. Positions, which are as many, do not."""
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.int32) or len(tensor) <= batch:
        return False
    return not torch.equal(tensor, torch.arange(len(tensor), dtype=tensor.dtype))


def size_of(tensor) -> int:
    return tensor.numel() * tensor.element_size()
