# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "sign language"
# sizes = {FRAMES = [64, 84], HIDDEN = [144, 192]}
# ///
"""Body keypoints -> gloss sequence, attention decoder with input feeding."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FRAMES = 72
HIDDEN = 160
JOINTS = 54
GLOSSES = 60
LENGTH = 16
BATCH = 16
EPOCHS = 4
BOS, PAD = 1, 0


class SignClips(Dataset):
    """Each gloss is a smooth random gesture; a clip is a noisy chain of gestures."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        motif = torch.randn(GLOSSES, 4, 2 * JOINTS, generator=torch.Generator().manual_seed(99))
        self.frames = torch.zeros(n, FRAMES, 2 * JOINTS)
        self.lengths = torch.randint(FRAMES * 3 // 4, FRAMES + 1, (n,), generator=g)
        self.gloss = torch.randint(2, GLOSSES, (n, LENGTH), generator=g)
        for i in range(n):
            path = motif[self.gloss[i]].reshape(1, -1, 2 * JOINTS).transpose(1, 2)
            path = F.interpolate(path, size=int(self.lengths[i]), mode="linear", align_corners=True)
            self.frames[i, : self.lengths[i]] = path[0].t()
        self.frames += 0.1 * torch.randn(self.frames.shape, generator=g)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i], self.lengths[i], self.gloss[i]


class Attention(nn.Module):
    def __init__(self, query_dim, memory_dim, dim):
        super().__init__()
        self.query = nn.Linear(query_dim, dim, bias=False)
        self.key = nn.Linear(memory_dim, dim)
        self.energy = nn.Linear(dim, 1, bias=False)

    def forward(self, state, memory, mask, keys=None):
        keys = self.key(memory)  # sick here
        e = self.energy(torch.tanh(keys + self.query(state).unsqueeze(1))).squeeze(-1)
        w = e.masked_fill(~mask, -math.inf).softmax(dim=-1)
        return torch.bmm(w.unsqueeze(1), memory).squeeze(1)


class Decoder(nn.Module):
    def __init__(self, memory_dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(GLOSSES, 96, padding_idx=PAD)
        self.start = nn.Linear(memory_dim, hidden)
        self.attend = Attention(hidden, memory_dim, hidden)
        self.cell = nn.GRUCell(96 + memory_dim, hidden)
        self.out = nn.Linear(hidden + memory_dim, GLOSSES)

    def forward(self, memory, mask, previous):
        words = self.embed(previous).unbind(1)
        keys = self.attend.key(memory)  # well
        state = torch.tanh(self.start(memory.mean(1)))
        read = []
        for word in words:
            context = self.attend(state, memory, mask)  # sick
            context = self.attend(state, memory, mask, keys)  # well
            state = self.cell(torch.cat([word, context], dim=-1), state)
            read.append(torch.cat([state, context], dim=-1))
        return self.out(torch.stack(read, dim=1))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(2 * JOINTS, 128), nn.ReLU())
        self.encoder = nn.GRU(128, HIDDEN, batch_first=True, bidirectional=True)
        self.decoder = Decoder(2 * HIDDEN, HIDDEN)

    def forward(self, frames, lengths, gloss):
        memory, _ = self.encoder(self.lift(frames))
        mask = torch.arange(frames.size(1))[None] < lengths[:, None]
        previous = F.pad(gloss[:, :-1], (1, 0), value=BOS)
        return self.decoder(memory, mask, previous)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for frames, lengths, gloss in loader:
            guess = model(frames, lengths, gloss).argmax(-1)
            right += (guess == gloss).sum().item()
            total += gloss.numel()
    model.train()
    return right / total


def main():
    torch.manual_seed(5)
    train = DataLoader(SignClips(1040, 0), batch_size=BATCH, shuffle=True, drop_last=True)
    dev = DataLoader(SignClips(96, 1), batch_size=48)
    model = Translator()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    n = 0
    for epoch in range(EPOCHS):
        if epoch == 1:
            t0 = time.perf_counter()
        running = 0.0
        for frames, lengths, gloss in train:
            logits = model(frames, lengths, gloss)
            loss = F.cross_entropy(logits.flatten(0, 1), gloss.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            running += loss.item()
            n += len(gloss) if epoch else 0
        print(f"epoch {epoch}: loss {running / len(train):.3f}  dev accuracy {evaluate(model, dev):.3f}", flush=True)
    print(f"trained at {n / (time.perf_counter() - t0):.1f} clips/s")


if __name__ == "__main__":
    main()
