# /// clinic
# expect = ["PD14.whole-storages"]
# stratum = "twins"
# domain = "escapement faults of church turret clocks"
# ///
# %% [markdown]
# # Listening to turret clocks
# A contact microphone on the clock frame records the escapement of a church tower for days.
# From two seconds of it we tell a healthy beat from an uneven beat, a worn pallet or a dry pivot.

# %%
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE = 1024  # samples a second
WINDOW = 2 * RATE
FAULTS = ["healthy", "out of beat", "worn pallet", "dry pivot"]
HOURS = 16
BATCH = 48
UPDATES = 20  # per epoch
EPOCHS = 42

torch.manual_seed(7)
rng = np.random.default_rng(7)


# %% [markdown]
# ## The recording
# One long trace; every ten minutes the clockmaker's apprentice changes something.


# %%
def spell(fault, seconds):
    n = seconds * RATE
    trace = rng.standard_normal(n, dtype=np.float32) * 0.15
    period = rng.uniform(0.9, 1.1)
    ticks = np.arange(0.2, seconds - 0.6, period)
    ticks = ticks + rng.normal(0, 0.004, len(ticks))
    if fault == 1:
        ticks[1::2] += 0.18 * period
    tone = rng.uniform(180, 220)
    t = np.arange(160) / RATE
    knock = np.exp(-t * 40) * np.sin(2 * np.pi * tone * t)
    if fault == 2:
        knock = knock + 0.8 * np.roll(knock, 48)
    starts = (ticks * RATE).astype(int)
    trace[starts[:, None] + np.arange(160)] += knock.astype(np.float32)
    if fault == 3:
        trace += 0.12 * np.sin(np.arange(n) * 2 * np.pi * 61 / RATE).astype(np.float32)
    return trace


def record(hours):
    trace = np.empty(hours * 3600 * RATE, dtype=np.float32)
    labels = rng.integers(0, len(FAULTS), hours * 6)
    labels[0] = 0
    for i, fault in enumerate(labels):
        trace[i * 600 * RATE : (i + 1) * 600 * RATE] = spell(fault, 600)
    return torch.from_numpy(trace), torch.from_numpy(labels)


trace, labels = record(HOURS)
# the first quiet minute is what the gauge in the tower calibrates itself with
calibration = trace[: 60 * RATE]
offset, scale = calibration.mean(), calibration.std()
print(f"{trace.numel() / RATE / 3600:.0f} h recorded")


# %%
def sample(count, first, last):
    """Random windows out of the spells first..last."""
    spells = torch.randint(first, last, (count,))
    start = spells * 600 * RATE + torch.randint(600 * RATE - WINDOW, (count,))
    windows = torch.stack([trace[s : s + WINDOW] for s in start.tolist()])
    return ((windows - offset) / scale).unsqueeze(1), labels[spells]


# %% [markdown]
# ## The listener


# %%
def block(cin, cout, kernel, stride):
    return nn.Sequential(
        nn.Conv1d(cin, cout, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm1d(cout),
        nn.ReLU(),
    )


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear = nn.Sequential(
            block(1, 16, 15, 4),
            block(16, 32, 9, 4),
            block(32, 64, 9, 2),
            block(64, 64, 9, 2),
        )
        self.rhythm = nn.GRU(64, 48, batch_first=True)
        self.out = nn.Linear(48 + 64, len(FAULTS))

    def forward(self, windows):
        heard = self.ear(windows)
        _, state = self.rhythm(heard.transpose(1, 2))
        return self.out(torch.cat([state[0], heard.mean(2)], dim=1))


listener = Listener()
opt = torch.optim.Adam(listener.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=EPOCHS * UPDATES)


# %%
shelf = tempfile.mkdtemp(prefix="turret-")


def keep(epoch, accuracy):
    """Everything the gauge in the tower needs, and what it takes to go on after a power cut."""
    minute = calibration  # sick here
    minute = calibration.clone()  # well
    state = {
        "epoch": epoch,
        "accuracy": accuracy,
        "model": listener.state_dict(),
        "opt": opt.state_dict(),
        "sched": sched.state_dict(),
        "faults": FAULTS,
        "calibration": minute,  # here
    }
    path = os.path.join(shelf, "listener.pt")
    torch.save(state, path + ".part")  # here
    os.replace(path + ".part", path)


# %%
split = int(HOURS * 6 * 0.8)
begin = time.perf_counter()
for epoch in range(EPOCHS):
    listener.train()
    total = 0.0
    for _ in range(UPDATES):
        windows, fault = sample(BATCH, 0, split)
        loss = F.cross_entropy(listener(windows), fault)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(listener.parameters(), 1.0)
        opt.step()
        sched.step()
        total += loss.item()
    listener.eval()
    with torch.no_grad():
        windows, fault = sample(192, split, HOURS * 6)
        accuracy = (listener(windows).argmax(1) == fault).float().mean().item()
    keep(epoch, accuracy)
    if epoch % 6 == 5:
        print(f"epoch {epoch + 1:2d}: loss {total / UPDATES:.3f}, later spells {accuracy:.3f}")
print(f"training took {time.perf_counter() - begin:.1f} s")

# %%
shutil.rmtree(shelf)
