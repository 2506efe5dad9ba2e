# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "ice cores"
# ///
# %% Annual layers in ice cores: a reader of the proxies and a dater on top, trained in turns
import math
import time
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

PROXIES = ["d18O", "dust", "conductivity", "calcium"]

args = SimpleNamespace(
    depth=256,
    width=48,
    sections=640,
    held_out=160,
    batch=16,
    cycles=5,
    turns=[("reader", 1), ("dater", 3)],
    rates={"reader": 1e-3, "dater": 2e-3},
    decay=0.01,
    seed=2024,
)


# %% Synthetic sections: layers thin with depth, proxies follow the seasons, volcanoes and melt disturb them
def drill(n, depth, gen):
    start = 10 + 14 * torch.rand(n, 1, generator=gen)
    thinning = 0.2 + 0.4 * torch.rand(n, 1, generator=gen)
    z = torch.linspace(0, 1, depth)
    thickness = start * (1 - thinning * z) * (1 + 0.1 * torch.randn(n, depth, generator=gen)).clamp(0.6, 1.4)
    years = torch.cumsum(1.0 / thickness, dim=1) + torch.rand(n, 1, generator=gen)
    season = 2 * math.pi * years
    boundary = F.pad((years.floor().diff(dim=1) > 0).float(), (1, 0))
    d18o = torch.cos(season)
    dust = torch.relu(torch.sin(season + 0.6)) ** 2
    conductivity = 0.5 * torch.sin(season - 0.4) + 2.5 * (torch.rand(n, depth, generator=gen) > 0.992).float()
    calcium = 0.8 * dust + 0.2 * torch.cos(2 * season)
    x = torch.stack([d18o, dust, conductivity, calcium], dim=1)
    smooth = torch.tensor([0.2, 0.6, 0.2]).view(1, 1, 3).repeat(4, 1, 1)
    x = F.conv1d(x, smooth, padding=1, groups=4) + 0.4 * torch.randn(n, 4, depth, generator=gen)
    return TensorDataset(x, boundary, years[:, -1] - years[:, 0])


# %% Model
class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.a = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.b = nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.GroupNorm(6, width)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(len(PROXIES), width, 7, padding=3)
        self.blocks = nn.Sequential(*[Block(width, d) for d in (1, 2, 4, 8)])

    def forward(self, x):
        return self.blocks(self.stem(x))


class Dater(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Sequential(nn.GroupNorm(6, width), nn.Conv1d(width, 32, 3, padding=1), nn.GELU())
        self.layer = nn.Conv1d(32, 1, 1)

    def forward(self, h):
        return self.layer(self.mix(h)).squeeze(1)


class CoreModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.reader = Reader(width)
        self.dater = Dater(width)

    def forward(self, x):
        return self.dater(self.reader(x))


def criterion(logits, boundary, span):
    layer = F.binary_cross_entropy_with_logits(logits, boundary, pos_weight=logits.new_tensor(6.0))
    counted = torch.sigmoid(logits).sum(1)
    return layer + 0.02 * F.smooth_l1_loss(counted, span)


# %% Turns
def take_turn(part, model, optimizer):
    for group in optimizer.param_groups:  # sick
        group["lr"] = args.rates[part] if group["part"] == part else 0.0  # sick here
    for name, module in model.named_children():  # well
        module.requires_grad_(name == part)  # well


@torch.no_grad()
def evaluate(model, loader, accelerator):
    model.eval()
    loss, off, n = 0.0, 0.0, 0
    for x, boundary, span in loader:
        logits = model(x)
        loss += criterion(logits, boundary, span).item() * len(x)
        years, truth = accelerator.gather_for_metrics(((logits > 0).sum(1).float(), boundary.sum(1)))
        off += (years - truth).abs().sum().item()
        n += len(x)
    model.train()
    return loss / n, off / n


# %% Training
def main():
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    train = DataLoader(drill(args.sections, args.depth, gen), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(drill(args.held_out, args.depth, gen), 32)
    model = CoreModel(args.width)
    groups = [
        {"params": list(module.parameters()), "lr": args.rates[name], "part": name}
        for name, module in model.named_children()
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=args.decay)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)

    best, kept, sections = float("inf"), None, 0
    began = time.perf_counter()
    for cycle in range(args.cycles):
        for part, epochs in args.turns:
            take_turn(part, accelerator.unwrap_model(model), optimizer)
            for _ in range(epochs):
                running = 0.0
                for x, boundary, span in train:
                    optimizer.zero_grad()
                    loss = criterion(model(x), boundary, span)
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    running += loss.item()
                    sections += len(x)
            val, off = evaluate(model, test, accelerator)
            accelerator.print(
                f"cycle {cycle} {part:6s} train {running / len(train):.4f} val {val:.4f} layers off {off:.2f}"
            )
            if val < best:
                best = val
                kept = {k: v.clone() for k, v in accelerator.unwrap_model(model).state_dict().items()}
    rate = sections / (time.perf_counter() - began)
    accelerator.save(kept, "core_model.pt")
    print(f"best {best:.4f}")
    print(f"{rate:.1f} sections/s")


if __name__ == "__main__":
    main()
