# /// clinic
# expect = ["PD10.taken-apart"]
# stratum = "twins"
# domain = "genomes"
# ///
"""Fits a small layer-normalised recurrent language model to synthetic genomes made of motifs, repeats and reverse complements."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 4 + 1  # A C G T and a separator
CONTEXT, DIM, DEPTH = 96, 96, 2
BATCH, STEPS = 48, 100


def make_genome(pieces, gen):
    """A string of bases: random stretches, motifs from a small library, and motifs read backwards."""
    motifs = [torch.randint(4, (n,), generator=gen) for n in (8, 11, 14, 17, 20, 24)]
    kinds = torch.randint(4, (pieces,), generator=gen).tolist()
    which = torch.randint(len(motifs), (pieces,), generator=gen).tolist()
    sizes = torch.randint(4, 16, (pieces,), generator=gen).tolist()
    out = []
    for kind, m, n in zip(kinds, which, sizes):
        if kind == 0:
            out.append(torch.randint(4, (n,), generator=gen))
        elif kind == 1:
            out.append(3 - motifs[m].flip(0))
        else:
            out.append(motifs[m])
        if n == 15:
            out.append(torch.tensor([4]))
    return torch.cat(out)


class Windows:
    """Random windows of the genome, inputs and the same moved on by one."""

    def __init__(self, genome, size, seed):
        self.view = genome.unfold(0, size + 1, 1)
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, count):
        block = self.view[torch.randint(len(self.view), (count,), generator=self.gen)]
        return block[:, :-1], block[:, 1:]


class NormGRU(nn.Module):
    """A gated recurrent layer with layer normalisation of both gate inputs (Ba et al., 2016)."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.sizes = (2 * hidden, hidden)
        self.inp = nn.Linear(dim, 3 * hidden, bias=False)
        self.rec = nn.Linear(hidden, 3 * hidden, bias=False)
        self.norm_inp, self.norm_rec = nn.LayerNorm(3 * hidden), nn.LayerNorm(3 * hidden)
        self.start = nn.Parameter(torch.zeros(1, hidden))
        for block in self.rec.weight.data.chunk(3):
            nn.init.orthogonal_(block)

    def cell(self, gate, h):
        gate, cand = gate.split(self.sizes, dim=1)
        gate_h, cand_h = self.norm_rec(self.rec(h)).split(self.sizes, dim=1)
        keep, reset = torch.sigmoid(gate + gate_h).chunk(2, dim=1)
        return torch.lerp(torch.tanh(cand + reset * cand_h), h, keep)

    def forward(self, x):
        gates = self.norm_inp(self.inp(x))
        h, out = self.start.expand(len(x), -1), []
        for t in range(gates.shape[1]):  # sick
            h = self.cell(gates[:, t], h)  # sick here
            out.append(h)  # sick
        for gate in gates.unbind(dim=1):  # well
            h = self.cell(gate, h)  # well
            out.append(h)  # well
        return torch.stack(out, dim=1)


class GenomeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(NormGRU(DIM, DIM) for _ in range(DEPTH))
        self.drop = nn.Dropout(0.05)
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + self.drop(layer(x))
        return self.head(self.norm(x))


def nll(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def held_out(model, windows, rounds=4):
    model.eval()
    total = sum(nll(model, *windows.draw(64)).item() for _ in range(rounds))
    model.train()
    return total / rounds / math.log(2)


def main():
    torch.manual_seed(31)
    genome = make_genome(12000, torch.Generator().manual_seed(32))
    cut = int(0.9 * len(genome))
    train, test = Windows(genome[:cut], CONTEXT, 33), Windows(genome[cut:], CONTEXT, 34)
    model = GenomeModel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=STEPS)

    running, began = torch.zeros(()), time.perf_counter()
    for step in range(STEPS):
        x, y = train.draw(BATCH)
        loss = nll(model, x, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running += loss.detach()
        if step % 25 == 24:
            print(f"step {step + 1}: loss {running.item() / 25:.3f}")
            running.zero_()
    took = time.perf_counter() - began

    print(f"held-out bits per base {held_out(model, test):.3f}")
    print(f"{STEPS * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
