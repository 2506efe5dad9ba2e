"""Uses torch without anything that perfdoctor would call a step."""

import torch

print(sum(torch.randn(8, 8).sum().item() for _ in range(100)) is not None)
