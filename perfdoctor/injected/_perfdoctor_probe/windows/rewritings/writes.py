"""Parts that are written one after the other into a tensor that gradients flow through; and queues that are joined anew
to replace a part of them.

Each such write is a node of its own in the backward pass, which copies the gradient of the whole tensor to take one
part out of it. Joining the parts once copies as much forwards, and hands the gradients on as views.
"""

import torch

from .followed import Other

_aten = torch.ops.aten
INTO_VIEWS = (_aten.copy_.default,)
"""Of a view that is written to, autograd makes the node only after the operator has run."""
WRITES = (*INTO_VIEWS, _aten.index_put_.default)
_NEW = 0.5
"""Of what is joined, at most: of a queue that is replaced by and by."""
_BY_WRITES = ("torch::autograd::CopySlices", "CopySlices", "IndexPutBackward0")


def again(func, args: tuple) -> "Other | None":
    """A write into what was written to before, in this pass: the first one could be a part that was there already."""
    whole = args[0]._base if args[0]._is_view() else args[0]
    if whole is args[0] and func in INTO_VIEWS:
        return None
    node = whole.grad_fn
    if node is None or node.name() not in _BY_WRITES:
        return None
    return Other("written", None, [], whole.shape)


def rebuilt(parts, dim: int, result, is_carried) -> "Other | None":
    """What is joined anew though most of it was joined before: only the new part would have to be written.
    `is_carried`: whether a tensor is of what the same line made in the step before."""
    new = [one for one in parts if not is_carried(one)]
    if not new or len(new) == len(parts) or sum(one.numel() for one in new) > _NEW * result.numel():
        return None
    return Other("rebuilt", lambda: torch.cat(new, dim), [], result.shape, instead_of=False)
