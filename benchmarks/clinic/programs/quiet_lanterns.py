# /// clinic
# expect = ["PD03.samples-made-again", "PD03.same-result", "PD03.transform"]
# stratum = "twins"
# domain = "support tickets"
# ///
"""Routes support tickets to one of eight desks with a small DistilBERT trained from scratch."""

import random
import time

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
from transformers import (
    DataCollatorWithPadding,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

DESKS = ["billing", "login", "shipping", "returns", "mobile", "privacy", "network", "printer"]


def make_tickets(count, rng):
    """Tickets as text, the quoted mail trail below the message, and the desk each belongs to."""
    syllables = ["ka", "lo", "mi", "ter", "ven", "sol", "pra", "du", "nex", "bri", "gol", "shi"]
    common = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(1500)]
    special = {d: ["".join(rng.choices(syllables, k=4)) for _ in range(20)] for d in DESKS}
    texts, labels = [], []
    for _ in range(count):
        label = rng.randrange(len(DESKS))
        words = rng.choices(common, k=rng.randint(40, 48)) + rng.choices(special[DESKS[label]], k=8)
        rng.shuffle(words)
        trail = "\n> ".join(" ".join(rng.choices(common, k=12)) for _ in range(rng.randint(16, 24)))
        texts.append(
            f"Hello, {' '.join(words[:30])}. {' '.join(words[30:])}!\nTicket no. {rng.randint(1, 99999)}\n> {trail}"
        )
        labels.append(label)
    return texts, labels


def build_tokenizer(texts):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
        ),
    )
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


class TicketDataset(Dataset):
    def __init__(self, texts, labels, tokenizer, max_length=72):
        self.texts = texts
        self.labels = labels
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.encoded = tokenizer(texts, truncation=True, max_length=max_length).data  # well

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        item = self.tokenizer(self.texts[i], truncation=True, max_length=self.max_length)  # sick here
        item = {key: values[i] for key, values in self.encoded.items()}  # well
        return {"input_ids": item["input_ids"], "attention_mask": item["attention_mask"], "labels": self.labels[i]}


class Meter(TrainerCallback):
    begin = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.begin is None:
            self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.end = time.perf_counter()


def main():
    set_seed(7)
    texts, labels = make_tickets(3328, random.Random(7))
    tokenizer = build_tokenizer(texts[:2000])
    train_set = TicketDataset(texts, labels, tokenizer)
    model = DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=72,
            dim=64,
            hidden_dim=128,
            n_layers=2,
            n_heads=4,
            dropout=0.0,
            attention_dropout=0.0,
            seq_classif_dropout=0.0,
            num_labels=len(DESKS),
        )
    )
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=64,
        num_train_epochs=3,
        learning_rate=1e-3,
        logging_steps=52,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=7,
    )
    meter = Meter()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_set,
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[meter],
    )
    trainer.train()
    seen = trainer.state.global_step * args.per_device_train_batch_size
    print(f"{seen / (meter.end - meter.begin):.1f} samples/s")


if __name__ == "__main__":
    main()
