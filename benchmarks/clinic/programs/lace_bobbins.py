# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "lace bobbins"
# ///
"""Which ground a strip of bobbin lace belongs to, read from the working notes of its pairs; pseudo-labels in rounds."""

import random
import time

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

logging.set_verbosity_error()

GROUNDS = {
    "torchon": ["C", "T", "pin", "C", "T"],
    "rose": ["C", "T", "C", "T", "pin", "C", "T", "C"],
    "tulle": ["C", "T", "T", "T", "pin"],
    "valenciennes": ["C", "T", "C", "T", "C", "T", "C"],
    "spider": ["T", "T", "T", "C", "C", "pin", "C", "T"],
    "cloth": ["C", "T", "C", "C", "T", "C", "pin"],
}
NAMES = list(GROUNDS)
MOVES = ["C", "T", "pin", "gimp", "join", "knot", "left", "right", "picot"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LONGEST = 192
SEED = 5


def working_note(rng):
    """One strip: the ground's repeat with slips, edges and gimps; most strips are short, a few go on and on."""
    label = rng.randrange(len(NAMES))
    length = max(10, min(LONGEST - 2, int(rng.lognormvariate(3.85, 0.45))))
    moves = []
    while len(moves) < length:
        for move in GROUNDS[NAMES[label]]:
            slip = rng.random()
            if slip < 0.08:
                moves.append(rng.choice(MOVES))
            elif slip < 0.96:
                moves.append(move)
        if rng.random() < 0.15:
            moves.append(rng.choice(["left", "right", "gimp", "picot"]))
    return " ".join(moves[:length]), label


def pattern_book(n, rng):
    notes, labels = zip(*(working_note(rng) for _ in range(n)))
    return list(notes), list(labels)


def make_tokenizer():
    vocab = {token: i for i, token in enumerate(SPECIALS + MOVES)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=LONGEST,
    )


class Strips(Dataset):
    def __init__(self, notes, labels, tokenizer):
        self.rows = tokenizer(notes, padding="max_length", truncation=True, max_length=LONGEST)  # sick here
        self.rows = tokenizer(notes, truncation=True, max_length=LONGEST)  # well
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        row = {key: values[i] for key, values in self.rows.items()}
        row["labels"] = self.labels[i]
        return row


class Stopwatch(TrainerCallback):
    began = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def fresh_student(tokenizer):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            max_position_embeddings=LONGEST,
            num_labels=len(NAMES),
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def main():
    set_seed(SEED)
    rng = random.Random(SEED)
    tokenizer = make_tokenizer()
    notes, labels = pattern_book(480, rng)
    unread, _ = pattern_book(480, rng)
    test = Strips(*pattern_book(256, rng), tokenizer)
    pool = Strips(unread, [0] * len(unread), tokenizer)
    watch = Stopwatch()
    settings = TrainingArguments(
        output_dir="runs",
        use_cpu=True,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        max_steps=52,
        learning_rate=1e-3,
        warmup_steps=10,
        lr_scheduler_type="cosine",
        logging_steps=26,
        eval_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=SEED,
    )

    strips = 0
    taught_notes, taught_labels = notes, labels
    for round_ in range(3):
        trainer = Trainer(
            model=fresh_student(tokenizer),
            args=settings,
            train_dataset=Strips(taught_notes, taught_labels, tokenizer),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
            callbacks=[watch],
        )
        trainer.train()
        strips += trainer.state.global_step * settings.per_device_train_batch_size
        report = trainer.evaluate(test)
        print(f"round {round_}: {len(taught_notes)} strips, accuracy {report['eval_accuracy']:.3f}")
        logits = torch.from_numpy(trainer.predict(pool).predictions)
        sure, guess = logits.softmax(-1).max(-1)
        chosen = np.argsort(-sure.numpy())[: 150 * (round_ + 1)]
        taught_notes = notes + [unread[i] for i in chosen]
        taught_labels = labels + [int(guess[i]) for i in chosen]

    trainer.save_model("student")
    rate = strips / (time.perf_counter() - watch.began)
    print(f"{rate:.1f} strips/s")


if __name__ == "__main__":
    main()
