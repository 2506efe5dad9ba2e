# /// clinic
# expect = ["PD17.passes-one-by-one"]
# stratum = "twins"
# domain = "pebble shores"
# ///
# %% [markdown]
# Shingle transport from hydrophone bursts
#
# A hydrophone buried in a pebble beach records the clicks of colliding pebbles. The number and the sharpness of the
# clicks in the frequency bands tell the size class of the moving pebbles. We read the band-wise click trains with a
# recurrent spiking network (leaky integrate and fire, surrogate gradients), swash after swash.

# %%
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    bands: int = 40
    hidden: int = 192
    classes: int = 5
    swash_steps: int = 10
    swashes: int = 4
    batch_size: int = 64
    epochs: int = 3
    records: int = 4096
    val_records: int = 256
    lr: float = 1e-3
    decay_mem: float = 0.9
    decay_syn: float = 0.8
    seed: int = 5


cfg = Config()
torch.manual_seed(cfg.seed)

# %% [markdown]
# Records: (n, time, bands) click counts. Each swash has an uprush with many clicks and a calmer backwash.


# %%
def make_records(n, seed):
    rng = np.random.default_rng(seed)
    steps = cfg.swash_steps * cfg.swashes
    label = rng.integers(0, cfg.classes, n)
    band = np.arange(cfg.bands)
    centre = cfg.bands * (0.85 - 0.14 * label)[:, None]
    width = rng.uniform(5, 9, (n, 1))
    spectrum = np.exp(-0.5 * ((band - centre) / width) ** 2)
    phase = (np.arange(steps) % cfg.swash_steps) / cfg.swash_steps
    energy = np.exp(-3 * phase)[None, :] * rng.uniform(0.5, 1.5, (n, 1)) + 0.1
    rate = 0.5 * energy[:, :, None] * spectrum[:, None, :] + 0.06
    clicks = (rng.random(rate.shape, dtype=np.float32) < rate).astype(np.float32)
    return torch.from_numpy(clicks), torch.from_numpy(label)


train_x, train_y = make_records(cfg.records, 1)
val_x, val_y = make_records(cfg.val_records, 2)
print("train", tuple(train_x.shape), "clicks per step and band", round(train_x.mean().item(), 3))

# %% [markdown]
# Spiking layers


# %%
class FastSigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 10 * v.abs()) ** 2


spike = FastSigmoid.apply


class RecurrentLIF(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.w_in = nn.Linear(n_in, n_out)
        self.w_rec = nn.Linear(n_out, n_out, bias=False)
        nn.init.orthogonal_(self.w_rec.weight, gain=0.3)

    def init_state(self, batch):
        zeros = torch.zeros(batch, self.w_in.out_features)
        return zeros, zeros, zeros

    def forward(self, x, state):
        syn, mem, out = state
        syn = cfg.decay_syn * syn + self.w_in(x) + self.w_rec(out)
        mem = cfg.decay_mem * mem * (1 - out) + syn
        out = spike(mem - 1.0)
        return out, (syn, mem, out)


class ShoreNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([RecurrentLIF(cfg.bands, cfg.hidden), RecurrentLIF(cfg.hidden, cfg.hidden)])
        self.readout = nn.Linear(cfg.hidden, cfg.classes)

    def init_state(self, batch):
        return [layer.init_state(batch) for layer in self.layers]

    def forward(self, x, state):
        total = 0
        for t in range(x.size(1)):
            h = x[:, t]
            new_state = []
            for layer, s in zip(self.layers, state):
                h, s = layer(h, s)
                new_state.append(s)
            state = new_state
            total = total + h
        return self.readout(total / x.size(1)), state


# %% [markdown]
# Training: the beach is read swash by swash, the membrane state goes from one swash to the next, and each swash has
# its own loss. One optimizer step per record batch.

# %%
net = ShoreNet()
opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-4)


@torch.no_grad()
def validate():
    right = 0
    for xb, yb in zip(val_x.split(128), val_y.split(128)):
        state = net.init_state(len(xb))
        votes = 0
        for swash in xb.split(cfg.swash_steps, dim=1):
            logits, state = net(swash, state)
            votes = votes + logits.softmax(-1)
        right += (votes.argmax(-1) == yb).sum().item()
    return right / len(val_x)


# %%
seen = 0
began = time.perf_counter()
for epoch in range(cfg.epochs):
    losses = []
    for idx in torch.randperm(cfg.records).split(cfg.batch_size):
        xb, yb = train_x[idx], train_y[idx]
        opt.zero_grad()
        state = net.init_state(len(xb))
        batch_loss = 0.0
        for swash in xb.split(cfg.swash_steps, dim=1):
            logits, state = net(swash, state)
            loss = F.cross_entropy(logits, yb) / cfg.swashes
            loss.backward(retain_graph=True)  # sick here
            loss.backward()  # well
            state = [tuple(s.detach() for s in layer_state) for layer_state in state]  # well
            batch_loss += loss.item()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        losses.append(batch_loss)
        seen += len(xb)
    print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, val accuracy {validate():.3f}")
rate = seen / (time.perf_counter() - began)

# %%
print(f"{rate:.1f} records/s")
