# /// clinic
# expect = ["PD10.repeated-work", "PD10.same-result"]
# stratum = "twins"
# domain = "ant trails"
# ///
"""Pointer network that puts camera fixes of a foraging trail back into walking order.

Each sample is a set of ant sightings along one pheromone trail (x, y, pheromone strength, head direction as sin/cos),
shuffled. The network points to the sightings one after the other, from the nest entrance to the food source.
"""

import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_trails(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, length).expand(n, length)
    t = (t + 0.3 / length * torch.randn(n, length, generator=g)).clamp(0, 1).sort(dim=1).values
    heading = torch.rand(n, 1, generator=g) * 2 * math.pi
    bend = torch.randn(n, 1, generator=g) * 1.2
    wave = torch.rand(n, 1, generator=g) * 3 + 1
    angle = heading + bend * t + 0.4 * torch.sin(2 * math.pi * wave * t)
    step = torch.diff(t, dim=1, prepend=torch.zeros(n, 1))
    x = (step * torch.cos(angle)).cumsum(1) + 0.01 * torch.randn(n, length, generator=g)
    y = (step * torch.sin(angle)).cumsum(1) + 0.01 * torch.randn(n, length, generator=g)
    pheromone = torch.exp(-1.5 * t) + 0.05 * torch.randn(n, length, generator=g)
    feats = torch.stack([x, y, pheromone, torch.sin(angle), torch.cos(angle)], dim=-1)
    shuffle = torch.rand(n, length, generator=g).argsort(1)
    feats = feats.gather(1, shuffle.unsqueeze(-1).expand_as(feats))
    order = shuffle.argsort(1)
    return TensorDataset(feats, order)


class AdditiveAttention(nn.Module):
    """u_i = v . tanh(W_ref e_i + W_q q)   (Vinyals et al. 2015)"""

    def __init__(self, hidden):
        super().__init__()
        self.w_ref = nn.Linear(hidden, hidden, bias=False)
        self.w_q = nn.Linear(hidden, hidden)
        self.v = nn.Linear(hidden, 1, bias=False)

    def forward(self, query, enc, visited):  # sick
        ref = self.w_ref(enc)  # sick here

    def forward(self, query, ref, visited):  # well
        u = self.v(torch.tanh(ref + self.w_q(query).unsqueeze(1))).squeeze(-1)
        return u.masked_fill(visited, float("-inf"))


class TrailPointer(nn.Module):
    def __init__(self, n_feats=5, hidden=256):
        super().__init__()
        self.embed = nn.Linear(n_feats, hidden)
        self.encoder = nn.LSTM(hidden, hidden // 2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(hidden, hidden)
        self.glimpse = AdditiveAttention(hidden)
        self.pointer = AdditiveAttention(hidden)
        self.mix = nn.Linear(2 * hidden, hidden)
        self.start = nn.Parameter(torch.randn(hidden) * 0.1)

    def forward(self, feats, order=None):
        """Logits (B, L, L). With `order` the decoder is teacher forced, else it follows its own choices."""
        batch, length, _ = feats.shape
        emb = self.embed(feats)
        enc, _ = self.encoder(emb)
        glimpse_ref = self.glimpse.w_ref(enc)  # well
        pointer_ref = self.pointer.w_ref(enc)  # well
        h = enc.mean(1)
        c = torch.zeros_like(h)
        inp = self.start.expand(batch, -1)
        visited = torch.zeros(batch, length, dtype=torch.bool)
        rows = torch.arange(batch)
        logits = []
        for i in range(length):
            h, c = self.cell(inp, (h, c))
            weights = F.softmax(self.glimpse(h, enc, visited), dim=-1)  # sick
            weights = F.softmax(self.glimpse(h, glimpse_ref, visited), dim=-1)  # well
            context = torch.bmm(weights.unsqueeze(1), enc).squeeze(1)
            query = torch.tanh(self.mix(torch.cat([h, context], dim=-1)))
            step_logits = self.pointer(query, enc, visited)  # sick
            step_logits = self.pointer(query, pointer_ref, visited)  # well
            logits.append(step_logits)
            chosen = order[:, i] if order is not None else step_logits.argmax(-1)
            visited = visited.scatter(1, chosen.unsqueeze(1), True)
            inp = emb[rows, chosen]
        return torch.stack(logits, dim=1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits, total = 0, 0
    for feats, order in loader:
        route = model(feats).argmax(-1)
        hits += (route == order).sum().item()
        total += order.numel()
    model.train()
    return hits / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--length", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--trails", type=int, default=1280)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=11)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    train = make_trails(args.trails, args.length, args.seed)
    val = make_trails(200, args.length, args.seed + 1)
    train_loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=100)

    model = TrailPointer(hidden=args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{sum(q.numel() for q in model.parameters()) / 1e3:.0f}k parameters")

    seen = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for feats, order in train_loader:
            logits = model(feats, order)
            loss = F.cross_entropy(logits.flatten(0, 1), order.flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            running += loss.item()
            seen += feats.size(0)
        acc = evaluate(model, val_loader)
        print(f"epoch {epoch + 1}  loss {running / len(train_loader):.3f}  sightings in the right place {acc:.3f}")
    rate = seen / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
