# /// clinic
# stratum = "decoys"
# domain = "speech"
# ///
"""Transcribe chants: an attentive decoder that hears what it said itself.

With some chance per step the decoder is fed its own last syllable instead of the true one (scheduled sampling), so a
step cannot begin before the one ahead of it has ended. The attention map also goes into the loss: it must move forward.
"""

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Options:
    batch: int = 128
    frames: int = 72
    bands: int = 32
    syllables: int = 30
    spoken: int = 12
    hidden: int = 192
    steps: int = 150
    own: float = 0.3
    forward: float = 0.1


def chants(opt, gen, shapes):
    said = torch.randint(1, opt.syllables, (opt.batch, opt.spoken), generator=gen)
    each = opt.frames // opt.spoken
    sound = shapes[said].repeat_interleave(each, dim=1)
    return sound + 0.6 * torch.randn(sound.shape, generator=gen), said


class Reader(nn.Module):
    def __init__(self, opt):
        super().__init__()
        self.opt = opt
        self.listen = nn.Sequential(
            nn.Conv1d(opt.bands, opt.hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(opt.hidden, opt.hidden, 5, padding=2, stride=2),
            nn.ReLU(),
        )
        self.syllable = nn.Embedding(opt.syllables, opt.hidden)
        self.cell = nn.GRUCell(2 * opt.hidden, opt.hidden)
        self.ask = nn.Linear(opt.hidden, opt.hidden)
        self.say = nn.Linear(2 * opt.hidden, opt.syllables)

    def forward(self, sound, said):
        heard = self.listen(sound.transpose(1, 2))
        memory = heard.transpose(1, 2)
        state = memory.mean(1)
        context = torch.zeros_like(state)
        last = torch.zeros(len(sound), dtype=torch.long)
        own = torch.rand(said.shape) < self.opt.own
        scores, maps = [], []
        for t in range(said.shape[1]):
            state = self.cell(torch.cat([self.syllable(last), context], 1), state)
            weights = torch.softmax((self.ask(state).unsqueeze(1) @ heard).squeeze(1) / self.opt.hidden**0.5, -1)
            context = (weights.unsqueeze(1) @ memory).squeeze(1)
            score = self.say(torch.cat([state, context], 1))
            last = torch.where(own[:, t], score.detach().argmax(1), said[:, t])
            scores.append(score)
            maps.append(weights)
        return torch.stack(scores, 1), torch.stack(maps, 1)


def backwards(maps):
    """How far the centre of attention moves back from one syllable to the next."""
    centre = maps @ torch.arange(maps.shape[-1], dtype=maps.dtype)
    return F.relu(centre[:, :-1] - centre[:, 1:]).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    opt = Options(steps=parser.parse_args().steps)
    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(21)
    shapes = torch.randn(opt.syllables, opt.bands, generator=gen)
    reader = Reader(opt)
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3, fused=True)
    skip, begun = 5, None
    for step in range(opt.steps):
        if step == skip:
            begun = time.perf_counter()
        sound, said = chants(opt, gen, shapes)
        scores, maps = reader(sound, said)
        loss = F.cross_entropy(scores.flatten(0, 1), said.flatten()) + opt.forward * backwards(maps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24:
            right = (scores.argmax(-1) == said).float().mean()
            print(f"step {step + 1}: loss {loss.item():.3f}, {right.item():.1%} right")
    print(f"{(opt.steps - skip) * opt.batch / (time.perf_counter() - begun):.1f} chants/s")


if __name__ == "__main__":
    main()
