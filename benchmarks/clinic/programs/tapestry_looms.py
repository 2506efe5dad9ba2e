# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "tapestry looms"
# ///
"""Tapestry looms: the next pick from the picks woven so far.

A pick is the colour of the weft and the set of raised shafts. A gated causal convolution network learns the habits
of a workshop from its drafts; the controller of the loom reads the weights as loom.json and proposes the next pick
to the weaver. Run with `accelerate launch train.py` or plainly with python.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "colours": 28,
    "shafts": 16,
    "picks": 64,
    "train_drafts": 720,
    "val_drafts": 96,
    "channels": 128,
    "dilations": [1, 2, 4, 8, 16, 1],
    "dropout": 0.1,
    "batch_size": 16,
    "epochs": 7,
    "lr": 1e-3,
    "weight_decay": 0.01,
    "seed": 31,
    "out": "looms",
}


class Drafts(Dataset):
    """Drafts made of a tie-up repeated with a period, mirrored at times, and colour stripes with hachures."""

    def __init__(self, count, config, seed):
        rng = np.random.default_rng(seed)
        picks, shafts = config["picks"] + 1, config["shafts"]
        self.colour = np.empty((count, picks), dtype=np.int64)
        self.shed = np.empty((count, picks, shafts), dtype=np.float32)
        for n in range(count):
            period = int(rng.choice([2, 4, 6, 8]))
            base = (np.arange(shafts)[None] + np.arange(period)[:, None]) % period < max(1, period // 2)
            rows = np.arange(picks) % period
            if rng.random() < 0.4:
                fold = np.arange(picks) % (2 * period)
                rows = np.minimum(fold, 2 * period - 1 - fold)
            shed = base[rows]
            slips = rng.random(shed.shape) < 0.01
            self.shed[n] = np.logical_xor(shed, slips)
            stripe = rng.choice(config["colours"], 4, replace=False)
            widths = rng.integers(3, 9, 4)
            order = np.repeat(np.arange(4), widths)
            colour = stripe[order[np.arange(picks) % len(order)]]
            hachure = (np.arange(picks) % 2 == 0) & (rng.random() < 0.5)
            colour = np.where(hachure, stripe[0], colour)
            stray = rng.random(picks) < 0.02
            self.colour[n] = np.where(stray, rng.integers(0, config["colours"], picks), colour)

    def __len__(self):
        return len(self.colour)

    def __getitem__(self, n):
        return self.colour[n], self.shed[n]


class GatedLayer(nn.Module):
    def __init__(self, channels, dilation, dropout):
        super().__init__()
        self.reach = 2 * dilation
        self.conv = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        value, gate = self.conv(F.pad(x, (self.reach, 0))).chunk(2, dim=1)
        return x + self.dropout(self.mix(torch.tanh(value) * torch.sigmoid(gate)))


class PickModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels = config["channels"]
        self.colour = nn.Embedding(config["colours"], channels)
        self.shed = nn.Linear(config["shafts"], channels)
        self.layers = nn.Sequential(*[GatedLayer(channels, d, config["dropout"]) for d in config["dilations"]])
        self.norm = nn.LayerNorm(channels)
        self.to_colour = nn.Linear(channels, config["colours"])
        self.to_shed = nn.Linear(channels, config["shafts"])

    def forward(self, colour, shed):
        x = self.colour(colour) + self.shed(shed)
        x = self.norm(self.layers(x.transpose(1, 2)).transpose(1, 2))
        return self.to_colour(x), self.to_shed(x)


def pick_loss(model, colour, shed):
    next_colour, next_shed = model(colour[:, :-1], shed[:, :-1])
    loss = F.cross_entropy(next_colour.flatten(0, 1), colour[:, 1:].flatten())
    return loss + F.binary_cross_entropy_with_logits(next_shed, shed[:, 1:]), next_colour, next_shed


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    colours, shafts = [], []
    for colour, shed in loader:
        _, next_colour, next_shed = pick_loss(model, colour, shed)
        colours.append(accelerator.gather_for_metrics((next_colour.argmax(-1) == colour[:, 1:]).float().mean(1)))
        shafts.append(accelerator.gather_for_metrics(((next_shed > 0) == (shed[:, 1:] > 0.5)).float().mean((1, 2))))
    model.train()
    return torch.cat(colours).mean().item(), torch.cat(shafts).mean().item()


def write_loom_json(model, config, path):
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    with open(path, "w") as f:
        json.dump({"config": config, "weights": weights}, f)  # here


def main(config=CONFIG):
    accelerator = Accelerator(cpu=True)
    set_seed(config["seed"])
    out = Path(config["out"])
    out.mkdir(exist_ok=True)

    train = DataLoader(Drafts(config["train_drafts"], config, 1), batch_size=config["batch_size"], shuffle=True)
    val = DataLoader(Drafts(config["val_drafts"], config, 2), batch_size=48)
    model = PickModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config["lr"], total_steps=config["epochs"] * len(train))
    model, optimizer, schedule, train, val = accelerator.prepare(model, optimizer, schedule, train, val)

    drafts, began = 0, time.perf_counter()
    for epoch in range(config["epochs"]):
        running = 0.0
        for colour, shed in train:
            loss, _, _ = pick_loss(model, colour, shed)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.item()
            drafts += len(colour)
        colours, shafts = validate(accelerator, model, val)
        if accelerator.is_main_process:
            write_loom_json(accelerator.unwrap_model(model), config, out / "loom.json")  # sick here
            accelerator.save(accelerator.unwrap_model(model).state_dict(), out / "loom.pt")  # well
        accelerator.print(f"epoch {epoch}: loss {running / len(train):.3f}, colours {colours:.3f}, shafts {shafts:.3f}")
    rate = drafts / (time.perf_counter() - began)

    if accelerator.is_main_process:  # well
        write_loom_json(accelerator.unwrap_model(model), config, out / "loom.json")  # well
    accelerator.end_training()
    accelerator.print(f"{rate:.1f} drafts/s")


if __name__ == "__main__":
    main()
