# /// clinic
# expect = ["PD05", "PD10"]
# endless = true
# stratum = "twins"
# domain = "genomics, splice sites"
# ///
"""Per-base donor/acceptor labelling of pre-mRNA windows with a small BERT, trained by the transformers Trainer."""

import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainerCallback, TrainingArguments

ALPHABET = "-ACGTN"
WINDOW = 192
LABELS = ["none", "donor", "acceptor"]


def encode(sequence):
    lookup = np.zeros(128, dtype=np.int64)
    for code, letter in enumerate(ALPHABET):
        lookup[ord(letter)] = code
    return lookup[np.frombuffer(sequence.encode(), dtype=np.uint8)]


def fake_gene(rng):
    """Random exon-intron-exon window with GT..AG consensus and a weak polypyrimidine tract."""
    bases = rng.choice(list("ACGT"), WINDOW)
    labels = np.zeros(WINDOW, dtype=np.int64)
    start = int(rng.integers(20, 70))
    end = int(rng.integers(start + 60, WINDOW - 12))
    bases[start : start + 6] = list("GTAAGT")
    tract = slice(end - 18, end - 4)
    bases[tract] = rng.choice(list("CCTTTTAG"), 14)
    bases[end - 2 : end] = ["A", "G"]
    labels[start], labels[end - 1] = 1, 2
    bases[rng.random(WINDOW) < 0.002] = "N"
    return encode("".join(bases)), labels


class SpliceWindows(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        pairs = [fake_gene(rng) for _ in range(count)]
        self.bases = torch.from_numpy(np.stack([b for b, _ in pairs]))
        self.labels = torch.from_numpy(np.stack([y for _, y in pairs]))

    def __len__(self):
        return len(self.bases)

    def __getitem__(self, k):
        return {"input_ids": self.bases[k], "labels": self.labels[k]}


def architecture(size="tiny", **overrides):
    """Sizes used in the lab, so that runs stay comparable."""
    shapes = {
        "tiny": dict(hidden_size=80, num_hidden_layers=3, num_attention_heads=4, intermediate_size=320),
        "small": dict(hidden_size=192, num_hidden_layers=6, num_attention_heads=6, intermediate_size=768),
    }
    common = dict(
        vocab_size=len(ALPHABET),
        max_position_embeddings=WINDOW,
        pad_token_id=0,
        num_labels=len(LABELS),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-6,
        chunk_size_feed_forward=2,  # sick here
    )
    return BertConfig(**{**common, **shapes[size], **overrides})


class SpliceTagger(BertForTokenClassification):
    """Junctions are rare, hence the class weights."""

    def forward(self, input_ids=None, labels=None, **kwargs):
        out = super().forward(input_ids=input_ids)  # here
        if labels is not None:
            weight = out.logits.new_tensor([0.05, 1.0, 1.0])
            out.loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), labels.flatten(), weight=weight)
        return out


class Pace(TrainerCallback):
    def __init__(self, every=20):
        self.every, self.since = every, None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            now = time.perf_counter()
            if self.since is not None:
                print(f"step {state.global_step}  {self.every / (now - self.since):.2f} steps/s", flush=True)
            self.since = now


def main():
    torch.manual_seed(17)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=16,
            learning_rate=5e-4,
            warmup_steps=50,
            weight_decay=0.01,
            num_train_epochs=500,
            logging_steps=200,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=SpliceTagger(architecture("tiny")),
            args=arguments,
            train_dataset=SpliceWindows(4096, seed=5),
            callbacks=[Pace()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
