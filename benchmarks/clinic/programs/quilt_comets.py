# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "distillation"
# ///
"""Train a wide network on pictures of comet tails and hand its knowledge to a narrow, sturdy one.

The wide network learns from the labels.  The narrow one then learns to answer as the wide one does, even
when its picture has been altered by a small perturbation sought to make the two disagree.
"""

import time

import torch
from torch import nn
import torch.nn.functional as F

SIZE = 20
CLASSES = 8
BATCH = 64
PICTURES = 1280
WIDE_EPOCHS = 2
NARROW_EPOCHS = 4
SEARCH_STEPS = 5
REACH = 0.08
STRIDE = 0.025


def make_comets(count, generator):
    """A bright head with a tail; the class is the direction of the tail."""
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angle = labels.float() * (2 * torch.pi / CLASSES)
    angle += 0.15 * torch.randn(count, generator=generator)
    head = torch.rand(count, 2, generator=generator) * 0.8 - 0.4
    grid = torch.linspace(-1.0, 1.0, SIZE)
    rows, columns = torch.meshgrid(grid, grid, indexing="ij")
    down = rows - head[:, 0, None, None]
    right = columns - head[:, 1, None, None]
    cosine, sine = angle.cos()[:, None, None], angle.sin()[:, None, None]
    along = cosine * down + sine * right
    across = cosine * right - sine * down
    tail = torch.exp(-across.square() * 40) * torch.exp(-along.clamp(min=0) * 2) * (along > 0)
    picture = tail + torch.exp(-(down.square() + right.square()) * 60)
    picture = picture[:, None] + 0.15 * torch.randn(count, 2, SIZE, SIZE, generator=generator)
    return picture, labels


def make_network(width):
    def stage(inputs, outputs, stride):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1),
            nn.GroupNorm(4, outputs),
            nn.ReLU(inplace=True),
        )

    return nn.Sequential(
        stage(2, width, 1),
        stage(width, width, 1),
        stage(width, 2 * width, 2),
        stage(2 * width, 2 * width, 1),
        stage(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, CLASSES),
    )


def divergence(scores, target):
    return F.kl_div(scores.log_softmax(1), target, reduction="batchmean")


def train_wide(teacher, pictures, labels):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=2e-3)
    seen = 0
    for _ in range(WIDE_EPOCHS):
        for chosen in torch.randperm(len(pictures)).split(BATCH):
            loss = F.cross_entropy(teacher(pictures[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(chosen)
    return seen


def train_narrow(student, teacher, pictures):
    teacher.eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    seen = 0
    for _ in range(NARROW_EPOCHS):
        for chosen in torch.randperm(len(pictures)).split(BATCH):
            clean = pictures[chosen] * (0.8 + 0.4 * torch.rand(len(chosen), 1, 1, 1))
            target = teacher(clean).softmax(1)
            altered = clean + 0.01 * torch.randn_like(clean)
            student.requires_grad_(False)
            for _ in range(SEARCH_STEPS):
                altered.requires_grad_(True)
                gap = divergence(student(altered), teacher(clean).softmax(1))  # sick here
                gap = divergence(student(altered), target)  # well
                (slope,) = torch.autograd.grad(gap, altered)
                altered = altered.detach() + STRIDE * slope.sign()
                altered = torch.clamp(altered, clean - REACH, clean + REACH)
            student.requires_grad_(True)

            loss = divergence(student(altered), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(chosen)
    return seen


@torch.no_grad()
def accuracy(network, pictures, labels):
    right = sum((network(x).argmax(1) == y).sum().item() for x, y in zip(pictures.split(256), labels.split(256)))
    return right / len(pictures)


def main():
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(2)
    pictures, labels = make_comets(PICTURES, generator)
    held_out = make_comets(512, generator)

    teacher = make_network(32)
    student = make_network(16)
    started = time.perf_counter()
    seen = train_wide(teacher, pictures, labels)
    seen += train_narrow(student, teacher, pictures)
    elapsed = time.perf_counter() - started

    print(f"wide network: accuracy {accuracy(teacher, *held_out):.3f}")
    print(f"narrow network: accuracy {accuracy(student, *held_out):.3f}")
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
