"""A healthy transformers Trainer job: a tiny random BERT, 40 steps of 2 micro-batches."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(vocab_size=100, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
data = [{"input_ids": torch.randint(100, (64,)), "labels": index % 2} for index in range(160)]
trainer = Trainer(
    BertForSequenceClassification(config),
    TrainingArguments(
        sys.argv[1],
        max_steps=40,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    ),
    train_dataset=data,
)
trainer.train()
print("steps", trainer.state.global_step)
