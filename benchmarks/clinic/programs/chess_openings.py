# /// clinic
# stratum = "decoys"
# domain = "board games"
# sizes = {HEAD = [48, 56], MOVES = [72, 88]}
# ///
"""Next-move language model over game records, a tiny GPT-2 trained with transformers' Trainer."""

import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

HEAD = 48
MOVES = 80
GAMES = 4000
BATCH = 16
STEPS = 230

FILES = "abcdefgh"
PIECES = ["", "N", "B", "R", "Q", "K"]
VOCAB = ["<pad>", "<s>", "</s>"] + [p + f + str(r) for p in PIECES for f in FILES for r in range(1, 9)]
IDS = {move: i for i, move in enumerate(VOCAB)}


def play(rng):
    """A Markov chain over moves of either side, so that there is something to learn."""
    moves = [rng.choice(VOCAB[3:40])]
    for _ in range(rng.randint(MOVES * 3 // 4, MOVES) - 3):
        key = IDS[moves[-1]] * 31 + len(moves) % 2 * 17
        moves.append(VOCAB[3 + (key + rng.choice((0, 0, 0, 5, 11))) % (len(VOCAB) - 3)])
    return " ".join(moves)


class GameRecords(Dataset):
    def __init__(self, games):
        self.games = games

    def __len__(self):
        return len(self.games)

    def __getitem__(self, i):
        ids = [IDS["<s>"]]
        for move in self.games[i].split(" "):
            ids.append(IDS[move])
        ids.append(IDS["</s>"])
        return {"input_ids": ids}


def collate(items):
    longest = max(len(item["input_ids"]) for item in items)
    rows, masks, labels = [], [], []
    for item in items:
        ids = item["input_ids"]
        blank = longest - len(ids)
        rows.append(torch.tensor(ids + [0] * blank))
        masks.append(torch.tensor([1] * len(ids) + [0] * blank))
        labels.append(torch.tensor(ids + [-100] * blank))
    return {
        "input_ids": torch.stack(rows),
        "attention_mask": torch.stack(masks),
        "labels": torch.stack(labels),
    }


class Diary(TrainerCallback):
    """Keeps one JSON line a step on disk and the clock for the final rate."""

    def __init__(self, path):
        self.path = Path(path)
        self.begin = None
        self.steps = 0

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == 10:
            self.begin = time.perf_counter()
        self.steps = state.global_step
        entry = {
            "step": state.global_step,
            "scale": model.transformer.ln_f.weight.norm().item(),
            "bias": model.transformer.ln_f.bias.abs().max().item(),
            "finite": bool(torch.isfinite(model.transformer.wpe.weight).all()),
        }
        with self.path.open("a") as out:
            out.write(json.dumps(entry) + "\n")


def main():
    set_seed(4)
    rng = random.Random(4)
    games = [play(rng) for _ in range(GAMES)]
    config = GPT2Config(
        vocab_size=len(VOCAB),
        n_positions=MOVES + 4,
        n_embd=4 * HEAD,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        activation_function="gelu_pytorch_tanh",
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        diary = Diary(Path(folder) / "diary.jsonl")
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=STEPS,
                per_device_train_batch_size=BATCH,
                learning_rate=1e-3,
                warmup_steps=20,
                lr_scheduler_type="cosine",
                weight_decay=0.01,
                logging_steps=50,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                dataloader_num_workers=0,
                disable_tqdm=True,
            ),
            train_dataset=GameRecords(games),
            data_collator=collate,
            callbacks=[diary],
        )
        trainer.train()
        spent = time.perf_counter() - diary.begin
        lines = sum(1 for _ in diary.path.open())
    print(f"diary has {lines} lines; {(diary.steps - 10) / spent:.1f} steps/s")


if __name__ == "__main__":
    main()
