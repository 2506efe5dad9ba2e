# /// clinic
# stratum = "placebo"
# domain = "text"
# sizes = {VOCABULARY = [400, 700], LENGTH = [56, 64]}
# ///
"""A small GPT that continues prose, trained with the Trainer of transformers."""

import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

VOCABULARY = 512
LENGTH = 64
BATCH = 8


class Timer(TrainerCallback):
    def on_step_begin(self, arguments, state, control, **rest):
        if state.global_step == 5:
            self.began = time.perf_counter()


class Prose(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.text = torch.randint(0, VOCABULARY, (count * LENGTH,), generator=generator).view(count, LENGTH)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, index):
        return {"input_ids": self.text[index], "labels": self.text[index]}


logging.set_verbosity_error()
torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=192, n_layer=3, n_head=6, bos_token_id=0, eos_token_id=0)
)
timer = Timer()
trainer = Trainer(
    model,
    TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=BATCH,
        max_steps=120,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=Prose(2000),
    callbacks=[timer],
)
print(f"loss {trainer.train().training_loss:.3f}")
print(f"{115 * BATCH / (time.perf_counter() - timer.began):.2f} passages/s")
