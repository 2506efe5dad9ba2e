"""Training on the CPU, with a probe that is made to believe in a CUDA device: `marked.py STEPS`.

Stands in for `device_clock.Cuda`: a queue by the host's clock that nobody works on. Without the probe: plain training.
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

DEVICE_NS = 2_000_000
"""What the device takes for a forward."""


class Queue:
    free_ns = 0

    def ask(self, ns):
        self.free_ns = max(self.free_ns, time.perf_counter_ns()) + ns


QUEUE = Queue()


class Event:
    def query(self):
        return self.at_ns <= time.perf_counter_ns()

    def elapsed_time(self, other):
        assert self.query() and other.query()
        return (other.at_ns - self.at_ns) / 1e6


class Device:
    def __init__(self, name):
        assert name == "cuda:0"
        self.now = time.perf_counter_ns
        self.event = Event

    def record(self, event):
        QUEUE.ask(0)
        event.at_ns = QUEUE.free_ns

    def capturing(self):
        return False

    def elsewhere(self):
        return False


class Model(torch.nn.Linear):
    def forward(self, x):
        QUEUE.ask(DEVICE_NS)
        return super().forward(x)


def believe():
    """Where the probe is, let it find CUDA initialised and the model on a device."""
    device_clock = sys.modules.get("_perfdoctor_probe.hooks.device_clock")
    if device_clock is None:
        return
    settings = sys.modules["_perfdoctor_probe.settings"]
    original = settings.torch_settings
    settings.torch_settings = lambda *seen: {**original(*seen), "cuda": {"total_bytes": 0, "allocator": "none"}}
    device_clock.home = lambda devices: ("cuda:0", "")
    device_clock.Cuda = Device


def main(steps):
    believe()
    torch.manual_seed(0)
    model = Model(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, num_workers=1)
    done = 0
    while done < steps:
        for (x,) in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            time.sleep(max(0.0, (QUEUE.free_ns - time.perf_counter_ns()) / 1e9))
    print(f"{loss.item():.8f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
