"""A permutation of which a few places are read."""

import torch

from .followed import Link, Other

_FEW = 0.1
"""Of its places, at most: of as many that are drawn, a twentieth come twice."""


def drawn(found: Link, tensor) -> "Other | None":
    """So many numbers that are drawn would do; None for more."""
    many, count = found.shape[0], tensor.numel()
    if count > _FEW * many:
        return None
    own = torch.Generator()  # the job's is not to draw more
    return Other(
        "shuffled",
        lambda: torch.randint(many, (count,), generator=own),
        [found],
        found.shape,
        instead_of=False,
        replaces_last=False,
        part=(tensor.storage_offset(), count),
        in_each_step=True,
    )
