# /// clinic
# stratum = "decoys"
# domain = "text classification (consistency regularisation)"
# ///
"""Trains a tiny BERT on synthetic intents with a dropout-consistency loss through transformers.Trainer."""

import os
import tempfile
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
import transformers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

VOCAB = 500
INTENTS = 12
LENGTH = 24
EXAMPLES = 4096
BATCH = 24
ALPHA = 1.0
STEPS = 260
WARMUP = 20


class Intents(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(6)
        self.y = torch.randint(INTENTS, (EXAMPLES,), generator=g)
        noise = torch.randint(3, VOCAB, (EXAMPLES, LENGTH), generator=g)
        key = 3 + self.y[:, None] * 20 + torch.randint(20, (EXAMPLES, LENGTH), generator=g)
        self.x = torch.where(torch.rand(EXAMPLES, LENGTH, generator=g) < 0.25, key, noise)

    def __len__(self):
        return EXAMPLES

    def __getitems__(self, idx):
        return [(self.x[idx], self.y[idx])]

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def collate(parts):
    x, y = parts[0]
    return {"input_ids": x, "attention_mask": torch.ones_like(x), "labels": y}


class ConsistencyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        first = model(**inputs).logits
        second = model(**inputs).logits
        task = 0.5 * (F.cross_entropy(first, labels) + F.cross_entropy(second, labels))
        p, q = first.log_softmax(-1), second.log_softmax(-1)
        apart = 0.5 * (
            F.kl_div(p, q, log_target=True, reduction="batchmean")
            + F.kl_div(q, p, log_target=True, reduction="batchmean")
        )
        loss = task + ALPHA * apart
        return (loss, {"logits": first}) if return_outputs else loss


class Stopwatch(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == WARMUP:
            self.began = time.perf_counter()
        elif state.global_step == WARMUP + STEPS:
            self.took = time.perf_counter() - self.began


def main():
    torch.manual_seed(6)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=LENGTH,
        num_labels=INTENTS,
        hidden_dropout_prob=0.2,
        attention_probs_dropout_prob=0.2,
    )
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=WARMUP + STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=5e-4,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            optim="adamw_torch_fused",
            seed=6,
        )
        trainer = ConsistencyTrainer(
            model=BertForSequenceClassification(config),
            args=args,
            train_dataset=Intents(),
            data_collator=collate,
            callbacks=[watch],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    print(f"{STEPS * BATCH / watch.took:.1f} samples/s")


if __name__ == "__main__":
    main()
