# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "rock pools"
# ///
# %% [markdown]
# # Rock pools: from drawn surveys to the shore
# A survey of a rock pool is a *set* of finds (position, size, colour, depth). Labels (exposure class of the shore)
# exist for drawn surveys only; the student is adapted to field surveys with a multi-kernel MMD on two layers, and
# follows a mean teacher on the field side.

# %%
import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 5
FINDS = 40
FEATURES = 12
BATCH = 80
EPOCHS = 8
LR = 7e-4
MMD_WEIGHT = 0.6
TEACHER_WEIGHT = 0.3
TEACHER_DECAY = 0.98

accelerator = Accelerator(cpu=True)
set_seed(21)


# %%
def make_surveys(count, field, seed):
    """Finds of `count` pools; field surveys have other light, missed small animals and a tilted frame."""
    shore = np.random.default_rng(77)
    centres = shore.normal(0, 1.0, (CLASSES, 4, FEATURES))
    spread = shore.uniform(0.5, 1.2, (CLASSES, 4, 1))
    tilt = np.linalg.qr(shore.normal(0, 1, (FEATURES, FEATURES)) * 0.25 + np.eye(FEATURES))[0]
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, count)
    species = rng.integers(0, 4, (count, FINDS))
    x = centres[label[:, None], species]
    x = x + spread[label[:, None], species] * rng.normal(0, 1.3, (count, FINDS, FEATURES))
    present = rng.random((count, FINDS)) < rng.uniform(0.5, 1.0, (count, 1))
    if field:
        x = 0.9 * x @ tilt + 0.3
        present &= rng.random((count, FINDS)) < 0.85
    present[:, 0] = True
    return (
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy(present.astype(np.float32)),
        torch.from_numpy(label),
    )


drawn = make_surveys(2560, field=False, seed=1)
field = make_surveys(2560, field=True, seed=2)
field_test = make_surveys(512, field=True, seed=3)


# %%
class PoolNet(nn.Module):
    """Deep set with one round of exchange between each find and the pool as a whole."""

    def __init__(self, width=128, embed=192):
        super().__init__()
        self.find = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.exchange = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, width))
        self.pool = nn.Sequential(nn.Linear(2 * width, embed), nn.LayerNorm(embed), nn.GELU())
        self.last = nn.Sequential(nn.Linear(embed, embed), nn.GELU())
        self.classify = nn.Linear(embed, CLASSES)

    def forward(self, x, present):
        mask = present.unsqueeze(-1)
        count = mask.sum(1).clamp_min(1)
        h = self.find(x) * mask
        whole = (h.sum(1) / count).unsqueeze(1).expand_as(h)
        h = (h + self.exchange(torch.cat([h, whole], -1))) * mask
        low = self.pool(torch.cat([h.sum(1) / count, h.amax(1)], -1))
        high = self.last(low)
        return self.classify(high), (low, high)


class MultiKernelMMD(nn.Module):
    """Maximum mean discrepancy with a family of Gaussian kernels; the median scale follows the batch."""

    def __init__(self, kernels=5, factor=2.0):
        super().__init__()
        self.register_buffer("scales", factor ** (torch.arange(kernels) - kernels // 2).float())

    def distances(self, total):
        n, dim = total.shape
        rows = total.unsqueeze(0).expand(n, n, dim)  # sick
        cols = total.unsqueeze(1).expand(n, n, dim)  # sick
        return ((rows - cols) ** 2).sum(2)  # sick here
        squares = total.square().sum(1)  # well
        return (squares[:, None] + squares[None, :] - 2 * total @ total.T).clamp_min(0)  # well

    def forward(self, source, target):
        n = len(source)
        dist = self.distances(torch.cat([source, target]))
        bandwidth = dist.detach().sum() / (dist.numel() - len(dist))
        kernel = sum(torch.exp(-dist / (bandwidth * s)) for s in self.scales)
        xx, yy, xy = kernel[:n, :n], kernel[n:, n:], kernel[:n, n:]
        return xx.mean() + yy.mean() - 2 * xy.mean()


def jitter(x, present):
    """A second look at a pool: measurement noise and some finds overlooked."""
    keep = (torch.rand_like(present) > 0.1).float()
    keep[:, 0] = 1.0
    return x + 0.1 * torch.randn_like(x), present * keep


# %%
student = PoolNet()
teacher = copy.deepcopy(student).requires_grad_(False)
mmd = MultiKernelMMD()
optimizer = torch.optim.AdamW(student.parameters(), lr=LR, weight_decay=1e-3)
drawn_loader = DataLoader(TensorDataset(*drawn), batch_size=BATCH, shuffle=True, drop_last=True)
field_loader = DataLoader(TensorDataset(*field[:2]), batch_size=BATCH, shuffle=True, drop_last=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=EPOCHS * len(drawn_loader))
student, optimizer, drawn_loader, field_loader, schedule = accelerator.prepare(
    student, optimizer, drawn_loader, field_loader, schedule
)


@torch.no_grad()
def update_teacher():
    for slow, fast in zip(teacher.parameters(), accelerator.unwrap_model(student).parameters()):
        slow.lerp_(fast, 1 - TEACHER_DECAY)


@torch.no_grad()
def accuracy(model, surveys):
    model.eval()
    x, present, label = surveys
    hit = torch.cat([model(a, b)[0].argmax(1) for a, b in zip(x.split(256), present.split(256))]) == label
    model.train()
    return hit.float().mean().item()


# %%
start, seen = time.perf_counter(), 0
for epoch in range(EPOCHS):
    totals = np.zeros(3)
    for (xs, ps, ys), (xt, pt) in zip(drawn_loader, field_loader):
        logits, source_layers = student(xs, ps)
        field_logits, field_layers = student(*jitter(xt, pt))
        with torch.no_grad():
            aim = (teacher(*jitter(xt, pt))[0] / 0.7).softmax(1)

        class_loss = F.cross_entropy(logits, ys, label_smoothing=0.05)
        mmd_loss = sum(mmd(s, t) for s, t in zip(source_layers, field_layers))
        teacher_loss = F.kl_div(field_logits.log_softmax(1), aim, reduction="batchmean")
        warm = min(1.0, (epoch + 1) / 3)
        loss = class_loss + warm * (MMD_WEIGHT * mmd_loss + TEACHER_WEIGHT * teacher_loss)

        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(student.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        update_teacher()
        seen += len(xs) + len(xt)
        totals += [class_loss.item(), mmd_loss.item(), teacher_loss.item()]
    means = totals / len(drawn_loader)
    accelerator.print(
        f"epoch {epoch}: class {means[0]:.3f} mmd {means[1]:.4f} teacher {means[2]:.3f} "
        f"field accuracy {accuracy(teacher, field_test):.3f}"
    )

# %%
rate = seen / (time.perf_counter() - start)
print(f"{rate:.1f} surveys/s")
