# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "text, masked language model (transformers)"
# sizes = {VOCAB = [5000, 7500], BATCH = [14, 18]}
# ///
"""Pretrain a small BERT on synthetic cooking instructions."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

VOCAB = 6000
BATCH = 16
LENGTH = 48
MASK_ID = 4
IGNORE = -100


class RecipeSteps(Dataset):
    """Each recipe wanders through a few 'dishes', each of which has its own ingredient words."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        dishes = rng.integers(5, VOCAB, size=(60, 40))
        rows = np.empty((n, LENGTH), dtype=np.int64)
        for i in range(n):
            pick = dishes[rng.integers(0, 60)]
            rows[i] = pick[np.minimum(rng.geometric(0.08, LENGTH) - 1, 39)]
        self.rows = torch.from_numpy(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class MaskWords:
    def __init__(self, rate, seed):
        self.rate = rate
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, items):
        ids = torch.stack(items)
        chosen = torch.rand(ids.shape, generator=self.gen) < self.rate
        labels = torch.where(chosen, ids, torch.full_like(ids, IGNORE))
        return ids.masked_fill(chosen, MASK_ID), labels


class RecipeBert(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.bert = BertModel(cfg, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.Linear(cfg.hidden_size, cfg.hidden_size),
            nn.GELU(),
            nn.LayerNorm(cfg.hidden_size),
            nn.Linear(cfg.hidden_size, cfg.vocab_size),
        )

    def forward(self, ids, labels):
        states = self.bert(input_ids=ids).last_hidden_state
        scores = self.head(states).view(-1, VOCAB)  # sick here
        target = labels.view(-1)  # sick
        known = labels != IGNORE  # well
        scores = self.head(states[known])  # well
        target = labels[known]  # well
        return F.cross_entropy(scores, target, ignore_index=IGNORE)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--steps", type=int, default=65)
    ap.add_argument("--lr", type=float, default=5e-4)
    args = ap.parse_args()

    torch.manual_seed(3)
    data = RecipeSteps(args.steps * BATCH, seed=1)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=MaskWords(0.15, 9))
    cfg = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LENGTH,
    )
    model = RecipeBert(cfg).train()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=50)

    t0, seen = None, 0
    for epoch in range(args.epochs):
        if epoch == 1:
            t0 = time.perf_counter()
        running = 0.0
        for ids, labels in loader:
            loss = model(ids, labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            if epoch > 0:
                seen += ids.numel()
        print(f"epoch {epoch}  mlm loss {running / len(loader):.3f}", flush=True)
    print(f"finished: {seen / (time.perf_counter() - t0):.1f} tokens/s")


if __name__ == "__main__":
    main()
