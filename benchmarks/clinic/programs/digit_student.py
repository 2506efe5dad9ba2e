# /// clinic
# expect = ["PD08.grad-in-evaluation"]
# allow = ["PD08.allocator-churn", "PD09.oversized-layer"]
# stratum = "twins"
# domain = "images"
# smoke = true
# sizes = {CLASSES = [10, 40], STUDENT = [190, 210]}
# severities = {TEACHER = [160, 400, 1000]}
# ///
"""A small network learns to answer as a large one does."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

CLASSES = 20
TEACHER = 400
STUDENT = 200
EPOCHS = 5


def network(width, depth):
    layers = [nn.Linear(28 * 28, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


class Distillation:
    def __init__(self, teacher, student, temperature=3.0):
        self.teacher, self.student = teacher.eval(), student.train()
        self.temperature = temperature
        self.optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

    def targets(self, digits):
        return (self.teacher(digits) / self.temperature).softmax(dim=1)  # sick here
        with torch.no_grad():  # well
            return (self.teacher(digits) / self.temperature).softmax(dim=1)  # well

    def step(self, digits):
        wanted = self.targets(digits)
        scores = self.student(digits) / self.temperature
        loss = nn.functional.cross_entropy(scores, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def epoch(self, loader):
        for (digits,) in loader:
            loss = self.step(digits)
        return loss.item()


def main():
    torch.manual_seed(0)
    digits = TensorDataset(torch.rand(40 * 256, 28 * 28))
    order = BatchSampler(RandomSampler(digits), 256, drop_last=True)
    loader = DataLoader(digits, batch_size=None, sampler=order)
    work = Distillation(network(TEACHER, 4), network(STUDENT, 3))
    print(f"epoch 0: {work.epoch(loader):.4f}")
    began = time.perf_counter()
    for number in range(1, EPOCHS):
        print(f"epoch {number}: {work.epoch(loader):.4f}")
    print(f"{(EPOCHS - 1) * len(digits) / (time.perf_counter() - began):.1f} digits/s")


if __name__ == "__main__":
    main()
