# /// clinic
# expect = ["PD09.time-loop"]
# stratum = "twins"
# domain = "speech"
# ///
"""Frame-wise phone labels from filterbank features with a recurrent tagger."""

import time

import torch
from torch import nn

BANDS, PHONES, HIDDEN, FRAMES = 40, 48, 96, 120


def phone_batch(batch, gen, codebook):
    """Piecewise constant phones seen through a noisy codebook."""
    length = FRAMES // 6
    phones = torch.randint(0, PHONES, (batch, length), generator=gen).repeat_interleave(6, dim=1)
    frames = codebook[phones] + 0.7 * torch.randn(batch, FRAMES, BANDS, generator=gen)
    return frames, phones


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(BANDS, HIDDEN), nn.LayerNorm(HIDDEN), nn.ReLU())
        self.memory = nn.GRUCell(HIDDEN, HIDDEN)  # sick
        self.memory = nn.GRU(HIDDEN, HIDDEN, batch_first=True)  # well
        self.label = nn.Linear(HIDDEN, PHONES)

    def forward(self, frames):
        x = self.lift(frames)
        state = x.new_zeros(x.shape[0], HIDDEN)
        states = []  # sick
        for t in range(x.shape[1]):  # sick here
            state = self.memory(x[:, t], state)  # sick here
            states.append(state)  # sick
        states = torch.stack(states, dim=1)  # sick
        states, _ = self.memory(x, state.unsqueeze(0))  # well
        return self.label(states)


def run(steps=150, batch=12, skip=6):
    gen = torch.Generator().manual_seed(9)
    torch.manual_seed(9)
    codebook = torch.randn(PHONES, BANDS, generator=gen)
    tagger = Tagger()
    optimizer = torch.optim.Adam(tagger.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for step in range(steps):
        if step == skip:
            start = time.perf_counter()
        frames, phones = phone_batch(batch, gen, codebook)
        scores = tagger(frames)
        loss = criterion(scores.flatten(0, 1), phones.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 60 == 59:
            right = (scores.argmax(-1) == phones).float().mean().item()
            print(f"{step + 1}: {right:.1%} frames right")
    return (steps - skip) * batch * FRAMES / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{run():.0f} frames/s")
