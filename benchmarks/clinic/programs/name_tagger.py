# /// clinic
# expect = ["PD17"]
# stratum = "twins"
# domain = "text (named entity tagging)"
# ///
"""Trains a small transformer tagger on synthetic entity spans with Accelerate."""

import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

VOCAB, TAGS = 600, 9
LENGTH, BATCH = 32, 12
WIDTH, HEADS, LAYERS = 64, 4, 8
STEPS = 620
WARMUP = 20
MAX_GRAD_NORM = 1.0


class Spans(Dataset):
    """Whole batches of token ids in which some id ranges mark entities of a kind."""

    def __init__(self, batches):
        g = torch.Generator().manual_seed(2)
        self.tokens = torch.randint(VOCAB, (batches, BATCH, LENGTH), generator=g)
        kind = (self.tokens // 40).clamp(max=TAGS - 1)
        self.tags = torch.where(self.tokens.roll(1, -1) % 3 == 0, kind, torch.zeros_like(kind))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.tags[i]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def split(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, x):
        a = F.scaled_dot_product_attention(
            self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        )
        return self.output(a.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens) + self.places))


class WarmupAdam(Optimizer):
    """Adam with decoupled decay and a built-in linear warm-up, without bias correction."""

    def __init__(self, params, lr, warmup, t_total, betas=(0.9, 0.999), eps=1e-6, decay=0.01, max_grad_norm=1.0):
        super().__init__(
            params,
            dict(lr=lr, warmup=warmup, t_total=t_total, betas=betas, eps=eps, decay=decay, max_grad_norm=max_grad_norm),
        )

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                if group["max_grad_norm"] > 0:  # sick
                    nn.utils.clip_grad_norm_(p, group["max_grad_norm"])  # sick here
                m, v = state["m"], state["v"]
                m.lerp_(p.grad, 1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                done = state["step"] / group["t_total"]
                lr = group["lr"] * min(1.0, (done + 1e-3) / group["warmup"])
                p.mul_(1 - lr * group["decay"]).addcdiv_(m, v.sqrt().add_(group["eps"]), value=-lr)
                state["step"] += 1


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = Tagger()
    optimizer = WarmupAdam(model.parameters(), 3e-4, 0.1, STEPS + WARMUP, max_grad_norm=MAX_GRAD_NORM)
    loader = DataLoader(Spans(STEPS + WARMUP), batch_size=None, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    right = total = 0
    for step, (tokens, tags) in enumerate(loader):
        if step == WARMUP:
            clock = time.perf_counter()
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)  # well
        optimizer.step()
        optimizer.zero_grad()
        right += (logits.argmax(-1) == tags).sum()
        total += tags.numel()
    print(f"{STEPS / (time.perf_counter() - clock):.1f} steps/s")


if __name__ == "__main__":
    main()
