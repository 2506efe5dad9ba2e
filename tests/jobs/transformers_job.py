"""A Hugging Face Trainer with a tiny random model and a list of samples."""

import os
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import facts
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

facts.seed()
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
)
model = BertForSequenceClassification(config)
samples = [{"input_ids": torch.randint(0, 50, (12,)), "labels": torch.tensor(i % 2)} for i in range(96)]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    num_train_epochs=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    logging_strategy="no",
    use_cpu=True,
    seed=1,
)
state = Trainer(model=model, args=arguments, train_dataset=samples).train()
print(facts.digest(model.parameters()), state.global_step, file=sys.stdout)
