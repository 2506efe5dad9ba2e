# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "lace knitting charts as a stitch language model"
# ///
"""Stitch language model: learn to write lace charts row by row with a tiny GPT-2.

The corpus is produced by a small grammar of lace repeats (each row keeps its stitch
count, every yarn-over is paired with a decrease, purl rows follow knit rows).
"""

import os
import random
import tempfile
import time

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

STITCHES = ["<cast-on>", "<turn>", "k", "p", "yo", "k2tog", "ssk", "sk2p", "sl", "c4f", "c4b", "m1", "pm", "tbl"]
TOKEN = {s: i for i, s in enumerate(STITCHES)}
CHART_LENGTH = 16

MOTIFS = {
    "fern": [["yo", "k", "yo", "ssk", "k", "k2tog"], ["p"] * 6],
    "vine": [["k2tog", "yo", "k", "k", "yo", "ssk"], ["sl", "p", "p", "p", "p", "sl"]],
    "peak": [["k", "yo", "sk2p", "yo", "k"], ["p", "tbl", "p", "tbl", "p"]],
    "rope": [["c4f", "k", "p"], ["p", "k", "p"], ["c4b", "k", "p"]],
    "rib": [["k", "k", "p", "p"], ["p", "p", "k", "k"]],
    "mesh": [["yo", "k2tog"], ["sl", "p"], ["ssk", "yo"], ["p", "sl"]],
}


def write_chart(rng):
    """One chart as token ids, cut to CHART_LENGTH + 1."""
    rows = MOTIFS[rng.choice(sorted(MOTIFS))]
    repeats = rng.choice([1, 1, 2])
    marker = rng.random() < 0.3
    chart = ["<cast-on>"]
    row = rng.randrange(len(rows))
    while len(chart) <= CHART_LENGTH:
        for _ in range(repeats):
            chart += rows[row]
            if marker:
                chart.append("pm")
        chart.append("<turn>")
        row = (row + 1) % len(rows)
    return [TOKEN[s] for s in chart[:CHART_LENGTH]]


class LaceCharts(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.ids = torch.tensor([write_chart(rng) for _ in range(n)])

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d}  loss {float(logs['loss']):.4f}", flush=True)


def build_model():
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(STITCHES),
            n_positions=CHART_LENGTH,
            n_embd=256,
            n_layer=6,
            n_head=4,
            activation_function="gelu_pytorch_tanh",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=TOKEN["<cast-on>"],
            eos_token_id=TOKEN["<turn>"],
            use_cache=False,
        )
    )


def training_arguments(workdir, epochs):
    often = 3  # sick here
    often = 200  # well
    return TrainingArguments(
        output_dir=workdir,
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        learning_rate=6e-4,
        lr_scheduler_type="cosine",
        warmup_steps=40,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=80,
        save_strategy="steps",
        save_steps=often,  # here
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=5,
    )


@torch.no_grad()
def knit(model, length=14):
    """Continue a cast-on edge greedily after one free stitch."""
    model.eval()
    ids = torch.tensor([[TOKEN["<cast-on>"], TOKEN["yo"]]])
    for _ in range(length):
        ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    return " ".join(STITCHES[i] for i in ids[0].tolist())


def main():
    set_seed(5)
    epochs = int(os.environ.get("LACE_EPOCHS", 11))
    charts, unseen = LaceCharts(640, seed=1), LaceCharts(256, seed=2)
    with tempfile.TemporaryDirectory(prefix="lace_", dir=os.getcwd()) as workdir:
        trainer = Trainer(
            model=build_model(),
            args=training_arguments(workdir, epochs),
            train_dataset=charts,
            eval_dataset=unseen,
            callbacks=[PrintLoss()],
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        print("unseen charts:", round(trainer.evaluate()["eval_loss"], 4))
    print(knit(trainer.model))
    print(f"total training seconds: {seconds:.2f}")


if __name__ == "__main__":
    main()
