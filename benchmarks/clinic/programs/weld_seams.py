# /// clinic
# expect = ["PD14.files-in-each-step"]
# stratum = "twins"
# domain = "ultrasonic inspection of weld seams, class Trainer"
# ///
"""Find flaws in weld seams from phased-array ultrasound sections (synthetic)."""

import os
import shutil
import tempfile
import time
import uuid

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


KINDS = ("sound", "pore", "crack", "lack of fusion")


def make_sections(count, height=32, width=64, seed=3):
    random = torch.Generator().manual_seed(seed)
    kind = torch.randint(len(KINDS), (count,), generator=random)
    depth = torch.arange(height).view(1, height, 1).float()
    along = torch.arange(width).view(1, 1, width).float()
    row = 8 + 16 * torch.rand(count, 1, 1, generator=random)
    column = 12 + 40 * torch.rand(count, 1, 1, generator=random)
    pore = torch.exp(-((depth - row) ** 2 + (along - column) ** 2) / 6)
    crack = torch.exp(-((depth - row - 0.5 * (along - column)) ** 2) / 3 - (along - column) ** 2 / 60)
    fusion = torch.exp(-((depth - row) ** 2) / 2 - (along - column) ** 2 / 150)
    echoes = torch.stack([torch.zeros_like(pore), pore, crack, fusion], dim=1)
    image = echoes[torch.arange(count), kind]
    image = image + 0.3 * torch.randn(count, height, width, generator=random)
    return image.unsqueeze(1), kind


class Scratch:
    """Keeps what the backward pass will need in a directory until it is asked for."""

    def __init__(self, smallest=20_000):
        self.folder = tempfile.mkdtemp(prefix="weld-")
        self.smallest = smallest

    def put(self, tensor):  # here
        if isinstance(tensor, nn.Parameter) or tensor.numel() < self.smallest:
            return tensor
        name = os.path.join(self.folder, uuid.uuid4().hex)
        torch.save(tensor, name)  # here
        return name

    def get(self, item):  # here
        if isinstance(item, torch.Tensor):
            return item
        tensor = torch.load(item)  # here
        os.unlink(item)
        return tensor

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class SeamNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Block(1, 16)
        self.middle = Block(16, 48)
        self.deep = nn.Sequential(Block(48, 96), Block(96, 96))
        self.head = nn.Linear(96, len(KINDS))

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 2)
        x = F.max_pool2d(self.middle(x), 2)
        return self.head(self.deep(x).mean((2, 3)))


class Trainer:
    def __init__(self, model, train, held_out, lr=2e-3):
        self.model = model
        self.train_loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
        self.test_loader = DataLoader(held_out, batch_size=128)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scratch = Scratch()
        self.seen = 0

    def loss(self, image, kind):
        return F.cross_entropy(self.model(image), kind, label_smoothing=0.05)

    def step(self, image, kind):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autograd.graph.saved_tensors_hooks(self.scratch.put, self.scratch.get):  # sick here
            loss = self.loss(image, kind)  # sick
        loss = self.loss(image, kind)  # well
        loss.backward()
        self.optimizer.step()
        self.seen += len(kind)
        return loss.detach()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = sum((self.model(image).argmax(1) == kind).sum() for image, kind in self.test_loader)
        self.model.train()
        return float(right) / len(self.test_loader.dataset)

    def fit(self, epochs):
        start = time.monotonic()
        for epoch in range(1, epochs + 1):
            losses = [self.step(image, kind) for image, kind in self.train_loader]
            mean = torch.stack(losses).mean().item()
            print(
                f"epoch {epoch:2d}  sections {self.seen:6d}  loss {mean:.4f}  "
                f"held out {self.accuracy():.3f}  {time.monotonic() - start:5.1f} s",
                flush=True,
            )
        self.scratch.close()


def main():
    torch.manual_seed(11)
    train = TensorDataset(*make_sections(2560))
    held_out = TensorDataset(*make_sections(256, seed=4))
    trainer = Trainer(SeamNet(), train, held_out)
    trainer.fit(epochs=5)


if __name__ == "__main__":
    main()
