# /// clinic
# expect = ["PD05", "PD10"]
# stratum = "twins"
# domain = "medical records, differential privacy"
# ///
"""Trains a readmission classifier with differentially private SGD."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

FEATURES = 256
HIDDEN = 512
CLASSES = 4
BATCH = 32
BOUND = 1.0
NOISE = 0.6
LR = 0.1
STEPS = 420
WARMUP = 20


def patients(gen):
    teacher = torch.randn(FEATURES, CLASSES, generator=gen)
    while True:
        x = torch.randn(BATCH, FEATURES, generator=gen)
        yield x, (x @ teacher).argmax(1)


def make_loss(model):
    def loss(params, x, y):
        logits = functional_call(model, params, (x.unsqueeze(0),))
        return F.cross_entropy(logits, y.unsqueeze(0))

    return loss


def per_sample(gradient, params, x, y):
    each = [gradient(params, x[i], y[i]) for i in range(len(x))]  # sick here
    return {name: torch.stack([g[name] for g in each]) for name in params}  # sick
    return vmap(gradient, in_dims=(None, 0, 0))(params, x, y)  # well


def clip_and_noise(grads, gen):
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    scale = (BOUND / (norms + 1e-6)).clamp(max=1.0)
    out = {}
    for name, g in grads.items():
        total = torch.einsum("b,b...->...", scale, g)
        out[name] = (total + NOISE * BOUND * torch.randn(total.shape, generator=gen)) / BATCH
    return out


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(17)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )
    params = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradient = grad(make_loss(model))
    stream = patients(gen)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        x, y = next(stream)
        update = clip_and_noise(per_sample(gradient, params, x, y), gen)
        params = {name: p - LR * update[name] for name, p in params.items()}
    rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
