"""What steps with operators that others could stand for work on."""

from __future__ import annotations

import torch


def drawn(*shape: int, learns: bool = True) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.requires_grad_(learns)


QUERIES, KEYS, VALUES = (drawn(2, 2, 512, 32) for _ in range(3))
ONE, OTHER = drawn(256, 1, 64), drawn(1, 256, 64)
SCORES = drawn(32, 20_000)
TARGETS = torch.arange(32)
TABLE = drawn(1500, 64)
PICKED = torch.arange(512) * 2
EDGES = (torch.rand(1500, 1500, generator=torch.Generator().manual_seed(3)) < 0.002).float()
NODES = drawn(1000, 64)
ORIGIN, TO = torch.randint(0, 1000, (2, 20_000), generator=torch.Generator().manual_seed(3))
WEIGHTS = torch.rand(20_000, 1, generator=torch.Generator().manual_seed(4))
PATCHED = drawn(4, 8, 32, 32)
KERNELS = drawn(16, 8, 3, 3)
STD = (torch.rand(2000, 12, generator=torch.Generator().manual_seed(5)) + 0.5).requires_grad_()
LABELS = torch.where(torch.arange(512) % 8 == 0, torch.arange(512), -100)
JOINS = torch.randint(0, 1500, (2, 20_000), generator=torch.Generator().manual_seed(6))
GRAPH = torch.sparse_coo_tensor(JOINS, torch.ones(20_000), (1500, 1500), check_invariants=True).coalesce()
WAVES = torch.randn(64, 601, generator=torch.Generator().manual_seed(3)).requires_grad_()
HIDDEN = drawn(16, 64)
WHOLE = drawn(16, 200, 64)
MEMBERS = drawn(32, 24, 64)
BETWEEN, ENDS = drawn(20_000, 32), drawn(64, 128)
MANY = torch.randint(200, (8000,), generator=torch.Generator().manual_seed(5))
GRID = drawn(32, 128, 128)
PLACES = torch.randint(128, (2, 4096), generator=torch.Generator().manual_seed(5))
QUEUES = {name: torch.zeros(100_000, 64) for name in ("rows", "age", "both")}
PICTURES, MIXING, WINDOWS = drawn(2, 32, 40, 40), drawn(3, 32, 1, 1), drawn(16, 32, 3, 3)
