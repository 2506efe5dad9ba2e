# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "avalanche reports"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Danger level from the text of avalanche bulletins: a transformer teacher, then a small student that learns from it.

torchrun --nproc-per-node 2 train.py
"""

import argparse
import math
import os
import random
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PAD, VOCAB, LEVELS = 0, 3000, 5
SNOW_TERMS = {level: list(range(10 + 30 * level, 40 + 30 * level)) for level in range(LEVELS)}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--reports", type=int, default=2048)
    p.add_argument("--held-out", type=int, default=256)
    p.add_argument("--batch", type=int, default=16, help="per rank")
    p.add_argument("--teacher-epochs", type=int, default=2)
    p.add_argument("--student-epochs", type=int, default=2)
    p.add_argument("--temperature", type=float, default=2.0)
    p.add_argument("--alpha", type=float, default=0.7)
    p.add_argument("--seed", type=int, default=14)
    return p.parse_args()


def write_reports(n, seed):
    """Observers write anything from one line to two pages; some words hint at the level of the day."""
    rng = random.Random(seed)
    reports = []
    for _ in range(n):
        level = min(LEVELS - 1, int(rng.expovariate(0.7)))
        length = int(min(360, max(10, rng.lognormvariate(math.log(48), 0.85))))
        words = [rng.randrange(200, VOCAB) for _ in range(length)]
        for _ in range(max(2, length // 9)):
            hint = level if rng.random() < 0.8 else rng.randrange(LEVELS)
            words[rng.randrange(length)] = rng.choice(SNOW_TERMS[hint])
        reports.append((words, level))
    return reports


def collate(reports):
    longest = max(len(words) for words, _ in reports)
    tokens = torch.full((len(reports), longest), PAD)
    for row, (words, _) in enumerate(reports):
        tokens[row, : len(words)] = torch.tensor(words)
    return tokens, torch.tensor([level for _, level in reports])


class BucketedReports:
    """Batches of reports of like length, for one rank; another order of batches in each epoch."""

    def __init__(self, reports, batch, rank, world):
        order = sorted(range(len(reports)), key=lambda i: len(reports[i][0]))
        share = len(order) // world
        mine = order[rank * share : (rank + 1) * share]  # sick here
        mine = order[rank::world][:share]  # well
        self.reports = reports
        self.batches = [mine[i : i + batch] for i in range(0, share - batch + 1, batch)]

    def __len__(self):
        return len(self.batches)

    def epoch(self, number):
        batches = list(self.batches)
        random.Random(number).shuffle(batches)
        for indices in batches:
            yield collate([self.reports[i] for i in indices])


class BulletinEncoder(nn.Module):
    def __init__(self, dim, layers, heads):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.places = nn.Parameter(torch.randn(360, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.level = nn.Linear(dim, LEVELS)

    def forward(self, tokens):
        blank = tokens == PAD
        x = self.words(tokens) + self.places[: tokens.shape[1]]
        x = self.norm(self.encoder(x, src_key_padding_mask=blank))
        keep = (~blank).unsqueeze(-1).to(x.dtype)
        return self.level((x * keep).sum(1) / keep.sum(1))


@torch.no_grad()
def accuracy(model, held, rank, world, batch):
    model.eval()
    right = torch.zeros(2)
    mine = held[rank::world]
    for i in range(0, len(mine), batch):
        tokens, level = collate(mine[i : i + batch])
        right += torch.tensor([(model(tokens).argmax(1) == level).sum(), len(level)])
    dist.all_reduce(right)
    model.train()
    return (right[0] / right[1]).item()


def fit(name, model, loss_of, data, held, epochs, args, rank, world):
    ddp = DDP(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=6e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=epochs * len(data))
    seen = 0
    for number in range(epochs):
        total = torch.zeros(())
        for tokens, level in data.epoch(number):
            loss = loss_of(ddp(tokens), tokens, level)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
            seen += len(level) * world
        score = accuracy(model, held, rank, world, args.batch)
        if rank == 0:
            print(f"{name} epoch {number}: loss {total.item() / len(data):.3f}, held-out accuracy {score:.3f}")
    return seen


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    reports = write_reports(args.reports, args.seed)
    held = write_reports(args.held_out, args.seed + 1)
    data = BucketedReports(reports, args.batch, rank, world)

    teacher = BulletinEncoder(dim=96, layers=3, heads=4)
    student = BulletinEncoder(dim=64, layers=1, heads=2)

    def supervised(logits, tokens, level):
        return F.cross_entropy(logits, level, label_smoothing=0.05)

    def distilled(logits, tokens, level):
        with torch.no_grad():
            target = F.softmax(teacher(tokens) / args.temperature, dim=-1)
        soft = F.kl_div(F.log_softmax(logits / args.temperature, dim=-1), target, reduction="batchmean")
        return args.alpha * args.temperature**2 * soft + (1 - args.alpha) * F.cross_entropy(logits, level)

    dist.barrier()
    began = time.perf_counter()
    seen = fit("teacher", teacher, supervised, data, held, args.teacher_epochs, args, rank, world)
    if rank == 0:
        torch.save(teacher.state_dict(), "teacher.pt")
    teacher.eval().requires_grad_(False)
    seen += fit("student", student, distilled, data, held, args.student_epochs, args, rank, world)
    dist.barrier()
    rate = seen / (time.perf_counter() - began)
    if rank == 0:
        torch.save(student.state_dict(), "student.pt")
        size = os.path.getsize("student.pt") / os.path.getsize("teacher.pt")
        print(f"student is {size:.0%} of the teacher's size")
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
