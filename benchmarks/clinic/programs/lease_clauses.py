# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "classification of lease clauses by a transformer, two ranks (plain loop, DDP)"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Which kind of clause is this? A small transformer over the clauses of lease contracts, on two ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


WORDS = 4000
KINDS = 12
CLAUSES = 4320
LONGEST = 192
BATCH = 24
EPOCHS = 2
WIDTH = 128


def make_clauses(seed=0):
    """Clauses of 8 to 192 words, most of them short; each kind has words of its own."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (8 + (LONGEST - 8) * torch.rand(CLAUSES, generator=generator) ** 1.5).long()
    kinds = torch.randint(0, KINDS, (CLAUSES,), generator=generator)
    common = torch.randint(1, WORDS, (CLAUSES, LONGEST), generator=generator)
    special = 1 + kinds[:, None] * 30 + torch.randint(0, 30, (CLAUSES, LONGEST), generator=generator)
    telling = torch.rand(CLAUSES, LONGEST, generator=generator) < 0.25
    words = torch.where(telling, special, common)
    words[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return words, lengths, kinds


def plan_batches(lengths, rank, ranks):
    """Batches of clauses that are about equally long, so that little is padded."""
    order = torch.argsort(lengths)
    batches = order[: len(order) // (BATCH * ranks) * BATCH * ranks].view(-1, BATCH)
    each = len(batches) // ranks  # here
    return batches[rank * each : (rank + 1) * each]  # sick here
    return batches[rank::ranks]  # well


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        count, length, width = x.shape
        qkv = self.qkv(self.before(x)).view(count, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.mix(seen.transpose(1, 2).reshape(count, length, width))
        return x + self.feed(x)


class ClauseClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer(WIDTH, 4) for _ in range(2))
        self.out = nn.Linear(WIDTH, KINDS)

    def forward(self, words):
        real = words != 0
        x = self.words(words) + self.places.weight[: words.shape[1]]
        for layer in self.layers:
            x = layer(x, real[:, None, None, :])
        weight = real.unsqueeze(-1).float()
        return self.out((x * weight).sum(1) / weight.sum(1))


def take(data, rows):
    words, lengths, kinds = data
    return words[rows, : lengths[rows].max()], kinds[rows]


def train(model, data, batches, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shuffler = torch.Generator().manual_seed(1)
    start, step = time.time(), 0
    running = torch.zeros(2)
    for epoch in range(EPOCHS):
        for index in torch.randperm(len(batches), generator=shuffler).tolist():
            words, kinds = take(data, batches[index])
            logits = model(words)
            loss = F.cross_entropy(logits, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                running += torch.stack([loss, (logits.argmax(1) == kinds).float().mean()])
            step += 1
            if step % 30 == 0:
                if rank == 0:
                    mean_loss, accuracy = (running / 30).tolist()
                    print(
                        f"epoch {epoch}  step {step}  loss {mean_loss:.3f}  accuracy {accuracy:.3f}  "
                        f"{time.time() - start:.1f} s",
                        flush=True,
                    )
                running.zero_()


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = make_clauses()
    batches = plan_batches(data[1], rank, ranks)  # here
    model = DistributedDataParallel(ClauseClassifier())
    train(model, data, batches, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
