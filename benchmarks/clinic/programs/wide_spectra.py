# /// clinic
# stratum = "placebo"
# domain = "time series"
# ///
# %% [markdown]
# # Concentrations from infrared spectra
# The instrument delivers 4096 points per scan; the model keeps them all.

# %%
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(23)
POINTS, SUBSTANCES, SCANS = 4096, 5, 6000

# %% scans: each substance has its own set of narrow lines
wave = torch.linspace(0, 1, POINTS)
library = torch.zeros(SUBSTANCES, POINTS)
for s in range(SUBSTANCES):
    for centre, width in zip(torch.rand(30), 0.0008 + 0.003 * torch.rand(30)):
        library[s] += torch.exp(-(((wave - centre) / width) ** 2))
amounts = torch.rand(SCANS, SUBSTANCES)
scans = amounts @ library
scans += 0.05 * torch.randn(SCANS, POINTS)
scans = (scans - scans.mean(0)) / scans.std(0)

# %%
model = nn.Sequential(
    nn.Linear(POINTS, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 256),
    nn.ReLU(),
    nn.Linear(256, SUBSTANCES),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-3, fused=True)
criterion = nn.MSELoss()
folder = Path(tempfile.mkdtemp(prefix="spectra_"))
BATCH, EPOCHS, SKIP = 240, 14, 10

# %% training
steps, start = 0, None
for epoch in range(EPOCHS):
    total = torch.zeros(())
    for pick in torch.randperm(SCANS).split(BATCH):
        loss = criterion(model(scans[pick]), amounts[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        steps += 1
        if steps == SKIP:
            start = time.perf_counter()
    if epoch % 7 == 6:
        torch.save(model.state_dict(), folder / "last.pt")
        print(f"epoch {epoch:2d}: mse {total.item() * BATCH / SCANS:.5f}")
taken = time.perf_counter() - start

# %%
(folder / "last.pt").unlink()
folder.rmdir()
print(f"{(steps - SKIP) * BATCH / taken:.1f} scans/s")
