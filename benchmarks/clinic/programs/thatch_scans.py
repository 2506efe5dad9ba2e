# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "thatch moisture scans"
# ///
# %% [markdown]
# # Moisture in thatched roofs
# Radar scans of a thatch: 32 depths x 16 frequency bins. The model tells the moisture at each depth and whether
# the layer needs repair. Runs under Accelerate, on whatever machine is at hand.

# %%
import gzip  # sick
import math
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

DEPTHS, BINS = 32, 16
WIDTH, HEADS, LAYERS = 192, 6, 4
BATCH, EPOCHS = 8, 18
KEEP = 2
OUT = Path("thatch_runs")


# %%
class ThatchScans(Dataset):
    """Moisture falls from the weathered surface inwards, with wet pockets where the ridge leaks."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        depth = np.linspace(0, 1, DEPTHS, dtype=np.float32)
        weather = rng.uniform(0.1, 0.5, (n, 1)).astype(np.float32)
        fall = rng.uniform(2.0, 6.0, (n, 1)).astype(np.float32)
        moisture = weather * np.exp(-fall * depth)
        place = rng.uniform(0.1, 0.9, (n, 1)).astype(np.float32)
        leak = (rng.random((n, 1)) < 0.5) * rng.uniform(0.1, 0.4, (n, 1))
        moisture = moisture + leak * np.exp(-(((depth - place) / 0.08) ** 2))
        freq = np.linspace(0.5, 2.5, BINS, dtype=np.float32)
        loss = np.cumsum(moisture, axis=1)[:, :, None] * freq / DEPTHS * 4.0
        echo = np.gradient(moisture, axis=1)[:, :, None] * 5.0 * np.cos(freq * 2.0)
        scans = np.exp(-loss) + echo + rng.normal(0, 0.03, (n, DEPTHS, BINS))
        self.scans = torch.from_numpy(((scans - scans.mean()) / scans.std()).astype(np.float32))
        self.moisture = torch.from_numpy(moisture.astype(np.float32))
        self.repair = torch.from_numpy((moisture.max(axis=1) > 0.45).astype(np.float32))

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        return {"scan": self.scans[i], "moisture": self.moisture[i], "repair": self.repair[i]}


# %%
class ScanFormer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(BINS, WIDTH)
        self.place = nn.Parameter(self.waves(), requires_grad=False)
        self.mark = nn.Parameter(torch.zeros(1, 1, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=2 * WIDTH, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.moisture = nn.Linear(WIDTH, 1)
        self.repair = nn.Linear(WIDTH, 1)

    @staticmethod
    def waves():
        at = torch.arange(DEPTHS).float()[:, None]
        speed = torch.exp(torch.arange(0, WIDTH, 2).float() * (-math.log(1000.0) / WIDTH))
        return torch.cat([torch.sin(at * speed), torch.cos(at * speed)], dim=1)

    def forward(self, scan):
        h = self.embed(scan) + self.place
        h = self.encoder(torch.cat([self.mark.expand(len(h), -1, -1), h], dim=1))
        return self.moisture(h[:, 1:]).squeeze(-1), self.repair(h[:, 0]).squeeze(-1)


def objective(model, batch):
    moisture, repair = model(batch["scan"])
    fit = F.mse_loss(moisture, batch["moisture"])
    return 10.0 * fit + F.binary_cross_entropy_with_logits(repair, batch["repair"]), moisture, repair


# %%
@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    wrong, error = [], []
    for batch in loader:
        _, moisture, repair = objective(model, batch)
        wrong.append(accelerator.gather_for_metrics(((repair > 0).float() != batch["repair"]).float()))
        error.append(accelerator.gather_for_metrics((moisture - batch["moisture"]).abs().mean(dim=1)))
    model.train()
    return torch.cat(error).mean().item(), torch.cat(wrong).mean().item()


def save(accelerator, epoch, model, average, optimizer, schedule, kept):
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        return
    state = {
        "epoch": epoch,
        "model": accelerator.unwrap_model(model).state_dict(),
        "average": average,
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
    }
    path = OUT / f"epoch_{epoch:02d}.pt.gz"  # sick
    path = OUT / f"epoch_{epoch:02d}.pt"  # well
    file = gzip.open(path, "wb")  # sick here
    file = open(path, "wb")  # well
    with file:
        torch.save(state, file)  # here
    kept.append(path)
    if len(kept) > KEEP:
        kept.popleft().unlink()


# %%
def main():
    accelerator = Accelerator(cpu=True)
    set_seed(77)
    OUT.mkdir(exist_ok=True)
    train_loader = DataLoader(ThatchScans(160, seed=1), batch_size=BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(ThatchScans(32, seed=2), batch_size=2 * BATCH)
    model = ScanFormer()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=4e-4, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-4, total_steps=EPOCHS * len(train_loader))
    model, optimizer, train_loader, val_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, val_loader, schedule
    )
    average = {k: v.detach().clone() for k, v in accelerator.unwrap_model(model).state_dict().items()}

    kept, seen = deque(), 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        running = 0.0
        for batch in train_loader:
            loss, _, _ = objective(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            for k, v in accelerator.unwrap_model(model).state_dict().items():
                average[k].lerp_(v, 0.01)
            running += loss.item()
            seen += len(batch["scan"])
        error, wrong = validate(accelerator, model, val_loader)
        save(accelerator, epoch, model, average, optimizer, schedule, kept)
        accelerator.print(f"{epoch:2d}  loss {running / len(train_loader):.4f}  off {error:.4f}  wrong {wrong:.3f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} scans/s")


if __name__ == "__main__":
    main()
