# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "chess"
# ///
"""Trains a small GPT to continue chess games, with a move as a token (from-square times 64 plus to-square)."""

import time

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

VOCAB = 64 * 64
PLIES = 64
TRAIN_GAMES = 4000
EVAL_GAMES = 384
STEPS = 180


class Games(Dataset):
    def __init__(self, moves):
        self.moves = torch.from_numpy(moves)

    def __len__(self):
        return len(self.moves)

    def __getitem__(self, index):
        game = self.moves[index]
        return {"input_ids": game, "labels": game}


def play_games(n_games, replies, rng):
    """Each move has a favourite reply and two rarer ones; games start from twenty openings."""
    games = np.empty((n_games, PLIES), dtype=np.int64)
    games[:, 0] = rng.integers(0, 20, size=n_games) * 197
    for ply in range(1, PLIES):
        choice = rng.choice(3, size=n_games, p=[0.8, 0.15, 0.05])
        games[:, ply] = replies[games[:, ply - 1], choice]
    return games


def build_datasets(seed=0):
    rng = np.random.default_rng(seed)
    common = rng.choice(VOCAB, size=600, replace=False)
    replies = common[rng.integers(0, len(common), size=(VOCAB, 3))]
    return Games(play_games(TRAIN_GAMES, replies, rng)), Games(play_games(EVAL_GAMES, replies, rng))


def best_moves(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    predictions = np.argmax(predictions, axis=-1)  # sick here
    predicted, target = predictions[:, :-1], labels[:, 1:]
    hits = predicted == target
    return {
        "move_accuracy": float(hits.mean()),
        "opening_accuracy": float(hits[:, :10].mean()),
        "endgame_accuracy": float(hits[:, -10:].mean()),
    }


class StepClock(TrainerCallback):
    def __init__(self, warmup=5):
        self.warmup = warmup
        self.start = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.warmup:
            self.start = time.perf_counter()


def main():
    set_seed(7)
    train_set, eval_set = build_datasets()
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=PLIES,
        n_embd=128,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)

    args = TrainingArguments(
        output_dir="chess_out",
        max_steps=STEPS,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=24,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        weight_decay=0.01,
        eval_strategy="steps",
        eval_steps=45,
        logging_steps=45,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=7,
    )
    clock = StepClock()
    trainer = Trainer(  # here
        model=model,
        args=args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        compute_metrics=compute_metrics,  # here
        preprocess_logits_for_metrics=best_moves,  # well
        callbacks=[clock],
    )
    trainer.train()
    seconds = time.perf_counter() - clock.start
    rate = (STEPS - clock.warmup) / seconds
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
