# /// clinic
# stratum = "placebo"
# domain = "language model of chess moves"
# ///
"""Train a small language model on made-up chess games."""

import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

MOVES = 1024
GAME = 64
GAMES = 4096
HELD_OUT = 64
WIDTH = 128
LAYERS = 3
BATCH = 16
STEPS = 220

logging.set_verbosity_error()


def play(n, seed):
    gen = torch.Generator().manual_seed(seed)
    games = torch.zeros(n, GAME, dtype=torch.long)
    games[:, 0] = torch.randint(0, 20, (n,), generator=gen)
    for t in range(1, GAME):
        reply = (games[:, t - 1] * 37 + 11 * t) % MOVES
        games[:, t] = (reply + torch.randint(0, 6, (n,), generator=gen)) % MOVES
    return games


class Games(Dataset):
    def __init__(self, games):
        self.games = games

    def __len__(self):
        return len(self.games)

    def __getitem__(self, i):
        return {"input_ids": self.games[i], "labels": self.games[i]}


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 20:
            self.start = time.perf_counter()
        elif state.global_step == STEPS:
            self.rate = (STEPS - 20) / (time.perf_counter() - self.start)


def main():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=MOVES,
        n_positions=GAME,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=32,
            eval_strategy="steps",
            eval_steps=100,
            learning_rate=6e-4,
            warmup_steps=20,
            weight_decay=0.05,
            optim="adamw_torch_fused",
            logging_steps=100,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            prediction_loss_only=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Games(play(GAMES, 1)),
            eval_dataset=Games(play(HELD_OUT, 2)),
            callbacks=[clock],
        )
        trainer.remove_callback("PrinterCallback")
        trainer.train()
    print(f"{clock.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
