# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "lock keepers"
# ///
"""
Reads the lock keepers' logbooks of a canal: what is each underlined mention in an entry?
(vessel, skipper, cargo, gate, water level, delay).  BERT from scratch on the entries, Accelerate for the loop.
"""

import argparse
import random
import time

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from transformers import BertConfig, BertModel, get_cosine_schedule_with_warmup

KINDS = ["vessel", "skipper", "cargo", "gate", "level", "delay"]
SYLLABLES = "aal bar cor del eb fen gra hol ijs jon kra lun mer nor oud pol rij ste til ver wes zan".split()
CARGO = "gravel grain peat coal bricks timber hay potatoes salt sand slate beet".split()
TEMPLATES = [
    "<vessel> under <skipper> with <cargo> went up through <gate> at <level> after <delay>",
    "lowered <gate> to <level> for <vessel> skipper <skipper> waited <delay>",
    "<skipper> of <vessel> paid for <cargo> and <cargo> then left by <gate>",
    "<gate> leaking level <level> so <vessel> and <vessel> were held <delay>",
    "down bound <vessel> carrying <cargo> met <vessel> carrying <cargo> in <gate> water <level>",
    "no traffic before <vessel> came with <skipper> and <skipper> asking for <gate> in <delay>",
]


def args_of():
    p = argparse.ArgumentParser()
    p.add_argument("--entries", type=int, default=960)
    p.add_argument("--eval-entries", type=int, default=192)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def phrase(kind, rng):
    """A mention as pieces, the way the keepers write it."""
    if kind in ("vessel", "skipper"):
        pieces = rng.choices(SYLLABLES, k=rng.randint(2, 4))
        return (["the"] if kind == "vessel" else [rng.choice("abcdehjkp") + "."]) + pieces
    if kind == "cargo":
        return [str(rng.randint(2, 9)) + "0", "tons", rng.choice(CARGO)]
    if kind == "gate":
        return [rng.choice(["upper", "lower", "middle"]), "gate", str(rng.randint(1, 9))]
    if kind == "level":
        return [str(rng.randint(1, 4)), "ft", str(rng.randint(0, 11)), "in"]
    return [str(rng.randint(1, 9)), rng.choice(["hours", "quarters", "tides"])]


def write_entry(rng):
    tokens, spans = ["[CLS]"], []
    for template in rng.sample(TEMPLATES, 4):
        for word in template.split():
            if word.startswith("<"):
                pieces = phrase(word[1:-1], rng)
                spans.append((len(tokens), len(tokens) + len(pieces), KINDS.index(word[1:-1])))
                tokens += pieces
            elif rng.random() < 0.9:
                tokens.append(word)
        tokens.append(".")
    for i in range(1, len(tokens)):
        if rng.random() < 0.15:
            tokens[i] = "[BLOT]"
    return tokens, spans


class Logbook(torch.utils.data.Dataset):
    def __init__(self, count, seed, vocab):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            tokens, spans = write_entry(rng)
            ids = torch.tensor([vocab.setdefault(t, len(vocab)) for t in tokens])
            self.rows.append((ids, torch.tensor(spans)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = pad_sequence([r[0] for r in rows], batch_first=True)
    spans = pad_sequence([r[1] for r in rows], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "starts": spans[..., 0],
        "ends": spans[..., 1],
        "kinds": spans[..., 2],
    }


class MentionReader(nn.Module):
    def __init__(self, vocab_size, hidden, layers):
        super().__init__()
        config = BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * hidden,
            max_position_embeddings=192,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.Linear(3 * hidden, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, len(KINDS))
        )

    def forward(self, input_ids, attention_mask, starts, ends):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mentions = []  # sick
        for b in range(hidden.size(0)):  # sick here
            for s, e in zip(starts[b].tolist(), ends[b].tolist()):  # sick here
                if e > s:  # sick
                    ends_of = [hidden[b, s], hidden[b, e - 1]]  # sick
                    mentions.append(torch.cat([*ends_of, hidden[b, s:e].mean(dim=0)]))  # sick here
        return self.head(torch.stack(mentions))  # sick
        where = torch.arange(hidden.size(1), device=hidden.device)  # well
        inside = (where >= starts[..., None]) & (where < ends[..., None])  # well
        inside = inside.to(hidden.dtype)  # well
        means = inside @ hidden / inside.sum(dim=-1, keepdim=True).clamp(min=1)  # well
        rows = torch.arange(hidden.size(0), device=hidden.device)[:, None]  # well
        mentions = torch.cat([hidden[rows, starts], hidden[rows, (ends - 1).clamp(min=0)], means], dim=-1)  # well
        return self.head(mentions[ends > starts])  # well


def main():
    args = args_of()
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    vocab = {"[PAD]": 0, "[CLS]": 1, "[BLOT]": 2}
    train = Logbook(args.entries, args.seed, vocab)
    held = Logbook(args.eval_entries, args.seed + 1, vocab)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    held_loader = DataLoader(held, batch_size=32, collate_fn=collate)
    model = MentionReader(len(vocab), args.hidden, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    steps = args.epochs * len(loader)
    schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)
    model, optimizer, loader, held_loader, schedule = accelerator.prepare(
        model, optimizer, loader, held_loader, schedule
    )
    scores = MetricCollection({"acc": MulticlassAccuracy(len(KINDS)), "f1": MulticlassF1Score(len(KINDS))})
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
    accelerator.print(f"{len(vocab)} pieces, {steps} steps")
    began = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for batch in loader:
            real = batch["ends"] > batch["starts"]
            kinds = batch.pop("kinds")[real]
            loss = loss_fn(model(**batch), kinds)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.item()
        model.eval()
        scores.reset()
        with torch.no_grad():
            for batch in held_loader:
                kinds = batch.pop("kinds")[batch["ends"] > batch["starts"]]
                scores.update(model(**batch), kinds)
        got = {k: round(v.item(), 4) for k, v in scores.compute().items()}
        accelerator.print(f"epoch {epoch} loss {running / len(loader):.4f} {got}")
    rate = steps * args.batch_size / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} entries/s")


if __name__ == "__main__":
    main()
