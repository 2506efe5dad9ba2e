# /// clinic
# expect = ["PD15"]
# stratum = "twins"
# domain = "crop imaging"
# sizes = {STUDENT = [15, 17], BATCH = [22, 26]}
# ///
"""Distils a leaf-disease classifier into a phone-sized one by attention transfer (teacher and student maps must agree)."""

import random
import time

import torch
import torch.nn.functional as F
from torch import nn

STUDENT = 16
BATCH = 24
TEACHER = 24
PIXELS = 48
DISEASES = 12
LEAVES = 1200
EPOCHS = 48
STEPS_PER_EPOCH = 7


def make_leaves():
    g = torch.Generator().manual_seed(21)
    disease = torch.randint(0, DISEASES, (LEAVES,), generator=g)
    patterns = torch.randn(DISEASES, 3, 8, 8, generator=g)
    spots = F.interpolate(patterns, size=PIXELS, mode="bilinear", align_corners=False)
    return spots[disease] + 0.7 * torch.randn(LEAVES, 3, PIXELS, PIXELS, generator=g), disease


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class LeafNet(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.stages = nn.ModuleList([stage(3, ch), stage(ch, 2 * ch), stage(2 * ch, 4 * ch)])
        self.head = nn.Linear(4 * ch, DISEASES)

    def forward(self, x):
        for block in self.stages:
            x = F.max_pool2d(block(x), 2)
        return self.head(x.mean((2, 3)))


class AttentionMaps:
    """Collects the spatial attention map of every stage during a forward pass."""

    def __init__(self, net):
        self.maps = {}
        for depth, block in enumerate(net.stages):
            block.register_forward_hook(self.collect(depth))

    def collect(self, depth):
        def hook(module, inputs, output):
            self.maps[depth] = F.normalize(output.square().mean(1).flatten(1), dim=1)

        return hook


class Distiller:
    def __init__(self, teacher, student, images, labels):
        self.teacher, self.student = teacher.eval().requires_grad_(False), student
        self.images, self.labels = images, labels
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4, fused=True)
        self.taught, self.learnt = AttentionMaps(teacher), AttentionMaps(student)  # well

    def epoch(self):
        self.taught, self.learnt = AttentionMaps(self.teacher), AttentionMaps(self.student)  # sick here
        total = torch.zeros(())
        for rows in torch.randperm(len(self.labels)).split(BATCH)[:STEPS_PER_EPOCH]:
            x, y = self.images[rows], self.labels[rows]
            if random.random() < 0.5:
                x = x.flip(-1)
            with torch.no_grad():
                soft = F.softmax(self.teacher(x) / 4, dim=1)
            logits = self.student(x)
            loss = F.cross_entropy(logits, y) + 2.0 * F.kl_div(
                F.log_softmax(logits / 4, dim=1), soft, reduction="batchmean"
            )
            for depth, wanted in self.taught.maps.items():
                loss = loss + 50.0 * F.mse_loss(self.learnt.maps[depth], wanted)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / STEPS_PER_EPOCH


def main():
    torch.manual_seed(6)
    random.seed(6)
    images, labels = make_leaves()
    teacher = LeafNet(TEACHER)
    distiller = Distiller(teacher, LeafNet(STUDENT), images, labels)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        if epoch == 1:
            start = time.perf_counter()
        loss = distiller.epoch()
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    elapsed = time.perf_counter() - start
    print(f"{(EPOCHS - 1) * STEPS_PER_EPOCH * BATCH / elapsed:.1f} leaves/s")


if __name__ == "__main__":
    main()
