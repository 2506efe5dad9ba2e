# /// clinic
# expect = ["PD16.searched-modules"]
# stratum = "twins"
# domain = "system logs, masked language model"
# ///
"""Pretrains a small BERT on template sequences of system logs for later anomaly scoring."""

import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, CLS, MASK, OFFSET = 0, 1, 2, 3
N_TEMPLATES = 420
SEQ_LEN = 48
N_SESSIONS = 6000
MAX_STEPS = 250
BATCH_SIZE = 12


def generate_sessions(rng):
    """Each session follows a sparse Markov chain over log templates, with a burst of noise now and then."""
    successors = rng.integers(0, N_TEMPLATES, size=(N_TEMPLATES, 4))
    weights = np.array([0.55, 0.25, 0.15, 0.05])
    state = rng.integers(0, N_TEMPLATES, size=N_SESSIONS)
    sessions = np.empty((N_SESSIONS, SEQ_LEN), dtype=np.int64)
    sessions[:, 0] = CLS
    for t in range(1, SEQ_LEN):
        branch = rng.choice(4, size=N_SESSIONS, p=weights)
        state = successors[state, branch]
        noisy = rng.random(N_SESSIONS) < 0.03
        state = np.where(noisy, rng.integers(0, N_TEMPLATES, N_SESSIONS), state)
        sessions[:, t] = state + OFFSET
    return torch.from_numpy(sessions)


class SessionDataset(Dataset):
    def __init__(self, sessions):
        self.sessions = sessions

    def __len__(self):
        return len(self.sessions)

    def __getitem__(self, index):
        return self.sessions[index]


class MaskingCollator:
    def __init__(self, probability=0.15):
        self.probability = probability

    def __call__(self, rows):
        input_ids = torch.stack(rows)
        labels = input_ids.clone()
        chosen = (torch.rand(input_ids.shape) < self.probability) & (input_ids != CLS)
        labels[~chosen] = -100
        draw = torch.rand(input_ids.shape)
        input_ids = torch.where(chosen & (draw < 0.8), torch.full_like(input_ids, MASK), input_ids)
        swap = chosen & (draw >= 0.9)
        randoms = torch.randint(OFFSET, OFFSET + N_TEMPLATES, input_ids.shape)
        input_ids = torch.where(swap, randoms, input_ids)
        return {"input_ids": input_ids, "labels": labels}


class SpeedCallback(TrainerCallback):
    def __init__(self, skip=5):
        self.skip = skip
        self.start = None
        self.rate = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.skip:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = (state.global_step - self.skip) / (time.perf_counter() - self.start)


def build_model():
    config = BertConfig(
        vocab_size=OFFSET + N_TEMPLATES,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=SEQ_LEN,
        pad_token_id=PAD,
        type_vocab_size=1,
    )
    return BertForMaskedLM(config)


def main():
    set_seed(2024)
    sessions = generate_sessions(np.random.default_rng(2024))
    model = build_model()
    speed = SpeedCallback()
    with tempfile.TemporaryDirectory() as workdir:
        arguments = TrainingArguments(
            output_dir=workdir,
            per_device_train_batch_size=BATCH_SIZE,
            max_steps=MAX_STEPS,
            learning_rate=5e-4,
            warmup_steps=40,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            disable_tqdm=True,
            debug="underflow_overflow",  # sick here
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=SessionDataset(sessions),
            data_collator=MaskingCollator(),
            callbacks=[speed],
        )
        result = trainer.train()
    print(f"mean training loss {result.training_loss:.4f}")
    print(f"{speed.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
