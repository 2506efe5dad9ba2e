# /// clinic
# expect = ["PD10.einsum-order"]
# stratum = "twins"
# domain = "protein contacts"
# ///
"""Contact map prediction from single sequences: encoder, pair projection, convolutional refinement."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

ALPHABET = 21


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--proteins", type=int, default=480)
    parser.add_argument("--length", type=int, default=112)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--eval-every", type=int, default=90)
    parser.add_argument("--lr", type=float, default=6e-4)
    return parser.parse_args()


@torch.no_grad()
def fold_random_chains(count, length, generator):
    """Smooth random walks in space; residues are drawn from how buried a position is."""
    directions = torch.randn(count, length, 3, generator=generator)
    kernel = torch.ones(3, 1, 5) / 5
    smooth = F.conv1d(directions.transpose(1, 2), kernel, padding=2, groups=3).transpose(1, 2)
    steps = 3.8 * F.normalize(smooth, dim=-1)
    coordinates = steps.cumsum(1)
    coordinates = 0.45 * (coordinates - coordinates.mean(1, keepdim=True))
    distance = torch.cdist(coordinates, coordinates)
    contacts = distance < 8.0
    burial = contacts.sum(-1, keepdim=True) / 12.0
    preference = torch.linspace(-2, 2, ALPHABET)
    odds = burial.clamp(0, 2).sub(1) * preference
    residues = torch.multinomial(odds.softmax(-1).flatten(0, 1), 1, generator=generator).view(count, length)
    return residues, contacts.float()


class PairProjection(nn.Module):
    """Every pair (i, j) gets a bilinear form of the two residue representations per channel."""

    def __init__(self, width, rank, channels):
        super().__init__()
        self.left = nn.Linear(width, rank)
        self.right = nn.Linear(width, rank)
        self.mix = nn.Parameter(torch.randn(rank, rank, channels) / rank)
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, hidden):
        left, right = self.left(hidden), self.right(hidden)
        pair = torch.einsum("bid,bje,dec->bijc", left, right, self.mix)  # sick here
        pair = torch.einsum("bid,dec,bje->bijc", left, self.mix, right)  # well
        return (pair + self.bias).permute(0, 3, 1, 2).contiguous()


class Refinement(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, pair):
        return pair + self.conv2(F.relu(self.conv1(F.relu(pair))))


class ContactNet(nn.Module):
    def __init__(self, length, width=160, depth=4, rank=16, channels=16, blocks=2):
        super().__init__()
        self.residue = nn.Embedding(ALPHABET, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.pairs = PairProjection(width, rank, channels)
        self.refine = nn.Sequential(*[Refinement(channels) for _ in range(blocks)])
        self.out = nn.Conv2d(channels, 1, 1)

    def forward(self, residues):
        hidden = self.encoder(self.residue(residues) + self.position)
        logits = self.out(self.refine(self.pairs(hidden))).squeeze(1)
        return 0.5 * (logits + logits.transpose(1, 2))


class Experiment:
    def __init__(self, options):
        self.options = options
        generator = torch.Generator().manual_seed(21)
        self.residues, self.contacts = fold_random_chains(options.proteins, options.length, generator)
        self.held_out = options.proteins // 10
        index = torch.arange(options.length)
        self.far = ((index[:, None] - index).abs() >= 6).float()
        self.net = ContactNet(options.length)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=options.lr, weight_decay=0.01, fused=True)
        self.generator = generator

    def loss(self, logits, truth):
        cost = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        return (cost * self.far).sum() / (self.far.sum() * len(truth))

    def train_step(self):
        options = self.options
        rows = torch.randint(self.held_out, options.proteins, (options.batch,), generator=self.generator)
        loss = self.loss(self.net(self.residues[rows]), self.contacts[rows])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def precision_at_length(self):
        self.net.eval()
        hits, length = [], self.options.length
        upper = torch.triu(self.far).bool()
        for rows in torch.arange(self.held_out).split(8):
            logits = self.net(self.residues[rows]).masked_fill(~upper, -torch.inf).flatten(1)
            best = logits.topk(length, dim=1).indices
            hits.append(self.contacts[rows].flatten(1).gather(1, best).mean(1))
        self.net.train()
        return torch.cat(hits).mean().item()

    def run(self):
        start = None
        for step in range(1, self.options.steps + 1):
            loss = self.train_step()
            if step == 5:
                start = time.perf_counter()
            if step % self.options.eval_every == 0:
                print(f"step {step}: loss {loss.item():.4f}, P@L {self.precision_at_length():.3f}")
        return (self.options.steps - 5) / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(21)
    print(f"{Experiment(parse_options()).run():.2f} steps/s")
