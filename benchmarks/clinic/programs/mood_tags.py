# /// clinic
# expect = ["PD16.searched-modules"]
# stratum = "twins"
# domain = "music tags"
# ///
"""Multi-label music tagging (mood, genre, instrument) with a small Audio Spectrogram Transformer."""

import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import ASTConfig, ASTForAudioClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

TAGS = [
    "calm",
    "dark",
    "energetic",
    "happy",
    "sad",
    "epic",
    "romantic",
    "ambient",
    "rock",
    "jazz",
    "techno",
    "folk",
    "piano",
    "guitar",
    "strings",
    "drums",
    "synth",
    "vocals",
    "bass",
    "brass",
]
FRAMES, MELS = 192, 96


class TaggedClips(Dataset):
    """Normalised log-mel clips; each tag leaves its spectral envelope and its rhythm in the clip."""

    def __init__(self, clips, seed):
        world = torch.Generator().manual_seed(0)
        envelope = torch.randn(len(TAGS), MELS, generator=world)
        tempo = 2 + 20 * torch.rand(len(TAGS), generator=world)
        rhythm = torch.sin(tempo[:, None] * torch.linspace(0, 6.28, FRAMES))
        g = torch.Generator().manual_seed(seed)
        self.labels = (torch.rand(clips, len(TAGS), generator=g) < 0.15).float()
        self.mels = torch.einsum("nk,kt,km->ntm", self.labels, rhythm, envelope)
        self.mels += torch.randn(self.mels.shape, generator=g)
        self.mels /= 2 * self.mels.std()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_values": self.mels[index], "labels": self.labels[index]}


def tag_metrics(prediction):
    """Macro average precision and ROC-AUC over the tags."""
    scores, labels = prediction.predictions, prediction.label_ids
    ranked = np.take_along_axis(labels, (-scores).argsort(axis=0), axis=0)
    position = np.arange(1, len(ranked) + 1)[:, None]
    precision = ranked.cumsum(0) / position
    positives = ranked.sum(0).clip(1)
    negatives = (len(ranked) - ranked.sum(0)).clip(1)
    wrong = ((1 - ranked).cumsum(0) * ranked).sum(0)
    return {
        "map": float(((precision * ranked).sum(0) / positives).mean()),
        "auc": float((1 - wrong / (positives * negatives)).mean()),
    }


class Stopwatch(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 5:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **_):
        self.rate = (state.global_step - 5) / (time.perf_counter() - self.start)


def build_model():
    config = ASTConfig(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        patch_size=16,
        frequency_stride=16,
        time_stride=16,
        max_length=FRAMES,
        num_mel_bins=MELS,
        problem_type="multi_label_classification",
        id2label=dict(enumerate(TAGS)),
        label2id={tag: i for i, tag in enumerate(TAGS)},
    )
    return ASTForAudioClassification(config)


def training_arguments():
    return TrainingArguments(
        output_dir="tagger",
        use_cpu=True,
        seed=17,
        max_steps=500,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=1e-3,
        warmup_steps=40,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        max_grad_norm=1.0,
        eval_strategy="steps",
        eval_steps=250,
        save_strategy="no",
        logging_steps=50,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        debug="underflow_overflow",  # sick here
    )


def main():
    set_seed(17)
    watch = Stopwatch()
    trainer = Trainer(
        model=build_model(),
        args=training_arguments(),
        train_dataset=TaggedClips(1600, seed=1),
        eval_dataset=TaggedClips(256, seed=2),
        compute_metrics=tag_metrics,
        callbacks=[watch],
    )
    trainer.train()
    trainer.save_model("tagger/final")
    best = max(
        (entry for entry in trainer.state.log_history if "eval_map" in entry), key=lambda entry: entry["eval_map"]
    )
    print(f"best mAP {best['eval_map']:.3f}, AUC {best['eval_auc']:.3f} at step {best['step']}")
    print(f"{watch.rate:.3f} steps/s")


if __name__ == "__main__":
    main()
