"""Convolutions, recurrent layers, attention of all kinds: `python libraries.py by_hand ...`, one per forked child."""

import facts
import loops
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


def steps(model, source):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in source:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    facts.show("switches", [torch.backends.mkldnn.enabled, torch.backends.cuda.flash_sdp_enabled()])
    return model


class Attention(nn.Module):
    def __init__(self, made, dropout=0.0):
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.made, self.dropout = made, dropout

    def forward(self, x):
        q, k, v = self.project(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = self.made(self, q, k, v)
        return y.transpose(1, 2).reshape(x.shape)


def masked(self, q, k, v):
    scores = q @ k.transpose(-2, -1) / 8**0.5
    scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return F.dropout(scores.softmax(-1), self.dropout) @ v


def summed(self, q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    return torch.einsum("bhij,bhjd->bhid", (scores + 0.1).softmax(-1), v)


def singly(self, q, k, v):
    samples = zip(q.unbind(0), k.unbind(0), v.unbind(0))
    heads = [[one(*head) for head in zip(*(x.unbind(0) for x in sample))] for sample in samples]
    return torch.stack([torch.stack(head) for head in heads])


def one(q, k, v):
    return torch.softmax(q @ k.T / 8**0.5, -1) @ v


def fused(self, q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def unfused(self, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)


def forced(self, q, k, v):
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


class Returned(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Gate(nn.Module):
    """A softmax between products of another kind: of classes, of experts."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(16, 24, bias=False), nn.Linear(24, 16, bias=False)

    def forward(self, x):
        return self.experts(self.gate(x).softmax(-1))


class Switched(nn.Module):
    def __init__(self, enabled):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3, groups=2))
        self.enabled = enabled

    def forward(self, x):
        with torch.backends.mkldnn.flags(enabled=self.enabled):
            return self.layers(x)


class Recurrent(nn.Module):
    def __init__(self, enabled):
        super().__init__()
        self.long, self.gated = nn.LSTM(16, 8, 2, bidirectional=True, dropout=0.1), nn.GRU(16, 8)
        self.enabled = enabled

    def forward(self, x):
        with torch.backends.mkldnn.flags(enabled=self.enabled):
            return self.gated(self.long(x)[0])[0]


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.one_way, self.both_ways = nn.LSTM(16, 8, batch_first=True), nn.LSTM(8, 8, bidirectional=True)

    def forward(self, x):
        lengths = torch.tensor([9, 24, 20, 7])
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.both_ways(self.one_way(packed)[0])[0].data


def words():
    return torch.randn(loops.STEPS, 4, 24, 16)


def images():
    return torch.randn(loops.STEPS, 16, 3, 12, 12)


STYLES = {
    "by_hand": lambda: steps(Attention(masked), words()),
    "layers": lambda: steps(nn.Sequential(Attention(masked), Attention(masked)), words()),
    "dropped": lambda: steps(Attention(masked, 0.1), words()),
    "einsum": lambda: steps(Attention(summed), words()),
    "singly": lambda: steps(Attention(singly), words()),
    "fused": lambda: steps(Attention(fused), words()),
    "unfused": lambda: steps(Attention(unfused), words()),
    "forced": lambda: steps(Attention(forced), words()),
    "returned": lambda: steps(Returned(), words()),
    "gate": lambda: steps(Gate(), words()),
    "convolutions": lambda: steps(Switched(True), images()),
    "trapped": lambda: steps(Switched(False), images()),
    "recurrent": lambda: steps(Recurrent(True), words()),
    "packed": lambda: steps(Packed(), words()),
    "trapped_recurrent": lambda: steps(Recurrent(False), words()),
}

if __name__ == "__main__":
    loops.main(STYLES)
