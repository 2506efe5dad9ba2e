# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "letterpress type"
# ///
"""Few-shot recognition of letterpress sorts (MAML).

A type case holds sorts of a fount nobody has a specimen sheet of.  From one or two proofs of each of five sorts the
network must tell further proofs apart, so it is meta-trained on many other founts.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter, rotate, shift


@dataclass
class Config:
    founts: int = 40
    sorts_per_fount: int = 12
    proofs: int = 8
    size: int = 20
    ways: int = 5
    shots: int = 2
    queries: int = 4
    tasks_per_update: int = 3
    inner_steps: int = 3
    inner_lr: float = 0.2
    meta_lr: float = 2e-3
    updates: int = 240
    validate_every: int = 60
    width: int = 16
    detect_anomaly: bool = True  # sick here
    detect_anomaly: bool = False  # well
    seed: int = 1450


def cut_punch(rng, size):
    """The face of a sort: a few strokes and a serif."""
    face = np.zeros((size, size), np.float32)
    for _ in range(rng.integers(2, 5)):
        start, end = rng.uniform(3, size - 3, 2), rng.uniform(3, size - 3, 2)
        for t in np.linspace(0, 1, 2 * size):
            row, column = (start + t * (end - start)).astype(int)
            face[row : row + 2, column : column + 2] = 1
    foot = int(rng.integers(4, size - 8))
    face[size - 4, foot : foot + 5] = 1
    return face


def pull_proof(face, rng):
    """Wear, too much ink, a sort that stands askew."""
    proof = rotate(face, rng.uniform(-9, 9), reshape=False, order=1)
    proof = shift(proof, rng.uniform(-1.5, 1.5, 2), order=1)
    proof = gaussian_filter(proof, rng.uniform(0.3, 0.9))
    proof *= rng.random(face.shape) > 0.06
    return proof + rng.normal(0, 0.08, face.shape)


def pull_founts(cfg, rng):
    cases = np.empty((cfg.founts, cfg.sorts_per_fount, cfg.proofs, 1, cfg.size, cfg.size), np.float32)
    for fount in cases:
        for sort in fount:
            face = cut_punch(rng, cfg.size)
            for proof in sort:
                proof[0] = pull_proof(face, rng)
    return torch.from_numpy(cases)


class TypeCase:
    """Draws episodes: support and query proofs of a few sorts of one fount."""

    def __init__(self, cases, cfg, seed):
        self.cases, self.cfg = cases, cfg
        self.generator = torch.Generator().manual_seed(seed)

    def _some(self, n, of):
        return torch.randperm(of, generator=self.generator)[:n]

    def episode(self):
        cfg = self.cfg
        fount = self.cases[torch.randint(len(self.cases), (), generator=self.generator)]
        sorts = fount[self._some(cfg.ways, cfg.sorts_per_fount)]
        sorts = sorts[:, self._some(cfg.shots + cfg.queries, cfg.proofs)]
        support, query = sorts[:, : cfg.shots], sorts[:, cfg.shots :]
        label = torch.arange(cfg.ways)
        return (
            (support.flatten(0, 1), label.repeat_interleave(cfg.shots)),
            (query.flatten(0, 1), label.repeat_interleave(cfg.queries)),
        )


def initial_weights(cfg):
    weights = OrderedDict()
    channels = 1
    for block in range(3):
        weights[f"conv{block}"] = torch.randn(cfg.width, channels, 3, 3) * (2 / (9 * channels)) ** 0.5
        weights[f"gain{block}"] = torch.ones(cfg.width)
        weights[f"bias{block}"] = torch.zeros(cfg.width)
        channels = cfg.width
    weights["head"] = torch.zeros(cfg.ways, cfg.width * 4)
    weights["head_bias"] = torch.zeros(cfg.ways)
    return OrderedDict((name, value.requires_grad_()) for name, value in weights.items())


def network(weights, x):
    for block in range(3):
        x = F.conv2d(x, weights[f"conv{block}"], padding=1)
        x = F.batch_norm(x, None, None, weights[f"gain{block}"], weights[f"bias{block}"], training=True)
        x = F.max_pool2d(F.relu(x), 2)
    return F.linear(x.flatten(1), weights["head"], weights["head_bias"])


class MetaLearner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.weights = initial_weights(cfg)
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=cfg.meta_lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.updates)

    def adapt(self, support, second_order):
        x, y = support
        fast = self.weights
        for _ in range(self.cfg.inner_steps):
            loss = F.cross_entropy(network(fast, x), y)
            grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=second_order)
            fast = OrderedDict((name, w - self.cfg.inner_lr * g) for (name, w), g in zip(fast.items(), grads))
        return fast

    def update(self, episodes):
        self.optimizer.zero_grad()
        total = 0.0
        for support, (x, y) in episodes:
            fast = self.adapt(support, second_order=True)
            loss = F.cross_entropy(network(fast, x), y) / len(episodes)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 5.0)
        self.optimizer.step()
        self.schedule.step()
        return total

    def validate(self, case, episodes=10):
        right = 0.0
        for _ in range(episodes):
            support, (x, y) = case.episode()
            fast = self.adapt(support, second_order=False)
            with torch.no_grad():
                right += (network(fast, x).argmax(1) == y).float().mean().item()
        return right / episodes


def main(cfg):
    torch.manual_seed(cfg.seed)
    torch.autograd.set_detect_anomaly(cfg.detect_anomaly)  # here
    cases = pull_founts(cfg, np.random.default_rng(cfg.seed))
    known, unknown = cases[:-8], cases[-8:]
    train, held = TypeCase(known, cfg, seed=1), TypeCase(unknown, cfg, seed=2)
    learner = MetaLearner(cfg)
    best, smooth = 0.0, None
    began = time.perf_counter()
    for update in range(1, cfg.updates + 1):
        loss = learner.update([train.episode() for _ in range(cfg.tasks_per_update)])
        smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
        if update % cfg.validate_every == 0:
            right = learner.validate(held)
            print(f"update {update}: loss {smooth:.3f}, sorts of unknown founts {right:.3f} right")
            if right > best:
                best = right
                torch.save(learner.weights, "sorts.pt")
    rate = cfg.updates * cfg.tasks_per_update / (time.perf_counter() - began)
    print(f"best {best:.3f}")
    print(f"{rate:.1f} episodes/s")


if __name__ == "__main__":
    main(Config())
