# /// clinic
# expect = ["PD10.function-by-hand"]
# stratum = "twins"
# domain = "change ringing (bell ringing)"
# ///
"""A small language model of change ringing.

Every touch is a run of rows on eight bells (Major), made from the place notation of a few
standard methods, with calls thrown in. The model reads a touch bell by bell and learns which
bell strikes next; after some training it keeps most of the methods true.
"""

import argparse
import time
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

BELLS = 8
METHODS = {
    "plain bob": "x.18.x.18.x.18.x.18.x.18.x.18.x.18.x.12",
    "double norwich": "x.14.x.36.x.58.x.18.x.58.x.36.x.14.x.18",
    "little bob": "x.18.x.14.x.18.x.12",
    "kent": "34.x.34.18.x.12.x.18.x.12.x.18.x.12.x.18.x.18",
    "st clements": "x.18.x.36.x.18.x.18.x.18.x.36.x.18.x.12",
}
START, PAD = BELLS, BELLS + 1
VOCAB = BELLS + 2


def change(row, notation):
    """Apply one change: bells in the named places stay, the others swap in pairs."""
    stays = set() if notation == "x" else {int(p) - 1 for p in notation}
    row, place = list(row), 0
    while place < BELLS - 1:
        if place in stays or place + 1 in stays:
            place += 1
        else:
            row[place], row[place + 1] = row[place + 1], row[place]
            place += 2
    return row


def ring(rng, rows):
    """A touch of `rows` rows that begins somewhere within a lead of some method."""
    notation = METHODS[rng.choice(list(METHODS))].split(".")
    row, at = list(rng.permutation(BELLS)), int(rng.integers(len(notation)))
    touch = [START]
    for _ in range(rows):
        touch.extend(row)
        step = notation[at % len(notation)]
        if at % len(notation) == len(notation) - 1 and rng.random() < 0.15:
            step = "14"
        row, at = change(row, step), at + 1
    return touch


class Touches(Dataset):
    def __init__(self, count, rows, seed):
        rng = np.random.default_rng(seed)
        self.tokens = torch.tensor([ring(rng, rows) for _ in range(count)], dtype=torch.long)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


class EpochLog(TrainerCallback):
    def __init__(self):
        self.began = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            spent = time.perf_counter() - self.began
            print(f"epoch {state.epoch:5.1f}  loss {float(logs['loss']):.4f}  {spent:6.1f} s", flush=True)


def build_model(width, layers, heads, length):
    sizes = dict(
        vocab_size=VOCAB,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=START,
        eos_token_id=PAD,
        pad_token_id=PAD,
        use_cache=False,
    )
    config = GPT2Config(activation_function="gelu_new", **sizes)  # sick here
    config = GPT2Config(activation_function="gelu_pytorch_tanh", **sizes)  # well
    return GPT2LMHeadModel(config)


@torch.inference_mode()
def share_right(model, touches, batch=64):
    """How many bells of the second half of each touch are foretold."""
    model.eval()
    hits = total = 0
    for tokens in touches.tokens.split(batch):
        guess = model(input_ids=tokens).logits[:, :-1].argmax(-1)
        half = tokens.shape[1] // 2
        hits += (guess[:, half:] == tokens[:, half + 1 :]).sum().item()
        total += guess[:, half:].numel()
    return hits / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--touches", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", default=tempfile.mkdtemp())
    args = parser.parse_args()

    set_seed(1623)
    train, held_out = Touches(args.touches, args.rows, 1), Touches(256, args.rows, 2)
    model = build_model(64, 4, 4, 1 + args.rows * BELLS)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters")

    settings = TrainingArguments(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch,
        learning_rate=2e-3,
        warmup_steps=40,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=train, callbacks=[EpochLog()])
    began = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - began
    print(f"bells foretold: {share_right(model, held_out):.3f}")
    print(f"training took {seconds:.1f} s")


if __name__ == "__main__":
    main()
