# /// clinic
# expect = ["PD17"]
# endless = true
# stratum = "twins"
# domain = "language models"
# ///
"""Low-rank adapters on a small causal language model over synthetic contract clauses."""

import math
import tempfile
import time

import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.pytorch_utils import Conv1D

VOCAB, CONTEXT, RANK = 2000, 64, 8
FIRST_TUNED = 3  # the lower blocks stay as they are
TARGETS = ("c_attn", "c_proj")


class ClauseCorpus(Dataset):
    """Clauses are sampled from a sparse Markov chain, one chain per contract type."""

    def __init__(self, n=2048, kinds=4, seed=5):
        g = torch.Generator().manual_seed(seed)
        successors = torch.randint(0, VOCAB, (kinds, VOCAB, 4), generator=g)
        kind = torch.randint(0, kinds, (n,), generator=g)
        tokens = torch.empty(n, CONTEXT, dtype=torch.long)
        tokens[:, 0] = torch.randint(0, VOCAB, (n,), generator=g)
        for t in range(1, CONTEXT):
            pick = torch.randint(0, 4, (n,), generator=g)
            tokens[:, t] = successors[kind, tokens[:, t - 1], pick]
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


class Adapter(nn.Module):
    """y = base(x) + scale * up(down(x)); `up` starts at zero, so the model starts out unchanged."""

    def __init__(self, base, rank, alpha=16.0):
        super().__init__()
        n_in, n_out = base.weight.shape  # Conv1D keeps its weight transposed
        self.base = base
        self.adapter_down = nn.Parameter(torch.randn(n_in, rank) / math.sqrt(n_in))
        self.adapter_up = nn.Parameter(torch.zeros(rank, n_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.adapter_down) @ self.adapter_up * self.scale


def inject(model, rank):
    """Put an adapter around every targeted projection."""
    sites = [
        (parent, name)
        for block in model.transformer.h[FIRST_TUNED:]
        for parent in block.modules()
        for name, child in parent.named_children()
        if isinstance(child, Conv1D) and name in TARGETS
    ]
    model.requires_grad_(False)  # well
    for parent, name in sites:
        setattr(parent, name, Adapter(getattr(parent, name), rank))
    return len(sites)


def adapter_groups(model, decay):
    up, down = [], []
    for name, p in model.named_parameters():
        if name.endswith("adapter_up"):
            up.append(p)
        elif name.endswith("adapter_down"):
            down.append(p)
    return [{"params": up, "weight_decay": 0.0, "lr": 4e-3}, {"params": down, "weight_decay": decay}]


class Pace(TrainerCallback):
    def __init__(self, every=20):
        self.every = every

    def on_train_begin(self, args, state, control, **kw):
        self.since = time.time()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step % self.every == 0:
            loss = next((h["loss"] for h in reversed(state.log_history) if "loss" in h), float("nan"))
            rate = self.every / (time.time() - self.since)
            print(f"step {state.global_step} loss {float(loss):.4f} {rate:.2f} steps/s", flush=True)
            self.since = time.time()


def main():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=CONTEXT,
        n_embd=256,
        n_layer=6,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    n = inject(model, RANK)
    # only the adapters are tuned, the base stays as it was delivered
    optimizer = torch.optim.AdamW(adapter_groups(model, 0.01), lr=1e-3)  # here
    print(
        f"{n} adapters, {sum(p.numel() for g in optimizer.param_groups for p in g['params'])} tuned weights", flush=True
    )

    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=8,
            max_steps=20_000,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            seed=1,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=ClauseCorpus(), optimizers=(optimizer, None), callbacks=[Pace()]
        )
        trainer.train()


if __name__ == "__main__":
    main()
