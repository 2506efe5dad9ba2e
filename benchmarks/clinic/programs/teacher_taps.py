# /// clinic
# expect = ["PD15"]
# stratum = "twins"
# domain = "distillation"
# ///
"""Distil a wide digit classifier into a narrow one by its inner features."""

import time

import torch
import torch.nn.functional as F
from torch import nn

INPUTS = 784
CLASSES = 10
TEACHER = 768
STUDENT = 256
BATCH = 64
STEPS = 1100
SAMPLES = 8192
TEMPERATURE = 3.0


def mlp(width):
    return nn.Sequential(
        nn.Linear(INPUTS, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def saver(name, into):
    def hook(module, args, output):
        into[name] = F.normalize(output.flatten(1), dim=1)

    return hook


def make_extractor(model, layers):
    taken = {}

    for i in layers:  # well
        model[i].register_forward_hook(saver(i, taken))  # well

    def extract(x):
        for i in layers:  # sick
            model[i].register_forward_hook(saver(i, taken))  # sick here
        logits = model(x)
        return logits, [taken[i] for i in layers]

    return extract


def make_loss(teacher, student, layers):
    teach = make_extractor(teacher, layers)
    project = nn.ModuleList(nn.Linear(STUDENT, TEACHER) for _ in layers)

    def learn(x):
        feats = []
        for i, block in enumerate(student):
            x = block(x)
            if i in layers:
                feats.append(project[len(feats)](x))
        return x, feats

    def loss(x, y):
        with torch.no_grad():
            soft, goals = teach(x)
        logits, feats = learn(x)
        kl = (
            F.kl_div(F.log_softmax(logits / TEMPERATURE, 1), F.softmax(soft / TEMPERATURE, 1), reduction="batchmean")
            * TEMPERATURE**2
        )
        match = sum((F.normalize(f, dim=1) - g).square().sum(1).mean() for f, g in zip(feats, goals))
        return F.cross_entropy(logits, y) + kl + 0.5 * match

    return loss, [*student.parameters(), *project.parameters()]


def main():
    torch.manual_seed(0)
    centers = torch.randn(CLASSES, INPUTS)
    y = torch.randint(0, CLASSES, (SAMPLES,))
    x = centers[y] + 2.0 * torch.randn(SAMPLES, INPUTS)
    teacher, student = mlp(TEACHER).eval(), mlp(STUDENT)
    loss_of, params = make_loss(teacher, student, layers=(1, 3))
    optimizer = torch.optim.Adam(params, lr=1e-3, fused=True)
    for step in range(1, STEPS + 1):
        pick = torch.randint(0, SAMPLES, (BATCH,))
        optimizer.zero_grad()
        loss_of(x[pick], y[pick]).backward()
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
