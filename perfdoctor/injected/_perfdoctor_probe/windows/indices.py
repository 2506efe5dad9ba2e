"""Which classes the targets of a loss name, and which rows of an embedding table are looked up.

Only inside the call-site window: the operators' own arguments are read there, and nothing of them is kept but how many
there were, how many different ones, and the highest.
"""

import torch

_LARGEST = 1 << 26
"""Classes or rows for which one byte each is kept."""
_MOST = 1 << 22
"""Indices of one call that are looked at."""
_CALLS = 500
"""Calls of one window that are looked at: each takes 30 us and more."""


def _target(args) -> "tuple":
    """`nll_loss_forward(scores, target, weight, reduction, ignore_index)`: classes are the scores' second dimension."""
    scores, target, ignored = args[0], args[1], args[4]
    return scores.shape[min(1, scores.dim() - 1)], 0, target, ignored


def _lookup(args) -> "tuple":
    """`embedding(weight, indices, padding_idx, ...)`."""
    weight, indices = args[0], args[1]
    padding = args[2] if len(args) > 2 else -1
    return weight.shape[0], weight.shape[1], indices, padding


def _lookup_bag(args) -> "tuple":
    """`_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
    include_last_offset, padding_idx)`."""
    weight, indices = args[0], args[1]
    padding = args[8] if len(args) > 8 else -1
    return weight.shape[0], weight.shape[1], indices, padding


OPERATORS = {
    "aten::nll_loss_forward": ("target", _target),
    "aten::nll_loss2d_forward": ("target", _target),
    "aten::embedding": ("lookup", _lookup),
    "aten::_embedding_bag": ("lookup", _lookup_bag),
}
"""By name: what its indices are, and how its arguments say so."""


class Indices:
    """Sets of indices, by what they are and the size of what they point into."""

    def __init__(self) -> None:
        self.seen: "dict[tuple, list]" = {}  # (kind, size, width) -> [count, one byte per class or row]
        self.calls = 0

    def note(self, name: str, args) -> None:
        """One call. Its tensors are only read."""
        self.calls += 1
        if self.calls > _CALLS:
            return
        kind, meaning = OPERATORS[name]
        size, width, indices, left_out = meaning(args)
        if not 0 < size <= _LARGEST or indices.is_floating_point() or _is_capturing(indices):
            return
        flat = indices.detach().reshape(-1)[:_MOST].cpu()
        flat = flat[(flat >= 0) & (flat < size) & (flat != left_out)].long()
        found = self.seen.setdefault((kind, size, width), [0, None])
        if found[1] is None:
            found[1] = torch.zeros(size, dtype=torch.bool)
        found[0] += flat.numel()
        found[1][flat] = True

    def summary(self) -> "list[dict]":
        """A row for each that was used at all."""
        rows = []
        for (kind, size, width), (count, seen) in self.seen.items():
            used = seen.nonzero()
            if len(used):
                rows.append(
                    {
                        "kind": kind,
                        "size": size,
                        "width": width,
                        "count": count,
                        "distinct": len(used),
                        "highest": int(used[-1]),
                    }
                )
        return rows


def _is_capturing(tensor) -> bool:
    """Inside a CUDA graph's capture nothing may be read."""
    return tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
