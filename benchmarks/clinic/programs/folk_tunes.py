# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "symbolic music"
# sizes = {VOCAB = [3800, 4200], CONTEXT = [92, 100]}
# ///
"""Trains a small GPT-2 on folk tunes written as chord-melody tokens, with the Trainer."""

import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

VOCAB = 4000
CONTEXT = 96
TRAIN_TUNES = 1500
EVAL_TUNES = 160
MAX_STEPS = 120
WARMUP = 5


class Tunes(Dataset):
    """Tunes wander over a fixed random graph of tokens: each token has a handful of likely successors."""

    def __init__(self, n, seed):
        graph = np.random.default_rng(11).integers(0, VOCAB, size=(VOCAB, 4))
        rng = np.random.default_rng(seed)
        tunes = np.empty((n, CONTEXT), dtype=np.int64)
        tunes[:, 0] = rng.integers(0, VOCAB, n)
        for t in range(1, CONTEXT):
            step = graph[tunes[:, t - 1], rng.integers(0, 4, n)]
            jump = rng.random(n) < 0.05
            tunes[:, t] = np.where(jump, rng.integers(0, VOCAB, n), step)
        self.tunes = torch.from_numpy(tunes)

    def __len__(self):
        return len(self.tunes)

    def __getitem__(self, i):
        return {"input_ids": self.tunes[i], "labels": self.tunes[i]}


class Speed(TrainerCallback):
    """Steps per second from the end of the warm-up to the end of training."""

    def __init__(self):
        self.start = None
        self.rate = 0.0

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == WARMUP:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = (state.global_step - WARMUP) / (time.perf_counter() - self.start)


def keep_best_token(logits, labels):  # well
    return logits.argmax(dim=-1)  # well


def compute_metrics(result):
    best = result.predictions.argmax(axis=-1)[:, :-1]  # sick here
    best = result.predictions[:, :-1]  # well
    target = result.label_ids[:, 1:]
    hits = best == target
    return {
        "accuracy": float(hits.mean()),
        "tail_accuracy": float(hits[:, CONTEXT // 2 :].mean()),
    }


def main():
    set_seed(21)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=CONTEXT,
        n_embd=128,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters")

    speed = Speed()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=MAX_STEPS,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            eval_strategy="steps",
            eval_steps=10,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Tunes(TRAIN_TUNES, seed=1),
            eval_dataset=Tunes(EVAL_TUNES, seed=2),
            compute_metrics=compute_metrics,  # here
            preprocess_logits_for_metrics=keep_best_token,  # well
            callbacks=[speed],
        )
        trainer.train()
    print(f"{speed.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
