# /// clinic
# expect = ["PD02.attention-by-hand"]
# stratum = "twins"
# domain = "bytes of functions"
# ///
"""Next-byte prediction on small generated functions with a one-layer Llama, to see that the code corpus trains."""

import random
import time

import torch
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

BLOCK = 384
EOS = 256


def make_source(rng):
    """One short function as text."""
    names = ["total", "left", "right", "item", "count", "index", "value", "limit", "score", "key"]
    name, a, b = rng.choice(names), *rng.sample(names, 2)
    lines = [f"def {name}_{rng.randint(0, 99)}({a}, {b}):"]
    for _ in range(rng.randint(2, 6)):
        c = rng.choice(names)
        lines.append(
            rng.choice(
                [
                    f"    {c} = {a} {rng.choice('+-*/')} {b}",
                    f"    if {a} > {rng.randint(0, 50)}:\n        {c} = {b}",
                    f"    for {c} in range({b}):\n        {a} += {c}",
                    f"    {a} = max({a}, {b})",
                ]
            )
        )
    return "\n".join(lines + [f"    return {rng.choice([a, b])}", ""])


class CodeBlocks(Dataset):
    def __init__(self, blocks, seed):
        rng = random.Random(seed)
        stream = []
        while len(stream) < blocks * BLOCK:
            stream += list(make_source(rng).encode()) + [EOS]
        self.ids = torch.tensor(stream[: blocks * BLOCK]).view(blocks, BLOCK)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Meter(TrainerCallback):
    begin = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.begin is None:
            self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.end = time.perf_counter()


def main():
    set_seed(3)
    attention = "eager"  # sick here
    attention = "sdpa"  # well
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=BLOCK,
        bos_token_id=EOS,
        eos_token_id=EOS,
        use_cache=False,
        attn_implementation=attention,  # here
    )
    model = LlamaForCausalLM(config)
    args = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=16,
        num_train_epochs=1,
        learning_rate=2e-3,
        warmup_steps=10,
        logging_steps=30,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=3,
    )
    meter = Meter()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=CodeBlocks(1920, seed=3),
        data_collator=default_data_collator,
        callbacks=[meter],
    )
    trainer.train()
    seen = trainer.state.global_step * args.per_device_train_batch_size
    print(f"{seen / (meter.end - meter.begin):.1f} samples/s")


if __name__ == "__main__":
    main()
