# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "aviation weather reports"
# ///
"""Forecast an airfield's flight category (VFR, MVFR, IFR, LIFR) one hour ahead from the text of its last METAR report.

A small BERT over characters, trained from scratch with accelerate. The reports are written by a simple weather generator, so
the exercise can be repeated anywhere; the real archive has the same columns.
"""

import math
import random
import time

import torch
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed  # here
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, get_cosine_schedule_with_warmup


ALPHABET = " ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/="
CLS = len(ALPHABET) + 1
LENGTH = 49
CATEGORIES = ("VFR", "MVFR", "IFR", "LIFR")
STATIONS = ("EDDH", "EHAM", "EKCH", "ENBR", "ESGG", "EGPD", "EFHK", "EVRA")

REPORTS = 4000
BATCH = 32
ACCUMULATE = 4
EPOCHS = 2


def category(visibility, ceiling):
    if visibility < 1600 or ceiling < 500:
        return 3
    if visibility < 5000 or ceiling < 1000:
        return 2
    if visibility < 8000 or ceiling < 3000:
        return 1
    return 0


def write_report(rng):
    """One METAR, and the category that will hold an hour later."""
    station = rng.choice(STATIONS)
    hour, minute = rng.randrange(24), rng.choice((20, 50))
    temperature = rng.gauss(9, 6)
    spread = abs(rng.gauss(3, 2.5))
    wind = max(0, rng.gauss(10, 6))
    foggy = spread < 1.2 and wind < 9
    visibility = int(min(9999, max(100, rng.gauss(1800 if foggy else 8500, 1500))) / 100) * 100
    ceiling = int(max(1, 4 * spread + rng.gauss(3, 3)))
    trend = -0.4 if hour < 6 else 0.5 if hour < 13 else 0.0
    later = category(visibility * math.exp(trend * 0.5), ceiling * 100 * math.exp(trend * 0.3))
    cover = rng.choice(("SCT", "BKN", "OVC"))
    weather = "FG " if visibility < 1000 else "BR " if visibility < 5000 else rng.choice(("RA ", "DZ ", "HZ "))
    text = (
        f"{station} {rng.randrange(1, 29):02d}{hour:02d}{minute}Z {rng.randrange(36) * 10:03d}{int(wind):02d}KT "
        f"{min(visibility, 9999):04d} {weather}{cover}{ceiling:03d} {abs(int(temperature)):02d}/"
        f"{abs(int(temperature - spread)):02d} Q{int(rng.gauss(1013, 9)):04d}="
    )
    return text, later


def encode(text):
    codes = [CLS] + [ALPHABET.index(letter) + 1 for letter in text][: LENGTH - 1]
    return codes + [0] * (LENGTH - len(codes))


def build_loader(rng):
    reports = [write_report(rng) for _ in range(REPORTS)]
    tokens = torch.tensor([encode(text) for text, _ in reports])
    labels = torch.tensor([later for _, later in reports])
    return DataLoader(TensorDataset(tokens, labels), batch_size=BATCH, shuffle=True, drop_last=True)


def build_model():
    config = BertConfig(
        vocab_size=CLS + 1,
        hidden_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=480,
        max_position_embeddings=LENGTH,
        num_labels=len(CATEGORIES),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(11)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    loader = build_loader(random.Random(3))
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    updates = EPOCHS * len(loader) // ACCUMULATE
    schedule = get_cosine_schedule_with_warmup(optimizer, updates // 20, updates)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    model.train()
    start = time.time()
    seen = 0
    running = torch.zeros(())
    for epoch in range(EPOCHS):
        for number, (tokens, labels) in enumerate(loader):
            with accelerator.accumulate(model):
                outputs = model(input_ids=tokens, attention_mask=(tokens > 0).long(), labels=labels)
                loss = outputs.loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            running += loss.detach()
            seen += len(labels)
            if accelerator.sync_gradients:
                loss, outputs = release_memory(loss, outputs)  # sick here
                loss = outputs = None  # well
            if (number + 1) % 25 == 0:
                accelerator.print(
                    f"epoch {epoch} batch {number + 1:4d}/{len(loader)} loss {running.item() / 25:.4f} "
                    f"{seen / (time.time() - start):.0f} reports/s"
                )
                running.zero_()
    accelerator.print(f"trained on {seen} reports in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
