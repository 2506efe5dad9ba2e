# /// clinic
# expect = ["PD03"]
# allow = ["PD05.batch-too-small", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "text"
# smoke = true
# sizes = {WORDS = [900, 1400]}
# severities = {LETTERS = [300, 1000, 3000]}
# ///
"""Sorts mail into folders with a small BERT and the Trainer of transformers."""

import random
import re
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

WORDS = 1100
LETTERS = 1000
LENGTH = 24
BATCH = 16
STEPS = 90


class Tokens:
    """Words by the longest piece that is known, as in WordPiece, in plain Python."""

    def __init__(self):
        dice = random.Random(1)
        self.pieces = {"".join(dice.choices("etaoinshrd", k=dice.randint(1, 3))): n + 5 for n in range(WORDS - 5)}

    def __call__(self, mail):
        found = []
        for word in re.findall(r"[a-z]+", mail.lower()):
            while word:
                size = next((size for size in (3, 2, 1) if word[:size] in self.pieces), 0)
                found.append(self.pieces[word[:size]] if size else 1)
                word = word[max(size, 1) :]
        return (found + [0] * LENGTH)[:LENGTH]


class Mail(torch.utils.data.Dataset):
    def __init__(self, count):
        dice = random.Random(2)
        self.tokens = Tokens()
        self.mails = ["".join(dice.choices("Etaoinshrd ", k=LETTERS)) for _ in range(count)]
        self.read = [self.tokens(mail) for mail in self.mails]  # well

    def __len__(self):
        return len(self.mails)

    def __getitem__(self, index):
        words = self.tokens(self.mails[index])  # sick
        words = self.read[index]  # well
        return {"input_ids": torch.tensor(words), "labels": index % 4}


class Watch(TrainerCallback):
    def on_step_end(self, arguments, state, control, **rest):
        if state.global_step == 10:
            self.began = time.perf_counter()


def main():
    logging.set_verbosity_error()
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    config.num_labels = 4
    watch = Watch()
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Mail(640), callbacks=[watch])
    print(f"loss {trainer.train().training_loss:.4f}")
    print(f"{(STEPS - 10) * BATCH / (time.perf_counter() - watch.began):.1f} mails/s")


if __name__ == "__main__":
    main()
