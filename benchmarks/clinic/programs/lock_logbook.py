# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "canal lock-keepers' logbooks"
# ///
"""Delay causes from canal lock-keepers' logbook entries.

The keepers write a few terse clauses per passage. We train a small BERT from
scratch that says why a boat was held up, so that the waterways office can
tabulate causes per lock and month.
"""

import argparse
import random
import tempfile
import time

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

CAUSES = ["paddle gear", "low pound", "traffic", "ice", "debris", "towpath horse"]
EVIDENCE = [
    [
        "rack pinion slipped on the offside paddle",
        "windlass would not bite the spindle",
        "bottom paddle stuck half drawn",
        "pawl worn and the paddle dropped",
    ],
    [
        "pound drawn down eight inches overnight",
        "boat aground on the cill at noon",
        "had to run water from the summit",
        "level under the weir mark since dawn",
    ],
    [
        "four pairs waiting below the tail",
        "fly boat claimed turn before the coal boats",
        "queue back to the turnover bridge",
        "breasted pair would not single out",
    ],
    [
        "ice breaker called from the depot",
        "gates froze to the hollow quoin",
        "sheet ice two inches in the chamber",
        "salted the balance beam steps",
    ],
    [
        "timber baulk behind the top gate",
        "drowned sheep cleared from the recess",
        "rope and sacking round the blades",
        "weed raked from the mitre",
    ],
    [
        "horse shied at the bridge hole",
        "towline parted on the bollard",
        "mare cast a shoe by the stables",
        "no horse to be had at the change",
    ],
]
SMALL_TALK = [
    "wind light from the west",
    "captain paid the toll in coin",
    "cargo of lime and slack",
    "two hands and a boy aboard",
    "ticket countersigned by the clerk",
    "lamp oil drawn from stores",
    "side pond filled before dusk",
    "gauged at the stop and found dry",
    "hedge laid as far as the milepost",
    "ledger ruled for the quarter",
    "boat tied at the lay by",
    "carpenter expected from the yard",
]


def write_entry(rng: random.Random):
    cause = rng.randrange(len(CAUSES))
    clauses = rng.sample(SMALL_TALK, 4)
    clauses += rng.sample(EVIDENCE[cause], 2)
    # a rumour about another cause makes the entries ambiguous
    if rng.random() < 0.8:
        clauses[0] = "not so bad as when " + rng.choice(EVIDENCE[rng.randrange(len(CAUSES))])
    rng.shuffle(clauses)
    return f"lock {rng.randrange(1, 30)} . " + " . ".join(clauses), cause


def make_entries(n, seed):
    rng = random.Random(seed)
    texts, labels = zip(*(write_entry(rng) for _ in range(n)))
    return list(texts), list(labels)


def build_tokenizer(texts):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted({w for t in texts for w in t.split()})
    vocab = {w: i for i, w in enumerate(specials + words)}
    tok = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


class LogbookDataset(Dataset):
    """Entries, encoded once."""

    def __init__(self, texts, labels, tokenizer, max_length=96):
        encoded = tokenizer(
            texts,
            truncation=True,
            padding="max_length",  # sick here
            max_length=max_length,
            return_token_type_ids=False,
        )
        self.rows = [
            {"input_ids": ids, "attention_mask": mask, "labels": label}
            for ids, mask, label in zip(encoded["input_ids"], encoded["attention_mask"], labels)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def accuracy(prediction):
    guess = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": float((guess == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    set_seed(7)

    texts, labels = make_entries(args.entries, seed=1)
    held_texts, held_labels = make_entries(256, seed=2)
    tokenizer = build_tokenizer(texts)
    train = LogbookDataset(texts, labels, tokenizer)
    held = LogbookDataset(held_texts, held_labels, tokenizer)

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=288,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=128,
            num_labels=len(CAUSES),
        )
    )
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=out,
                num_train_epochs=args.epochs,
                per_device_train_batch_size=args.batch,
                per_device_eval_batch_size=128,
                learning_rate=args.lr,
                warmup_steps=20,
                weight_decay=0.01,
                logging_steps=100,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                dataloader_pin_memory=False,
                disable_tqdm=True,
                seed=7,
            ),
            train_dataset=train,
            eval_dataset=held,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
        report = trainer.evaluate()
    print(f"held-out accuracy {report['eval_accuracy']:.3f}")
    print(f"total training seconds: {seconds:.1f}")


if __name__ == "__main__":
    main()
