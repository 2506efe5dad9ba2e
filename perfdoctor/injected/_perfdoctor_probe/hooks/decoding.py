"""Sequences that are written without a cache: forward passes without gradients, each on all that the one before it was
given and one token more.

With a cache each would be given the new token alone. Tokens are whole numbers of two dimensions on the CPU; the first
sequence must go on as it was. Lengths that grow by one from batch to batch are no such passes then.
"""

import ctypes

import torch

from .held_out import tensors

_TOKENS = (torch.int64, torch.int32)
_LONGEST = 1 << 16
"""Bytes of a sequence that is compared."""


class Decoding:
    """All methods are called on the training thread."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.reset()

    def reset(self) -> None:
        """Forget everything: at install, and in a forked child."""
        self.last: "tuple | None" = None
        """Step, model, number of sequences, and what the first of them was."""
        self.step = self.site = -1
        self.passes = self.spent_ns = 0
        """Of this step."""

    def forward_ended(self, took_ns: int, module, arguments: tuple, step: int) -> None:
        """A forward pass that trains nothing has just ended."""
        known, self.last = self.last, _given(module, arguments, step)
        if known is None or self.last is None or known[:3] != self.last[:3]:
            return
        before, now = known[3], self.last[3]
        if len(now) != len(before) + known[4] or not now.startswith(before):
            return
        if self.step != step:
            self.flush()
            self.step = step
        self.passes += 1
        self.spent_ns += took_ns
        if self.site < 0:
            self.site = self.sites.here(2)

    def flush(self) -> None:
        """Record what was seen of the latest step that held any."""
        if self.passes:
            self.recorder.record(
                "decoded", step=self.step, passes=self.passes, us=self.spent_ns // 1000, site=self.site
            )
            self.passes = self.spent_ns = 0


def _given(module, arguments: tuple, step: int) -> "tuple | None":
    """Of a pass: step, model, number of sequences, the first of them as bytes, and bytes of a token."""
    with torch._C.DisableTorchFunction():
        tokens = next((one for one in tensors(arguments) if one.dtype in _TOKENS and one.dim() == 2), None)
        if tokens is None or tokens.device.type != "cpu" or not tokens.numel() or tokens.stride(1) != 1:
            return None
        size = tokens.element_size()
        length = min(_LONGEST, tokens.shape[1] * size)
        return step, id(module), tokens.shape[0], ctypes.string_at(tokens.data_ptr(), length), size
