# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "text classification with Accelerate, maintenance tickets"
# ///
"""Fine-tunes the top block of a small BERT with Accelerate to route maintenance tickets to teams."""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

TEAMS = ["electrical", "hydraulics", "controls", "civil", "software", "stores"]
VOCAB, LENGTH = 3000, 48
TUNED = ("bert.encoder.layer.3.", "bert.pooler.", "classifier.")


class Tickets(Dataset):
    """Tokenised tickets held in tensors."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(TEAMS), (n,), generator=g)
        common = torch.randint(10, VOCAB, (n, LENGTH), generator=g)
        jargon = 10 + self.labels[:, None] * 60 + torch.randint(0, 60, (n, LENGTH), generator=g)
        use = torch.rand(n, LENGTH, generator=g) < 0.25
        self.input_ids = torch.where(use, jargon, common)
        self.input_ids[:, 0] = 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.input_ids[i], "labels": self.labels[i]}

    def __getitems__(self, indices):
        return self[torch.tensor(indices)]


def make_loader(dataset, batch_size, shuffle):
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, drop_last=shuffle, collate_fn=dict)


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=160,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=640,
        max_position_embeddings=64,
        num_labels=len(TEAMS),
    )
    return BertForSequenceClassification(config)


def build_optimizer(model, lr, total_steps):
    tuned = [p for n, p in model.named_parameters() if n.startswith(TUNED)]  # sick here
    for name, p in model.named_parameters():  # well
        p.requires_grad_(name.startswith(TUNED))  # well
    tuned = [p for p in model.parameters() if p.requires_grad]  # well
    optimizer = torch.optim.AdamW(tuned, lr=lr, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, total_steps // 10, total_steps)
    return tuned, optimizer, schedule


@torch.no_grad()
def accuracy(accelerator, model, loader):
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    seen = 0
    for batch in loader:
        pred = model(input_ids=batch["input_ids"]).logits.argmax(-1)
        hits += (pred == batch["labels"]).sum()
        seen += len(pred)
    model.train()
    return accelerator.reduce(hits).item() / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--tickets", type=int, default=2560)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(21)
    train_loader = make_loader(Tickets(args.tickets, 0), args.batch_size, shuffle=True)
    valid_loader = make_loader(Tickets(256, 1), 64, shuffle=False)
    total_steps = args.epochs * len(train_loader)

    model = build_model()
    tuned, optimizer, schedule = build_optimizer(model, args.lr, total_steps)
    model, optimizer, train_loader, valid_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, valid_loader, schedule
    )
    accelerator.print(f"tuning {sum(p.numel() for p in tuned):,} parameters")

    model.train()
    step, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(tuned, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step == 5:
                start = time.perf_counter()
            if step % 40 == 0:
                accelerator.print(f"step {step:4d}  loss {loss.item():.4f}")
        accelerator.print(f"epoch {epoch}  accuracy {accuracy(accelerator, model, valid_loader):.3f}")
    accelerator.print(f"{(step - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
