# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "tram wires"
# ///
"""Wear grading of tram contact wires from pantograph camera crops.

First version: Keras 1.2 / TF 0.12 (2017). Ported to PyTorch 0.3, later to 1.x; `compile` and `fit` were kept so
that the depot's scripts keep working.
"""

import os
import time
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GRADES = ["new", "worn", "kinked", "arc_burn"]
HEIGHT, WIDTH = 48, 64
USE_CUDA = torch.cuda.is_available()


def to_device(t):
    return t.cuda() if USE_CUDA else t


def draw_crops(n, seed):
    rng = np.random.RandomState(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    grade = rng.randint(0, len(GRADES), n)
    y0, slope = rng.uniform(12, 36, n), rng.uniform(-0.15, 0.15, n)
    thick = np.where(grade == 1, 1.1, 1.9) * rng.uniform(0.9, 1.1, n)
    kink = np.where(grade == 2, rng.uniform(2.0, 5.0, n), 0.0)
    spot = rng.uniform(10, WIDTH - 10, n)

    def col(v):
        return v.astype(np.float32)[:, None, None]

    line = col(y0) + col(slope) * x + col(kink) * np.exp(-((x - col(spot)) ** 2) / 20.0)
    img = np.exp(-((y - line) ** 2) / (2 * col(thick) ** 2))
    burn = np.exp(-((x - col(spot)) ** 2 + (y - line) ** 2) / 6.0)
    img = img + col(np.where(grade == 3, 0.8, 0.0)) * burn + rng.normal(0, 0.15, img.shape).astype(np.float32)
    return torch.from_numpy(img[:, None].astype(np.float32)), torch.from_numpy(grade.astype(np.int64))


class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.short is None else self.short(x)))


class WireNet(nn.Module):
    def __init__(self, width=24, n_out=len(GRADES)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage1 = nn.Sequential(Block(width, width), Block(width, width))
        self.stage2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width))
        self.stage3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width))
        self.fc = nn.Linear(4 * width, n_out)

    def forward(self, x):
        x = self.stage3(self.stage2(self.stage1(self.stem(x))))
        return self.fc(x.mean(3).mean(2))


def set_trainable(layer, flag):
    """Same semantics as `layer.trainable = flag` in Keras, for a layer and all that is in it."""
    for sub in layer.modules():
        sub.trainable = flag
        sub.requires_grad = flag  # sick here
        sub.requires_grad_(flag)  # well


def strip_parallel(state):
    return OrderedDict((k[7:] if k.startswith("module.") else k, v) for k, v in state.items())


def write_line_checkpoint(path):
    """Stand-in for the checkpoint of the main line depot (trained under DataParallel)."""
    torch.manual_seed(12)
    net, (crops, _) = WireNet(n_out=9), draw_crops(256, seed=99)
    net.train()
    with torch.no_grad():
        for part in crops.split(32):
            net(part)
    torch.save(OrderedDict(("module." + k, v) for k, v in net.state_dict().items()), path)


class WireModel:
    def __init__(self, checkpoint):
        state = strip_parallel(torch.load(checkpoint, map_location=lambda storage, loc: storage))
        self.net = WireNet()
        own = self.net.state_dict()
        own.update({k: v for k, v in state.items() if not k.startswith("fc.")})
        self.net.load_state_dict(own)
        self.net = to_device(self.net)
        self.frozen = [self.net.stem, self.net.stage1, self.net.stage2]
        for layer in self.frozen:
            set_trainable(layer, False)

    def compile(self, lr=0.01, momentum=0.9, decay=1e-4):
        groups = [
            {"params": self.net.stage3.parameters(), "lr": lr * 0.3},
            {"params": self.net.fc.parameters(), "lr": lr},
        ]
        self.optimizer = torch.optim.SGD(groups, lr=lr, momentum=momentum, weight_decay=decay)
        self.loss = nn.CrossEntropyLoss()

    def _train_mode(self):
        self.net.train()
        for layer in self.frozen:
            layer.eval()

    def train_on_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.net(to_device(x)), to_device(y))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self, x, y, batch_size=64):
        self.net.eval()
        hits = 0
        with torch.no_grad():
            for part, want in zip(x.split(batch_size), y.split(batch_size)):
                hits += (self.net(to_device(part)).max(1)[1].cpu() == want).sum().item()
        return hits / len(y)

    def fit(self, x, y, batch_size=16, nb_epoch=4, validation_data=None):
        seen, began = 0, time.time()
        for epoch in range(nb_epoch):
            self._train_mode()
            order, losses = torch.randperm(len(y)), []
            for index in order.split(batch_size):
                losses.append(self.train_on_batch(x[index], y[index]))
                seen += len(index)
            val = self.evaluate(*validation_data)
            print(f"Epoch {epoch + 1}/{nb_epoch}  loss: {np.mean(losses):.4f}  val_acc: {val:.3f}")
        return seen / (time.time() - began)


def main():
    os.makedirs("checkpoints", exist_ok=True)
    path = os.path.join("checkpoints", "mainline_wirenet.pth")
    write_line_checkpoint(path)
    torch.manual_seed(3)
    x, y = draw_crops(1600, seed=1)
    held_out = draw_crops(320, seed=2)
    model = WireModel(path)
    model.compile(lr=0.02)
    rate = model.fit(x, y, batch_size=16, nb_epoch=4, validation_data=held_out)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
