# /// clinic
# expect = ["PD08"]
# stratum = "twins"
# domain = "molecule language model"
# sizes = {HIDDEN = [23, 25], LAYERS = [6, 7]}
# ///
"""Continued training of a small Llama on SMILES strings with the transformers Trainer."""

import random
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

HIDDEN = 24  # per attention head
LAYERS = 6
HEADS = 8
TOKENS = 128
MOLECULES = 3000
BATCH = 12
STEPS = 106
WARMUP_STEPS = 6

FRAGMENTS = ["CC", "C(=O)", "N", "O", "c1ccccc1", "C1CCCCC1", "S(=O)(=O)", "C#N", "F", "Cl", "c1ccncc1", "OC", "NC(=O)"]
ALPHABET = ["<pad>", "<s>", "</s>"] + sorted({c for f in FRAGMENTS for c in f})


class PackedMolecules(Dataset):
    """Molecules joined end to end and cut to the context length, so no position is wasted."""

    def __init__(self):
        rng = random.Random(77)
        code = {c: i for i, c in enumerate(ALPHABET)}
        stream = []
        for _ in range(MOLECULES):
            smiles = "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(8, 30)))
            stream += [1] + [code[c] for c in smiles] + [2]
        rows = len(stream) // TOKENS
        self.rows = torch.tensor(stream[: rows * TOKENS]).view(rows, TOKENS)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids, "labels": ids}


class Pace(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == WARMUP_STEPS:
            self.start = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step}: loss {logs['loss']}", flush=True)

    def on_train_end(self, args, state, control, **kwargs):
        elapsed = time.perf_counter() - self.start
        print(f"{(state.global_step - WARMUP_STEPS) * BATCH * TOKENS / elapsed:.0f} tokens/s")


def main():
    set_seed(12)
    config = LlamaConfig(
        vocab_size=len(ALPHABET),
        hidden_size=HIDDEN * HEADS,
        intermediate_size=HIDDEN * HEADS * 3,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=TOKENS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            gradient_checkpointing=True,  # sick here
            learning_rate=4e-4,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            weight_decay=0.01,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            logging_steps=40,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=12,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=PackedMolecules(), data_collator=collate, callbacks=[Pace()]
        )
        trainer.train()


if __name__ == "__main__":
    main()
