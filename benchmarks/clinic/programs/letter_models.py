# /// clinic
# stratum = "placebo"
# domain = "language modelling"
# ///
"""Trains a character-level GPT-2 with Accelerate and gradient accumulation."""

import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup, set_seed
from transformers.utils import logging

BLOCK = 96
BATCH = 12
ACCUMULATE = 2
STEPS = 300
WARMUP = 20
WORDS = ["the", "river", "moves", "slowly", "under", "old", "stone", "bridges", "and", "turns", "east"]

logging.set_verbosity_error()


class Text(Dataset):
    def __init__(self, words, seed):
        gen = torch.Generator().manual_seed(seed)
        picks = torch.randint(0, len(WORDS), (words,), generator=gen).tolist()
        text = " ".join(WORDS[i] for i in picks)
        self.letters = sorted(set(text))
        index = {c: i for i, c in enumerate(self.letters)}
        self.codes = torch.tensor([index[c] for c in text])

    def __len__(self):
        return len(self.codes) // BLOCK

    def __getitem__(self, i):
        return self.codes[i * BLOCK : (i + 1) * BLOCK]


def endless(loader):
    while True:
        yield from loader


def main():
    set_seed(5)
    text = Text(80000, 6)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(text.letters),
            n_positions=BLOCK,
            n_embd=96,
            n_layer=3,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = get_cosine_schedule_with_warmup(optimizer, 20, STEPS)
    loader = DataLoader(text, batch_size=BATCH, shuffle=True, drop_last=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    model.train()
    total = torch.zeros(())
    for step, batch in zip(range(STEPS), endless(loader)):
        if step == WARMUP:
            start = time.perf_counter()
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total += loss.detach()
    rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
