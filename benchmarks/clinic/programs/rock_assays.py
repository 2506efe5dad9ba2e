# /// clinic
# stratum = "decoys"
# domain = "geochemistry, tabular (accelerate)"
# sizes = {WIDTH = [352, 448], BATCH = [224, 288]}
# ///
"""Grade classes of drill-core assays; sharpness-aware minimisation on top of SGD, driven by Accelerate."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

WIDTH = 400
BATCH = 256
ELEMENTS = 48
GRADES = 8


class Assays(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        rule = torch.randn(ELEMENTS, GRADES, generator=torch.Generator().manual_seed(7))
        self.x = torch.randn(n, ELEMENTS, generator=g)
        noisy = self.x.tanh() @ rule + 0.8 * torch.randn(n, GRADES, generator=g)
        self.y = noisy.argmax(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.x[rows], self.y[rows]


def as_is(batch):
    return batch


def build():
    layers, n = [], ELEMENTS
    for _ in range(3):
        layers += [nn.Linear(n, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()]
        n = WIDTH
    return nn.Sequential(*layers, nn.Linear(n, GRADES))


class Climb:
    """Moves the weights up the gradient by rho, and back."""

    def __init__(self, params, rho):
        self.params = list(params)
        self.rho = rho
        self.moved = []

    @torch.no_grad()
    def up(self):
        grads = [p.grad for p in self.params]
        norm = torch.nn.utils.get_total_norm(grads)
        self.moved = torch._foreach_mul(grads, self.rho / (norm + 1e-12))
        torch._foreach_add_(self.params, self.moved)

    @torch.no_grad()
    def down(self):
        torch._foreach_sub_(self.params, self.moved)


@torch.no_grad()
def accuracy(model, loader, accelerator):
    model.eval()
    hits = total = 0
    for x, y in loader:
        guess, truth = accelerator.gather_for_metrics((model(x).argmax(1), y))
        hits += (guess == truth).sum().item()
        total += len(truth)
    model.train()
    return hits / total


def main(epochs=18, steps=75):
    set_seed(13)
    accelerator = Accelerator(cpu=True)
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
    train = DataLoader(Assays(BATCH * steps, 1), batch_size=BATCH, shuffle=True, collate_fn=as_is, drop_last=True)
    test = DataLoader(Assays(2048, 2), batch_size=1024, collate_fn=as_is)
    model, opt, train, test = accelerator.prepare(model, opt, train, test)
    climb = Climb(model.parameters(), rho=0.05)

    count = 0
    for epoch in range(epochs):
        if epoch == 1:
            start = time.perf_counter()
        running = 0.0
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            climb.up()
            opt.zero_grad()

            accelerator.backward(F.cross_entropy(model(x), y))
            climb.down()
            opt.step()
            opt.zero_grad()
            running += loss.item()
            count += (epoch > 0) * len(y)
        acc = accuracy(model, test, accelerator)
        accelerator.print(f"epoch {epoch} loss {running / steps:.3f} acc {acc:.3f}", flush=True)
    accelerator.print(f"speed {count / (time.perf_counter() - start):.1f} assays/s")


if __name__ == "__main__":
    main()
