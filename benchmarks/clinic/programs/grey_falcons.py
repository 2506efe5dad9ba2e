# /// clinic
# expect = ["PD20.small-evaluation-batches"]
# stratum = "twins"
# domain = "matches of a league"
# ///
"""Predicts how a match of the Falcons' league ends from both sides' last games."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STATS = 12
GAMES = 20
MATCHES = 7000
HELD_OUT = 1400
EPOCHS = 9
OUTCOMES = ["home", "draw", "away"]


def play_season(count, seed=7):
    """Form of both sides over their last games, and the outcome that followed."""
    rng = np.random.default_rng(seed)
    strength = rng.normal(0, 1, size=(count, 2, 1, 1))
    trend = rng.normal(0, 0.6, size=(count, 2, 1, 1)) * np.linspace(-1, 1, GAMES)
    weights = rng.normal(0, 1, size=(1, 1, STATS, 1))
    form = weights * (strength + trend) + rng.normal(0, 1.5, size=(count, 2, STATS, GAMES))
    edge = (strength + trend[..., -1:])[:, :, 0, 0]
    margin = edge[:, 0] - edge[:, 1] + 0.3 + rng.normal(0, 0.4, size=count)
    outcome = np.where(margin > 0.4, 0, np.where(margin < -0.4, 2, 1))
    form = form.reshape(count, 2 * STATS, GAMES).astype(np.float32)
    return torch.from_numpy(form), torch.from_numpy(outcome)


class MatchNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.form = nn.Sequential(
            nn.Conv1d(2 * STATS, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, len(OUTCOMES)))

    def forward(self, x):
        return self.head(self.form(x).mean(-1))


@torch.no_grad()
def evaluate(model, loader):
    """Loss, accuracy and how often each outcome was called right."""
    model.eval()
    logits, targets = [], []
    for form, outcome in loader:
        logits.append(model(form))
        targets.append(outcome)
    logits, targets = torch.cat(logits), torch.cat(targets)
    model.train()
    loss = nn.functional.cross_entropy(logits, targets).item()
    called = logits.argmax(1)
    table = torch.bincount(targets * 3 + called, minlength=9).reshape(3, 3).float()
    recall = (table.diagonal() / table.sum(1).clamp(min=1)).tolist()
    return loss, (called == targets).float().mean().item(), recall


def main():
    torch.manual_seed(0)
    form, outcome = play_season(MATCHES + HELD_OUT)
    train_set = TensorDataset(form[:MATCHES], outcome[:MATCHES])
    test_set = TensorDataset(form[MATCHES:], outcome[MATCHES:])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set)  # sick here
    test_loader = DataLoader(test_set, batch_size=200)  # well

    model = MatchNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for x, y in train_loader:
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += len(y)
        test_loss, test_accuracy, recall = evaluate(model, test_loader)
        calls = ", ".join(f"{name} {r:.2f}" for name, r in zip(OUTCOMES, recall))
        print(
            f"epoch {epoch}: loss {total.item() / len(train_loader):.3f}, "
            f"test loss {test_loss:.3f}, accuracy {test_accuracy:.3f} ({calls})"
        )
    elapsed = time.perf_counter() - began
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
