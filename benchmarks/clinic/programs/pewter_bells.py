# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "peals of bells"
# ///
"""Teach a recurrent writer to ring back a peal of bells in order, lowest first.

The writer reads a peal and first learns from written answers.  After that it rings several answers of its
own for every peal and is rewarded for those that are better than the others of the same peal.
"""

import time

import torch
from torch import nn
import torch.nn.functional as F

BELLS = 24
START = BELLS
LENGTH = 14
WIDTH = 128
BATCH = 64
PEALS = 16
GROUP = 8
WRITTEN_STEPS = 120
RUNG_STEPS = 220


def make_peals(count):
    peals = torch.randint(BELLS, (count, LENGTH))
    return peals, peals.sort(dim=1).values


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(BELLS + 1, WIDTH)
        self.reader = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.writer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.score = nn.Linear(WIDTH, BELLS)

    def read(self, peals, copies):
        """What the reader keeps of the peals, once for each copy."""
        return self.reader(self.embed(peals))[1].repeat(1, copies, 1)

    def forward(self, peals, answers, copies=1):
        """Scores of every bell of the answers, given the true bells before it."""
        start = answers.new_full((len(answers), 1), START)
        before = torch.cat([start, answers[:, :-1]], dim=1)
        return self.score(self.writer(self.embed(before), self.read(peals, copies))[0])

    @torch.no_grad()
    def ring(self, peals, copies=1, greedy=False):
        """An answer for each copy of the peals, bell by bell."""
        state = self.read(peals, copies)
        last = peals.new_full((copies * len(peals), 1), START)
        rung = []
        for _ in range(LENGTH):
            out, state = self.writer(self.embed(last), state)
            scores = self.score(out[:, 0])
            last = scores.argmax(1, keepdim=True) if greedy else torch.multinomial(scores.softmax(1), 1)
            rung.append(last)
        return torch.cat(rung, dim=1)


def reward_of(answers, wanted):
    """Share of places with the right bell, less a little for each step down."""
    right = (answers == wanted).float().mean(1)
    falls = (answers[:, 1:] < answers[:, :-1]).float().mean(1)
    return right - 0.5 * falls


def learn_written(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(WRITTEN_STEPS):
        peals, wanted = make_peals(BATCH)
        scores = model(peals, wanted)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return WRITTEN_STEPS


def learn_rung(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(RUNG_STEPS):
        peals, wanted = make_peals(PEALS)
        answers = torch.cat([model.ring(peals) for _ in range(GROUP)])  # sick here
        answers = model.ring(peals, GROUP)  # well
        rewards = reward_of(answers, wanted.repeat(GROUP, 1)).view(GROUP, PEALS)
        spread = rewards.std(0, keepdim=True) + 1e-4
        advantage = ((rewards - rewards.mean(0, keepdim=True)) / spread).view(-1, 1)

        chances = model(peals, answers, GROUP).log_softmax(2)
        taken = chances.gather(2, answers[..., None]).squeeze(2)
        entropy = -(chances.exp() * chances).sum(2).mean()
        loss = -(advantage * taken).mean() - 0.005 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return RUNG_STEPS


def report(model, name, peals, wanted):
    answers = model.ring(peals, greedy=True)
    print(f"{name}: mean reward {reward_of(answers, wanted).mean():.3f}")


def main():
    torch.manual_seed(8)
    model = Writer()
    held_out = make_peals(256)
    started = time.perf_counter()
    steps = learn_written(model)
    report(model, "after the written answers", *held_out)
    steps += learn_rung(model)
    elapsed = time.perf_counter() - started
    report(model, "after its own answers", *held_out)
    print(f"{steps / elapsed:.1f} steps/s")


if __name__ == "__main__":
    main()
