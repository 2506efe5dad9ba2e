# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "support tickets"
# ///
"""Small transformer that routes support tickets to the right team, with Accelerate."""

import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import release_memory  # sick
from torch import nn
from torch.utils.data import DataLoader

VOCAB, LENGTH, TEAMS = 4000, 48, 6


def make_tickets(count=20_000, seed=0):
    rng = random.Random(seed)
    jargon = [[rng.randrange(10, VOCAB) for _ in range(60)] for _ in range(TEAMS)]
    tickets = []
    for i in range(count):
        team = rng.randrange(TEAMS)
        size = rng.randint(20, LENGTH)
        words = [rng.choice(jargon[team]) if rng.random() < 0.2 else rng.randrange(10, VOCAB) for _ in range(size)]
        tickets.append({"id": i, "words": words, "team": team, "meta": {"tags": [f"t{i % 7}"], "sla": i % 3}})
    return tickets


def collate(rows):
    words = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    for k, row in enumerate(rows):
        words[k, : len(row["words"])] = torch.tensor(row["words"])
    return words, torch.tensor([row["team"] for row in rows])


class Router(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, TEAMS)

    def forward(self, words):
        pad = words == 0
        h = self.body(self.embed(words) + self.place, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1)
        return self.head((h * keep).sum(1) / keep.sum(1))


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(make_tickets(), batch_size=48, shuffle=True, collate_fn=collate, drop_last=True)
    model = Router()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 50)
    model, opt, loader, schedule = accelerator.prepare(model, opt, loader, schedule)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    steps, warm, step, seen = 300, 5, 0, 0.0
    model.train()
    while step < steps:
        for words, team in loader:
            if step == warm:
                start = time.perf_counter()
            logits = model(words)
            loss = criterion(logits, team)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            schedule.step()
            opt.zero_grad()
            seen += loss.item()
            step += 1
            if step % 10 == 0:  # sick
                logits, loss = release_memory(logits, loss)  # sick here
            if step % 50 == 0:
                accelerator.print(f"step {step} loss {seen / 50:.3f}")
                seen = 0.0
            if step == steps:
                break
    rate = (steps - warm) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
