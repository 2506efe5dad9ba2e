"""Intra-op threads."""

import torch

from .base import Switch


class Threads(Switch):
    """`torch.set_num_threads`."""

    settle = 3

    def read(self) -> int:
        return torch.get_num_threads()

    def set(self, value: int) -> None:
        torch.set_num_threads(value)

    @property
    def wanted(self) -> int:
        return max(1, self.value)
