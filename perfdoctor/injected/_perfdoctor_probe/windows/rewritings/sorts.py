"""What is sorted a second time, searched for one place, or read at one end only."""

from math import prod

import torch

from .followed import SORTS, Link, Other

_TOP = 0.25
"""Of what is sorted, the part that is read, at most."""


def ranked(args: tuple, kwargs: dict, result, known) -> "Other | None":
    """A second sort, of the places that the first one gave, says where each number went."""
    found = known(args[0])
    downwards = dict(zip(("dim", "descending"), args[1:]), **kwargs).get("descending")
    if downwards or not _are_places(found) or tuple(args[0].shape) != found.shape:
        return None
    places = args[0]
    dim, _ = _sorting(found)
    shape = [places.shape[dim] if at == dim else 1 for at in range(places.dim())]
    numbers = torch.arange(places.shape[dim], device=places.device).reshape(shape).expand_as(places)
    return Other(
        "second-sort",
        lambda: torch.empty_like(places).scatter_(dim, places, numbers),
        [],
        found.shape,
        instead_of=result[1],
    )


def searched(args: tuple, result, known) -> "Other | None":
    """Where one number has come to among all that were sorted: as many as are ahead of it."""
    found = known(args[0])
    if not _are_places(found) or not isinstance(args[1], torch.Tensor):
        return None
    numbers, one = found.args[0], args[1]
    dim, downwards = _sorting(found)
    if tuple(args[0].shape) != found.shape or one.dim() != len(found.shape) or one.shape[dim] != 1:
        return None
    place = result.to(torch.uint8).argmax(dim)

    def make():
        its = numbers.gather(dim, one.expand([*found.shape[:dim], 1, *found.shape[dim + 1 :]]))
        return (numbers > its if downwards else numbers < its).sum(dim)

    return Other("rank", make, [found], found.shape, instead_of=place)


def top(found: Link, tensor) -> "Other | None":
    """Of what was sorted a few are read, at one of its ends; None for more."""
    dim, downwards = _sorting(found)
    length, stride = found.shape[dim], found.strides[dim]
    along = next((tensor.shape[at] for at in range(tensor.dim()) if tensor.stride(at) == stride), 1)
    if tensor.numel() * length != prod(found.shape) * along:
        return None
    first = tensor.storage_offset() // stride % length
    count, at_end = first + along, False
    if count > length - first:
        count, at_end = length - first, True
    if count > _TOP * length:
        return None
    numbers = found.args[0]
    largest = downwards != at_end
    return Other(
        "top",
        lambda: numbers.topk(count, dim, largest=largest),
        [found],
        found.shape,
        instead_of=False,
        replaces_last=False,
    )


def _sorting(found: Link) -> "tuple[int, bool]":
    """The dimension that was sorted, and whether downwards."""
    given = dict(zip(("dim", "descending"), found.args[1:]), **found.kwargs)
    return given.get("dim", -1) % len(found.shape), bool(given.get("descending"))


def _are_places(found: "Link | None") -> bool:
    return found is not None and found.func in SORTS and found.which == 1
