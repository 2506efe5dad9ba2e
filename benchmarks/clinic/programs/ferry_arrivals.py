# /// clinic
# expect = ["PD06.busy-waiting"]
# stratum = "twins"
# domain = "transport, tabular sequence regression"
# sizes = {WIDTH = [288, 352], BATCH = [320, 448]}
# ///
import json
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 320
BATCH = 384
STOPS = 12
FIELDS = 24


class Journal(threading.Thread):
    """Appends records to a file so that the training loop need not touch the disk."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = Path(path)
        self.box = queue.SimpleQueue()
        self.closing = threading.Event()

    def note(self, **record):
        self.box.put(record)

    def run(self):
        with self.path.open("a") as out:
            while not (self.closing.is_set() and self.box.empty()):
                try:
                    record = self.box.get_nowait()
                except queue.Empty:
                    time.sleep(0)  # sick here
                    self.closing.wait(0.25)  # well
                    continue
                out.write(json.dumps(record) + "\n")

    def close(self):
        self.closing.set()
        self.join()


class DelayNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(STOPS * FIELDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(3)
        )
        self.head = nn.Linear(WIDTH, STOPS)

    def forward(self, x):
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


def crossings(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, STOPS, FIELDS, generator=g)
    tide = x[..., 0].sin() * 2 + x[..., 1].relu()
    delay = tide.cumsum(1) / 3 + 0.1 * torch.randn(n, STOPS, generator=g)
    return x, delay


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        err = F.l1_loss(model(x), y).item()
    model.train()
    return err


def main(epochs=12, rounds=60):
    torch.manual_seed(4)
    x, y = crossings(BATCH * rounds, 1)
    xv, yv = crossings(1024, 2)
    model = DelayNet()
    opt = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl")
        journal.start()
        for epoch in range(epochs):
            if epoch == 1:
                began = time.perf_counter()
            for k, rows in enumerate(torch.randperm(len(x)).split(BATCH)):
                loss = F.smooth_l1_loss(model(x[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                if k % 20 == 0:
                    journal.note(epoch=epoch, k=k, loss=round(loss.item(), 5))
            mae = evaluate(model, xv, yv)
            journal.note(epoch=epoch, mae=mae)
            print(f"epoch {epoch:2d} mae {mae:.4f}", flush=True)
        took = time.perf_counter() - began
        journal.close()
    print(f"done, {(epochs - 1) * len(x) / took:.1f} crossings/s")


if __name__ == "__main__":
    main()
