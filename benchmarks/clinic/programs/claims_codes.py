# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "insurance claims"
# ///
"""Pretraining of a small bidirectional encoder on sequences of billing codes (masked code modelling)."""

import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import ModernBertConfig, ModernBertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

CODES = 4000
PAD, MASK, BOS, EOS = 0, 1, 2, 3
FIRST_CODE = 4
VISITS = 64


class ClaimHistories(Dataset):
    """Each patient belongs to a condition; a condition has its own neighbourhood of codes and its own order."""

    def __init__(self, patients, seed):
        g = torch.Generator().manual_seed(seed)
        condition = torch.randint(0, 50, (patients, 1), generator=g)
        drift = torch.randint(0, 6, (patients, VISITS - 2), generator=g).cumsum(1) % 60
        code = FIRST_CODE + (condition * 79 + drift) % (CODES - FIRST_CODE)
        ends = torch.ones(patients, 1, dtype=torch.long)
        self.histories = torch.cat([ends * BOS, code, ends * EOS], dim=1)

    def __len__(self):
        return len(self.histories)

    def __getitem__(self, patient):
        return {"input_ids": self.histories[patient]}


class MaskingCollator:
    def __init__(self, probability=0.15, seed=0):
        self.probability = probability
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, patients):
        ids = torch.stack([p["input_ids"] for p in patients])
        labels = ids.clone()
        chosen = torch.rand(ids.shape, generator=self.generator) < self.probability
        chosen &= ids >= FIRST_CODE
        labels[~chosen] = -100
        draw = torch.rand(ids.shape, generator=self.generator)
        noise = torch.randint(FIRST_CODE, CODES, ids.shape, generator=self.generator)
        ids = torch.where(chosen & (draw < 0.8), torch.full_like(ids, MASK), ids)
        ids = torch.where(chosen & (draw >= 0.9), noise, ids)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def build_model():
    sizes = dict(
        vocab_size=CODES,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=VISITS,
        global_attn_every_n_layers=2,
        local_attention=32,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        cls_token_id=BOS,
        sep_token_id=EOS,
    )
    config = ModernBertConfig(**sizes)  # sick here
    config = ModernBertConfig(**sizes, sparse_prediction=True)  # well
    return ModernBertForMaskedLM(config)


class Pace(TrainerCallback):
    def __init__(self):
        self.since = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            self.since = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        shown = {k: round(v, 4) for k, v in logs.items() if k in ("loss", "eval_loss", "grad_norm")}
        if shown:
            print(f"step {state.global_step}: {shown}", flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        print(f"{(state.global_step - 5) / (time.perf_counter() - self.since):.2f} steps/s")


def main():
    set_seed(11)
    steps = 600
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        max_steps=steps,
        learning_rate=1e-3,
        warmup_steps=30,
        weight_decay=0.01,
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=300,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        prediction_loss_only=True,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
    )
    pace = Pace()
    trainer = Trainer(
        model=build_model(),
        args=arguments,
        data_collator=MaskingCollator(),
        train_dataset=ClaimHistories(6000, seed=1),
        eval_dataset=ClaimHistories(160, seed=2),
        callbacks=[pace],
    )
    trainer.pop_callback(type(next(c for c in trainer.callback_handler.callbacks if "Printer" in type(c).__name__)))
    trainer.train()


if __name__ == "__main__":
    main()
