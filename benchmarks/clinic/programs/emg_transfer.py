# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "EMG gestures carried over to a new wearer (MMD domain adaptation)"
# ///
# Gesture recognition from forearm EMG that should carry over to a new wearer without labels.
# Labelled windows of the old wearers, unlabelled ones of the new wearer: classification loss on the first, a multi-kernel
# MMD that brings the features of both together, and a decoder that keeps the features from collapsing.
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


CHANNELS, SAMPLES, GESTURES = 8, 200, 9
FEATURES = 64
BATCH = 128
STEPS = 500

torch.manual_seed(11)
rng = np.random.default_rng(11)


# ---------------------------------------------------------------- data


def record(wearer_shift, count):
    """EMG windows: each gesture drives the channels with its own envelope, a wearer turns and scales the armband."""
    gesture = rng.integers(0, GESTURES, count)
    drive = np.random.default_rng(3).uniform(0.2, 1.5, (GESTURES, CHANNELS))
    ramps = np.random.default_rng(4).uniform(0.5, 3.0, (GESTURES, CHANNELS))
    turned = (1 - 0.3 * wearer_shift) * drive + 0.3 * wearer_shift * np.roll(drive, 1, axis=1)
    turned = turned * (1 + 0.3 * wearer_shift)
    t = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    envelope = turned[gesture][:, :, None] * (1 + 0.5 * np.sin(2 * np.pi * ramps[gesture][:, :, None] * t))
    noise = rng.standard_normal((count, CHANNELS, SAMPLES), dtype=np.float32)
    windows = envelope.astype(np.float32) * noise
    return torch.from_numpy(windows).abs(), torch.from_numpy(gesture)


source_x, source_y = record(0, 4000)
target_x, target_y = record(1, 3000)
test_x, test_y = target_x[2000:], target_y[2000:]
target_x = target_x[:2000]


def draw(*tensors):
    rows = torch.randint(0, len(tensors[0]), (BATCH,))
    return [tensor[rows] for tensor in tensors]


# ---------------------------------------------------------------- networks


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(CHANNELS, 32, 9, stride=2, padding=4)
        self.conv2 = nn.Conv1d(32, 64, 5, stride=2, padding=2)
        self.conv3 = nn.Conv1d(64, 96, 5, stride=2, padding=2)
        self.norm1 = nn.BatchNorm1d(32)
        self.norm2 = nn.BatchNorm1d(64)
        self.head = nn.Linear(96 * 2, FEATURES)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        x = F.relu(self.conv3(x))
        return self.head(torch.cat([x.mean(-1), x.amax(-1)], dim=1))


class Decoder(nn.Module):
    """Gives back the mean envelope of each channel in 25 pieces."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CHANNELS * 25))

    def forward(self, z):
        return self.net(z).view(-1, CHANNELS, 25)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, GESTURES))

    def forward(self, z):
        return self.net(z)


# ---------------------------------------------------------------- losses


def squared_distances(total):
    """All squared Euclidean distances between the rows, (n, n)."""
    n, width = total.shape  # sick
    total0 = total.unsqueeze(0).expand(n, n, width)  # sick here
    total1 = total.unsqueeze(1).expand(n, n, width)  # sick here
    return ((total0 - total1) ** 2).sum(2)  # sick here
    norms = total.square().sum(1)  # well
    return (norms[:, None] + norms[None, :] - 2 * total @ total.T).clamp_min(0)  # well


def gaussian_kernels(source, target, kernel_mul=2.0, kernel_num=5):
    total = torch.cat([source, target], dim=0)
    n = total.shape[0]
    distance = squared_distances(total)  # here
    bandwidth = distance.detach().sum() / (n * n - n)
    bandwidth = bandwidth / kernel_mul ** (kernel_num // 2)
    return sum(torch.exp(-distance / (bandwidth * kernel_mul**i)) for i in range(kernel_num))


def mmd(source, target):
    n = source.shape[0]
    kernels = gaussian_kernels(source, target)
    return kernels[:n, :n].mean() + kernels[n:, n:].mean() - 2 * kernels[:n, n:].mean()


# ---------------------------------------------------------------- training

encoder, decoder, classifier = Encoder(), Decoder(), Classifier()
networks = nn.ModuleList([encoder, decoder, classifier])
optimizer = torch.optim.AdamW(networks.parameters(), lr=1e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS)


@torch.no_grad()
def test_accuracy():
    networks.eval()
    right = sum(
        (classifier(encoder(x)).argmax(1) == y).sum().item() for x, y in zip(test_x.split(250), test_y.split(250))
    )
    networks.train()
    return right / len(test_y)


started = time.time()
networks.train()
for step in range(1, STEPS + 1):
    (xs, ys), (xt,) = draw(source_x, source_y), draw(target_x)
    both = torch.cat([xs, xt])
    features = encoder(both)
    zs, zt = features[:BATCH], features[BATCH:]

    loss_class = F.cross_entropy(classifier(zs), ys)
    loss_mmd = mmd(zs, zt)  # here
    loss_decode = F.mse_loss(decoder(features), F.avg_pool1d(both, 8))
    weight = 2 / (1 + np.exp(-10 * step / STEPS)) - 1
    loss = loss_class + weight * loss_mmd + 0.5 * loss_decode

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

    if step % 50 == 0:
        print(
            f"step {step:4d}  class {loss_class.item():.3f}  mmd {loss_mmd.item():.3f}  "
            f"decode {loss_decode.item():.3f}  {time.time() - started:5.1f} s",
            flush=True,
        )

print(f"new wearer's accuracy {test_accuracy():.3f}")
