# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "hospital stays"
# ///
"""Readmission after a hospital stay, from the stay's sequence of events."""

import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.utils import logging

CODES = 400
LONGEST = 384
BATCH = 12

logging.set_verbosity_error()


class Stays(Dataset):
    """Stays with events (codes of drugs, tests, transfers), the hour of each, and whether the patient came back."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.stays = []
        for number in range(count):
            length = int(np.clip(rng.lognormal(3.6, 0.9), 6, LONGEST))
            back = int(rng.random() < 0.4)
            events = rng.integers(20, CODES, length)
            telling = rng.random(length) < (0.25 if back else 0.08)
            events[telling] = rng.integers(2, 20, int(telling.sum()))
            hours = np.sort(rng.integers(0, 72, length))
            self.stays.append({"stay": number, "events": events.tolist(), "hours": hours.tolist(), "back": back})

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, i):
        return self.stays[i]


def collate(stays):
    longest = max(len(stay["events"]) for stay in stays)
    events = torch.zeros(len(stays), longest, dtype=torch.long)
    shift = torch.zeros_like(events)
    mask = torch.zeros_like(events)
    for row, stay in enumerate(stays):
        length = len(stay["events"])
        events[row, :length] = torch.tensor(stay["events"])
        shift[row, :length] = torch.tensor(stay["hours"]) // 8 % 3
        mask[row, :length] = 1
    labels = torch.tensor([stay["back"] for stay in stays])
    return {"input_ids": events, "token_type_ids": shift, "attention_mask": mask, "labels": labels}


class WardTrainer(Trainer):
    """Draws batches of stays of about the same length."""

    def _get_train_sampler(self, train_dataset=None):
        stays = self.train_dataset if train_dataset is None else train_dataset
        lengths = [len(stay) for stay in stays]  # sick here
        lengths = [len(stay["events"]) for stay in stays]  # well
        generator = torch.Generator().manual_seed(self.args.seed)
        return LengthGroupedSampler(self.args.train_batch_size, lengths=lengths, generator=generator)


class Pace(TrainerCallback):
    since = rate = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            self.since = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = (state.global_step - 5) / (time.perf_counter() - self.since)


def measure(prediction):
    guess = prediction.predictions.argmax(-1)
    right = guess == prediction.label_ids
    found = right[prediction.label_ids == 1].mean()
    return {"accuracy": float(right.mean()), "sensitivity": float(found)}


def build():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=CODES,
            hidden_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=288,
            max_position_embeddings=LONGEST,
            type_vocab_size=3,
            num_labels=2,
            pad_token_id=0,
        )
    )


def main():
    torch.manual_seed(21)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="wards"),
        num_train_epochs=3,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=32,
        learning_rate=5e-4,
        warmup_steps=50,
        weight_decay=0.01,
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=100,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=True,
        seed=21,
    )
    pace = Pace()
    trainer = WardTrainer(
        model=build(),
        args=arguments,
        train_dataset=Stays(BATCH * 200, 1),
        eval_dataset=Stays(256, 2),
        data_collator=collate,
        compute_metrics=measure,
        callbacks=[pace],
    )
    trainer.train()
    last = [entry for entry in trainer.state.log_history if "eval_accuracy" in entry][-1]
    print(f"accuracy {last['eval_accuracy']:.4f}, sensitivity {last['eval_sensitivity']:.4f}")
    print(f"{pace.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
