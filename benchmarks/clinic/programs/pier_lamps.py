# /// clinic
# stratum = "decoys"
# resembles = ["PD14"]
# domain = "tabular"
# allow = ["PD05"]
# sizes = {READINGS = [60, 90], WIDTH = [450, 550]}
# ///
"""Which lamp on the pier fails next? Its state is copied every forty steps, and a thread writes the copy."""

import contextlib
import queue
import threading
import time

import torch
from torch import nn

READINGS = 75
WIDTH = 500
BATCH = 256
STEPS = 1200


class Keeper:
    """Writes the newest state to disk, beside the training."""

    def __init__(self, path):
        self.path = path
        self.states = queue.Queue(maxsize=1)
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def keep(self, step, net):
        state = {name: weight.clone() for name, weight in net.state_dict().items()}
        with contextlib.suppress(queue.Full):  # the next one will do
            self.states.put_nowait({"step": step, "net": state})

    def write(self):
        while (state := self.states.get()) is not None:
            torch.save(state, self.path)

    def close(self):
        self.states.put(None)
        self.thread.join()


def main():
    torch.manual_seed(17)
    lamps = torch.randn(20_000, READINGS)
    fails = (lamps[:, :6].sum(1) > 2).long()
    net = nn.Sequential(nn.Linear(READINGS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    keeper = Keeper("lamps.pt")
    for step in range(STEPS):
        if step == 50:
            began = time.perf_counter()
        rows = torch.randint(0, len(lamps), (BATCH,))
        loss = nn.functional.cross_entropy(net(lamps[rows]), fails[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            keeper.keep(step, net)
    keeper.close()
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 50) * BATCH / (time.perf_counter() - began):.1f} lamps/s")


if __name__ == "__main__":
    main()
