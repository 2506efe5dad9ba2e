"""A small job that learns, for windows that are opened around its steps."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

X = torch.randn(256, 64, generator=torch.Generator().manual_seed(1))
UNWATCHED = SimpleNamespace(on_scores=None)
"""No forward pass is one of an evaluation."""


class Job:
    """A model that learns from other data in every step."""

    def __init__(self, dropout: float = 0.0, norm: bool = False, lr: float = 0.01) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(64, 128), *([nn.BatchNorm1d(128)] if norm else []), nn.Dropout(dropout), nn.Linear(128, 8)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr)
        self.x = X
        self.place = 0

    def ends(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
