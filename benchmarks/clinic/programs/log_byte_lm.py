# /// clinic
# expect = ["PD08.needless-checkpointing"]
# stratum = "twins"
# domain = "language models"
# ///
"""Pre-train a small byte-level Llama on service logs, to score unusual lines by their perplexity."""

import random

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


BLOCK = 128
VOCAB = 260  # 256 bytes, bos, eos, pad, unk
BOS = 256

SERVICES = ["auth", "billing", "gateway", "search", "mailer", "thumbs", "ledger"]
VERBS = ["GET", "POST", "PUT", "DELETE"]
PATHS = ["/v1/users", "/v1/users/me", "/v2/orders", "/v2/orders/items", "/healthz", "/v1/invoices", "/static/app.js"]
LEVELS = ["INFO"] * 12 + ["WARN"] * 2 + ["ERROR"]
REASONS = ["upstream timed out", "connection reset by peer", "token expired", "row lock wait exceeded"]


def log_line(rng, second):
    level = rng.choice(LEVELS)
    head = f"2024-03-11T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z {level} {rng.choice(SERVICES)}"
    if level == "ERROR":
        return f"{head} {rng.choice(REASONS)} req={rng.getrandbits(32):08x}"
    status = rng.choice([200, 200, 200, 201, 204, 304, 404])
    return f"{head} {rng.choice(VERBS)} {rng.choice(PATHS)} {status} {rng.randint(1, 900)}ms"


class LogBlocks(Dataset):
    """All lines joined, cut to blocks of BLOCK tokens that each begin with BOS."""

    def __init__(self, lines, seed):
        rng = random.Random(seed)
        second, text = rng.randint(0, 80000), []
        for _ in range(lines):
            second += rng.randint(0, 3)
            text.append(log_line(rng, second))
        raw = torch.frombuffer(bytearray("\n".join(text).encode()), dtype=torch.uint8).long()
        blocks = raw[: len(raw) // (BLOCK - 1) * (BLOCK - 1)].view(-1, BLOCK - 1)
        self.blocks = torch.cat([torch.full((len(blocks), 1), BOS), blocks], dim=1)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return self.blocks[index]


def collate(blocks):
    ids = torch.stack(blocks)
    return {"input_ids": ids, "labels": ids}


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=BLOCK,
        bos_token_id=BOS,
        eos_token_id=257,
        pad_token_id=258,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def recipe():
    settings = dict(
        output_dir="/tmp/log_byte_lm",
        use_cpu=True,
        max_steps=200,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=1e-3,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        weight_decay=0.05,
        max_grad_norm=1.0,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        seed=11,
    )
    settings.update(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})  # sick here
    settings.update(gradient_checkpointing=False)  # well
    return TrainingArguments(**settings)


@torch.no_grad()
def line_perplexity(model, line):
    model.eval()
    ids = torch.tensor([[BOS, *line.encode()]])[:, :BLOCK]
    return model(input_ids=ids, labels=ids).loss.exp().item()


def main():
    set_seed(11)
    train_set = LogBlocks(6000, seed=1)
    valid_set = LogBlocks(150, seed=2)
    model = build_model()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(train_set)} blocks")
    trainer = Trainer(
        model=model,
        args=recipe(),
        train_dataset=train_set,
        eval_dataset=valid_set,
        data_collator=collate,
    )
    trainer.train()
    print("validation loss", round(trainer.evaluate()["eval_loss"], 4))
    for line in (
        "2024-03-11T10:20:30Z INFO search GET /healthz 200 12ms",
        "2024-03-11T10:20:31Z kernel: Out of memory: Killed process 4123 (java)",
    ):
        print(f"{line_perplexity(model, line):8.2f}  {line}")


if __name__ == "__main__":
    main()
