"""Training on a CUDA device, with one illness at a time: `gpu.py NAME`, or `gpu.py healthy`."""

import contextlib
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ENDLESS = 1_000_000


class Convolutions(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.rest = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.last = nn.Linear(width, 10)
        self.read = False

    def forward(self, images):
        images = torch.relu(self.first(images))
        for layer in self.rest:
            images = torch.relu(layer(images))
            if self.read and images.mean().item() > 1e9:
                raise ArithmeticError
        return self.last(images.mean((2, 3)))


def slowly(model):
    """Far more Python per step than a small model gives the device to do."""
    total = 0
    for i in range(200_000):
        total += i
    return model


def main(illness):
    torch.manual_seed(0)
    device = "cpu" if illness == "model-on-cpu" else "cuda"
    dtype = torch.float64 if illness == "float64" else torch.float32
    batch = 2 if illness in ("small-batch", "host-bound") else 512 if illness == "device-bound" else 128
    narrow = illness in ("small-batch", "model-on-cpu", "host-bound")
    model = Convolutions(16 if narrow else 128).to(device, dtype)
    model.read = illness == "scalar-reads"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(1024, 3, 32, 32, dtype=dtype), torch.randint(10, (1024,)))
    loader = DataLoader(data, batch_size=batch, num_workers=2, pin_memory=True, persistent_workers=True)
    if illness.endswith("-bound"):
        # No loader: its workers would be a third party.
        first = next(iter(loader))
        loader = [[part.to(device) for part in first]] * 64
    # The trap: flags() switches off what it is not told to leave on.
    around = torch.backends.cudnn.flags if illness == "cudnn-off" else contextlib.nullcontext
    torch.set_float32_matmul_precision("high")
    for _ in range(ENDLESS):
        for images, labels in loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            with around():
                called = slowly(model) if illness == "host-bound" else model
                loss = nn.functional.cross_entropy(called(images), labels)
            loss.backward()
            optimizer.step()
            if illness == "empty-cache":
                torch.cuda.empty_cache()
            if illness == "captured":
                # Each time the model is called on a stream in which nothing may be asked of an event.
                with torch.cuda.graph(torch.cuda.CUDAGraph()), torch.no_grad():
                    model(images)


if __name__ == "__main__":
    main(sys.argv[1])
