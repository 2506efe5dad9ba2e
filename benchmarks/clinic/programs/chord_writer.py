# /// clinic
# expect = ["PD16.mode-left-on"]
# stratum = "twins"
# domain = "jazz chord progressions with a small GPT-2 (accelerate)"
# ///
"""Trains a small GPT-2 to continue jazz chord progressions, with a Hugging Face Accelerate loop.

The progressions come from a little grammar (ii-V-I cadences, turnarounds, tritone substitutions) in all twelve keys.
"""

import random
import time
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel, get_cosine_schedule_with_warmup


QUALITIES = ["maj7", "m7", "7", "m7b5", "dim7", "6"]
BAR = 12 * len(QUALITIES)
BEGIN = BAR + 1
VOCABULARY = BAR + 2
LENGTH = 48
SONGS = 2400
BATCH = 8
EPOCHS = 2
LOG_EVERY = 50


def chord(root: int, quality: str) -> int:
    return (root % 12) * len(QUALITIES) + QUALITIES.index(quality)


def phrase(key: int, rng: random.Random) -> list[int]:
    """Two to four chords that lead to or around the tonic."""
    kind = rng.randrange(5)
    if kind == 0:
        return [chord(key + 2, "m7"), chord(key + 7, "7"), chord(key, "maj7")]
    if kind == 1:
        return [chord(key + 2, "m7"), chord(key + 1, "7"), chord(key, "6")]
    if kind == 2:
        return [chord(key, "maj7"), chord(key + 9, "7"), chord(key + 2, "m7"), chord(key + 7, "7")]
    if kind == 3:
        return [chord(key + 2, "m7b5"), chord(key + 7, "7"), chord(key, "m7")]
    return [chord(key, "maj7"), chord(key + 1, "dim7")]


def write_songs(seed: int) -> torch.Tensor:
    rng = random.Random(seed)
    songs = []
    for _ in range(SONGS):
        key, tokens = rng.randrange(12), [BEGIN]
        while len(tokens) < LENGTH:
            tokens += phrase(key, rng) + [BAR]
            if rng.random() < 0.15:
                key += rng.choice([5, 7, 3])
        songs.append(tokens[:LENGTH])
    return torch.tensor(songs)


def build_model() -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=96,
        n_layer=6,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=BEGIN,
        eos_token_id=BEGIN,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def decay_groups(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]


@torch.no_grad()
def continue_song(model, start: list[int], bars: int = 3) -> str:
    model.eval()
    tokens = torch.tensor([start])
    for _ in range(bars * 4):
        tokens = torch.cat([tokens, model(input_ids=tokens).logits[:, -1:].argmax(dim=-1)], dim=1)
    model.train()
    names = "C Db D Eb E F Gb G Ab A Bb B".split()
    words = [
        "|" if t >= BAR else names[t // len(QUALITIES)] + QUALITIES[t % len(QUALITIES)] for t in tokens[0].tolist()
    ]
    return " ".join(words)


def main() -> None:
    set_seed(4)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(write_songs(seed=21)), batch_size=BATCH, shuffle=True, drop_last=True)
    model = build_model()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=1e-3, fused=True)
    total = EPOCHS * len(loader)
    schedule = get_cosine_schedule_with_warmup(optimizer, 40, total)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    accelerator.print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters, {total} steps")

    model.train()
    step, flops, work_done = 0, None, 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        for (tokens,) in loader:
            meter = FlopCounterMode(display=False)  # sick here
            meter = FlopCounterMode(display=False) if flops is None else nullcontext()  # well
            with meter:  # here
                loss = model(input_ids=tokens, labels=tokens).loss
                accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if isinstance(meter, FlopCounterMode):
                flops = meter.get_total_flops()  # here
            work_done += flops
            step += 1
            if step % LOG_EVERY == 0:
                rate = work_done / (time.perf_counter() - began) / 1e9
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f} {rate:.2f} GFLOP/s", flush=True)
    accelerator.print(
        "ii-V in F:", continue_song(accelerator.unwrap_model(model), [BEGIN, chord(7, "m7"), chord(0, "7")])
    )


if __name__ == "__main__":
    main()
