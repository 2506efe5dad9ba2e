# /// clinic
# expect = ["PD17"]
# stratum = "twins"
# domain = "machine translation"
# ///
"""Trains an encoder-decoder on a synthetic translation task."""

import time

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "vocab": 10000,
    "width": 192,
    "heads": 4,
    "layers": 2,
    "ff": 768,
    "batch": 12,
    "length": 14,
    "lr": 5e-4,
    "warmup_lr": 100,
    "decay": 0.01,
}
STEPS = 260
WARMUP = 20


class Translator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.source = nn.Embedding(cfg["vocab"], cfg["width"])
        self.target = nn.Embedding(cfg["vocab"], cfg["width"])
        self.places = nn.Parameter(torch.randn(cfg["length"] + 1, cfg["width"]) * 0.02)
        self.core = nn.Transformer(
            cfg["width"],
            cfg["heads"],
            cfg["layers"],
            cfg["layers"],
            cfg["ff"],
            dropout=0.1,
            batch_first=True,
        )
        self.out = nn.Linear(cfg["width"], cfg["vocab"], bias=False)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        a = self.source(src) + self.places[: src.shape[1]]
        b = self.target(tgt) + self.places[: tgt.shape[1]]
        return self.out(self.core(a, b, tgt_mask=mask, tgt_is_causal=True))


def sentence_pairs(cfg, seed):
    gen = torch.Generator().manual_seed(seed)
    mapping = torch.randperm(cfg["vocab"], generator=gen)
    while True:
        src = torch.randint(2, cfg["vocab"], (cfg["batch"], cfg["length"]), generator=gen)
        tgt = mapping[src].flip(1)
        start = torch.ones(cfg["batch"], 1, dtype=torch.long)
        yield src, torch.cat([start, tgt], dim=1)


def build_optimizer(model, cfg):
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": cfg["decay"]}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=cfg["lr"], betas=(0.9, 0.98))  # sick here
    optimizer = torch.optim.AdamW(groups, lr=cfg["lr"], betas=(0.9, 0.98), fused=True)  # well
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / cfg["warmup_lr"], (cfg["warmup_lr"] / (s + 1)) ** 0.5)
    )
    return optimizer, schedule


def train(cfg):
    torch.manual_seed(0)
    model = Translator(cfg)
    optimizer, schedule = build_optimizer(model, cfg)
    pairs = sentence_pairs(cfg, 1)
    for step in range(STEPS):
        if step == WARMUP:
            begin = time.perf_counter()
        src, tgt = next(pairs)
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    return (STEPS - WARMUP) * cfg["batch"] / (time.perf_counter() - begin)


if __name__ == "__main__":
    print(f"{train(CONFIG):.1f} samples/s")
