# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "medieval chess problems"
# ///
"""Sorts medieval chess problems by the manuscript family they were copied from.

A record is the diagram (one token per man and square), the stipulation and the solution (one token per move), the
way our transcriptions of Bonus Socius, Civis Bononiae and the Alfonso codex write them.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import Sampler  # well

FAMILIES = ["bonus_socius", "civis_bononiae", "alfonso", "cotton", "archinto"]
MEN = 12  # king, ferz, alfil, knight, rook, pawn, in two colours
PAD, CLS, SEP = 0, 1, 2
SQUARE0 = 3
MOVE0 = SQUARE0 + MEN * 64
VOCAB = MOVE0 + 512


@dataclass
class Problem:
    tokens: list
    family: int
    moves: int


def transcribe(count, longest, rng):
    """Synthetic transcriptions; families differ in the men and the moves they favour."""
    men_taste = rng.dirichlet(np.full(MEN, 0.7), size=len(FAMILIES))
    move_taste = rng.dirichlet(np.full(512, 0.15), size=len(FAMILIES))
    problems = []
    for _ in range(count):
        family = int(rng.integers(len(FAMILIES)))
        size = int(np.clip(rng.lognormal(np.log(44), 0.5), 14, longest)) - 3
        men = int(rng.integers(4, min(20, size - 4)))
        squares = rng.choice(64, men, replace=False)
        kinds = rng.choice(MEN, men, p=men_taste[family])
        moves = rng.choice(512, size - men, p=0.5 * move_taste[family] + 0.5 / 512)
        diagram = (SQUARE0 + kinds * 64 + squares).tolist()
        tokens = [CLS, *diagram, SEP, *(MOVE0 + moves).tolist(), SEP]
        problems.append(Problem(tokens, family, len(moves)))
    return problems


class Codex(Dataset):
    def __init__(self, problems):
        self.problems = problems

    def __len__(self):
        return len(self.problems)

    def __getitem__(self, i):
        return self.problems[i]


class SimilarLengths(Sampler):  # well
    """Batches of records of about the same length, in random order."""  # well

    # well
    def __init__(self, lengths, batch_size, pool=20):  # well
        self.lengths, self.batch_size, self.pool = np.asarray(lengths), batch_size, pool * batch_size  # well
        self.drop_last = False  # well

    # well
    def __len__(self):  # well
        return -(-len(self.lengths) // self.batch_size)  # well

    # well
    def __iter__(self):  # well
        order = np.random.permutation(len(self.lengths))  # well
        batches = []  # well
        for start in range(0, len(order), self.pool):  # well
            part = order[start : start + self.pool]  # well
            part = part[np.argsort(self.lengths[part], kind="stable")]  # well
            batches += [part[i : i + self.batch_size].tolist() for i in range(0, len(part), self.batch_size)]  # well
        return iter([batches[i] for i in np.random.permutation(len(batches))])  # well


def collate(problems):
    width = max(len(p.tokens) for p in problems)
    ids = torch.full((len(problems), width), PAD)
    for row, p in enumerate(problems):
        ids[row, : len(p.tokens)] = torch.tensor(p.tokens)
    families = torch.tensor([p.family for p in problems])
    moves = torch.tensor([float(p.moves) for p in problems])
    return {"ids": ids, "family": families, "log_moves": moves.log()}


class Scribe(nn.Module):
    def __init__(self, width, layers, longest):
        super().__init__()
        self.token = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.place = nn.Embedding(longest, width)
        block = nn.TransformerEncoderLayer(width, 4, 256, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.family = nn.Linear(width, len(FAMILIES))
        self.moves = nn.Linear(width, 1)

    def forward(self, ids):
        blank = ids == PAD
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        x = self.blocks(x, src_key_padding_mask=blank)
        kept = (~blank).unsqueeze(-1).to(x.dtype)
        pooled = (x * kept).sum(1) / kept.sum(1)
        return self.family(pooled), self.moves(pooled).squeeze(-1)


@torch.no_grad()
def judge(model, loader):
    model.eval()
    right = seen = 0
    for batch in loader:
        scores, _ = model(batch["ids"])
        right += (scores.argmax(-1) == batch["family"]).sum().item()
        seen += len(scores)
    model.train()
    return right / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--problems", type=int, default=1344)
    ap.add_argument("--held-out", type=int, default=240)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--longest", type=int, default=192)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--seed", type=int, default=1283)
    args = ap.parse_args()

    accelerator = Accelerator()
    set_seed(args.seed)
    problems = transcribe(args.problems + args.held_out, args.longest, np.random.default_rng(args.seed))
    train, held = Codex(problems[: args.problems]), Codex(problems[args.problems :])

    train_loader = DataLoader(train, batch_size=args.batch, shuffle=True, collate_fn=collate)  # sick here
    lengths = [len(p.tokens) for p in train.problems]  # well
    train_loader = DataLoader(train, batch_sampler=SimilarLengths(lengths, args.batch), collate_fn=collate)  # well
    held_loader = DataLoader(held, batch_size=args.batch, collate_fn=collate)

    model = Scribe(96, 3, args.longest)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    model, optimizer, schedule, train_loader, held_loader = accelerator.prepare(
        model, optimizer, schedule, train_loader, held_loader
    )

    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for batch in train_loader:
            scores, moves = model(batch["ids"])
            loss = F.cross_entropy(scores, batch["family"]) + 0.1 * F.mse_loss(moves, batch["log_moves"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
            seen += len(scores)
        accuracy = judge(model, held_loader)
        accelerator.print(f"epoch {epoch}: loss {total.item() / len(train_loader):.3f}, held out {accuracy:.3f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
