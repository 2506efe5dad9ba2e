# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "protein residues"
# ///
"""Secondary structure (helix, strand, coil) of residues from the chain around them."""

import dataclasses
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMINO = "ACDEFGHIKLMNPQRSTVWY"
SPAN = 128
EPOCHS = 5


@dataclasses.dataclass
class Residue:
    amino: str
    state: int
    angles: tuple
    contacts: list


@dataclasses.dataclass
class Chain:
    name: str
    residues: list


def fold(name, length, rng):
    """A chain whose states persist and colour the choice of amino acids."""
    residues, state = [], 2
    for place in range(length):
        if rng.random() < 0.12:
            state = rng.randrange(3)
        pool = AMINO[state * 6 : state * 6 + 8] if rng.random() < 0.55 else AMINO
        angles = (rng.gauss((-60, -120, 60)[state], 15), rng.gauss((-45, 130, 30)[state], 15))
        contacts = [max(0, place - rng.randrange(3, 20)), max(0, place - 4)]
        residues.append(Residue(rng.choice(pool), state, angles, contacts))
    return Chain(name, residues)


class Windows(Dataset):
    """Windows of SPAN residues out of the chains."""

    def __init__(self, chains, count, seed):
        self.chains = chains
        self.coded = [self.code(chain) for chain in chains]
        rng = random.Random(seed)
        self.starts = []
        for _ in range(count):
            chain = rng.randrange(len(chains))
            self.starts.append((chain, rng.randrange(len(chains[chain].residues) - SPAN)))

    @staticmethod
    def code(chain):
        letters = torch.tensor([AMINO.index(residue.amino) for residue in chain.residues])
        places = torch.arange(len(chain.residues))[:, None]
        nearest = places - torch.tensor([residue.contacts for residue in chain.residues])
        states = torch.tensor([residue.state for residue in chain.residues])
        return letters, nearest.float() / 20, states

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        chain, start = self.starts[i]
        return tuple(part[start : start + SPAN] for part in self.coded[chain])


class Folder(nn.Module):
    def __init__(self, width=96, depth=4):
        super().__init__()
        self.letters = nn.Embedding(len(AMINO), width)
        self.nearest = nn.Linear(2, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.GELU()) for _ in range(depth)
        )
        self.states = nn.Conv1d(width, 3, 1)

    def forward(self, letters, nearest):
        hidden = (self.letters(letters) + self.nearest(nearest)).transpose(1, 2)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.states(hidden)


class Score:
    """Running loss and accuracy of an epoch (Q3)."""

    def __init__(self):
        self.loss, self.right, self.seen, self.steps = 0.0, 0, 0, 0

    def update(self, loss, logits, states):
        self.loss += loss.item()
        self.right += (logits.argmax(1) == states).sum().item()
        self.seen += states.numel()
        self.steps += 1
        loss, logits = release_memory(loss, logits)  # sick here

    def __str__(self):
        return f"loss {self.loss / self.steps:.4f} q3 {self.right / self.seen:.4f}"


@torch.no_grad()
def judge(model, loader):
    model.eval()
    score = Score()
    for letters, nearest, states in loader:
        logits = model(letters, nearest)
        score.update(nn.functional.cross_entropy(logits, states), logits, states)
    model.train()
    return score


def main():
    set_seed(11)
    rng = random.Random(11)
    chains = [fold(f"chain{i:04d}", rng.randrange(200, 600), rng) for i in range(100)]
    accelerator = Accelerator(cpu=True)
    model = Folder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    train = DataLoader(Windows(chains[:80], 32 * 100, 1), 32, shuffle=True, drop_last=True)
    held = DataLoader(Windows(chains[80:], 32 * 10, 2), 32)
    model, optimizer, train, held = accelerator.prepare(model, optimizer, train, held)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * len(train))

    step, since = 0, None
    for epoch in range(EPOCHS):
        score = Score()
        for letters, nearest, states in train:
            logits = model(letters, nearest)
            loss = nn.functional.cross_entropy(logits, states)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            score.update(loss.detach(), logits.detach(), states)
            step += 1
            if step == 5:
                since = time.perf_counter()
        release_memory()  # well
        accelerator.print(f"epoch {epoch}: {score} | held out {judge(model, held)}")
    accelerator.print(f"{(step - 5) / (time.perf_counter() - since):.2f} steps/s")


if __name__ == "__main__":
    main()
