# /// clinic
# expect = ["PD10.whole-sort"]
# stratum = "twins"
# domain = "games: next-move prediction for chess openings with the transformers Trainer"
# ///
"""Next-move prediction for chess openings: a small GPT over move tokens, trained with the Hugging Face Trainer.

Every move of the long algebraic notation is one token (1968 of them).  Games are synthetic: from each move a
few replies are usual, and players follow them most of the time.
"""

import logging
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


MOVES = 1968
START = MOVES  # every game begins with this token
VOCABULARY = MOVES + 8
PLIES = 48


class Openings(Dataset):
    def __init__(self, games, book, seed):
        rng = np.random.default_rng(seed)
        tokens = np.full((games, PLIES), START, dtype=np.int64)
        move = rng.integers(0, 20, games)
        for ply in range(1, PLIES):
            tokens[:, ply] = move
            reply = book[move, (rng.random(games) ** 2 * book.shape[1]).astype(int)]
            free = rng.integers(0, MOVES, games)
            move = np.where(rng.random(games) < 0.9, reply, free)
        self.tokens = torch.from_numpy(tokens)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def make_book(seed, replies=6):
    return np.random.default_rng(seed).integers(0, MOVES, (MOVES, replies))


def collate(games):
    games = torch.stack(games)
    return {"input_ids": games, "labels": games}


def rank_of_played(logits, labels):
    """At every ply of the held-out games: how many moves does the network prefer to the one that was played?"""
    logits, played = logits[:, :-1], labels[:, 1:, None]
    return logits.argsort(-1, descending=True).eq(played).int().argmax(-1)  # sick here
    return logits.gt(logits.gather(-1, played)).sum(-1)  # well


def book_knowledge(evaluation):
    """Mean reciprocal rank of the played move, and how often it is among the first three."""
    rank = evaluation.predictions
    return {"mrr": (1.0 / (1 + rank)).mean(), "top3": (rank < 3).mean(), "top3_opening": (rank[:, :10] < 3).mean()}


class Narrator(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.begun = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        keep = {
            name: round(float(value), 4)
            for name, value in logs.items()
            if "loss" in name or "mrr" in name or "top3" in name
        }
        print(f"step {state.global_step} {keep} {time.perf_counter() - self.begun:.1f} s", flush=True)


def build_model():
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=PLIES,
        n_embd=96,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=START,
        eos_token_id=START,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def main():
    set_seed(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    book = make_book(9)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=400,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            learning_rate=2e-3,
            warmup_steps=40,
            lr_scheduler_type="cosine",
            eval_strategy="steps",
            eval_steps=40,
            logging_steps=40,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            use_cpu=True,
        )
        trainer = Trainer(
            model=build_model(),
            args=arguments,
            data_collator=collate,
            train_dataset=Openings(12000, book, seed=2),
            eval_dataset=Openings(384, book, seed=3),
            compute_metrics=book_knowledge,
            preprocess_logits_for_metrics=rank_of_played,  # here
            callbacks=[Narrator()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
