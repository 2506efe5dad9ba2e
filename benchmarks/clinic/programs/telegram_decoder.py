# /// clinic
# expect = ["PD07.conversions", "PD10.repeated-work"]
# stratum = "twins"
# domain = "old telegrams"
# ///
# %% [markdown]
# # Telegrams of the overland line, 1880-1914
# From the operator's shorthand (a sequence of code groups) to the words of the delivered telegram.
# Export of the notebook `telegram_decoder.ipynb`.

# %%
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1898)
rng = np.random.default_rng(1898)

CODES, WORDS = 600, 1200
GROUPS, LENGTH = 10, 8
HIDDEN, EMBED = 768, 256
BATCH, STEPS, EVERY = 12, 180, 60
BOS = 0

# %% [markdown]
# ## Corpus
# A code book gives for each code group one of three words, which depends on the group before it.

# %%
book = rng.integers(1, WORDS, size=(CODES, 3))


def write_telegrams(n):
    frequency = 1 / np.arange(5, CODES + 5)
    codes = rng.choice(CODES, size=(n, GROUPS), p=frequency / frequency.sum())
    before = np.roll(codes, 1, axis=1)
    words = book[codes, before % 3][:, :LENGTH]
    garbled = rng.random(codes.shape) < 0.03
    codes = np.where(garbled, rng.integers(0, CODES, size=codes.shape), codes)
    return torch.from_numpy(codes), torch.from_numpy(words)


train_codes, train_words = write_telegrams(12_000)
valid_codes, valid_words = write_telegrams(512)
print("telegrams:", tuple(train_codes.shape), "->", tuple(train_words.shape))

# %% [markdown]
# ## Model
# Encoder: embedding and a convolution. Decoder: a recurrent cell with attention on the code groups.


# %%
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CODES, EMBED)
        self.place = nn.Parameter(0.02 * torch.randn(GROUPS, EMBED))
        self.mix = nn.Conv1d(EMBED, HIDDEN, 3, padding=1)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, codes):
        x = self.embed(codes) + self.place
        return self.norm(F.gelu(self.mix(x.transpose(1, 2)).transpose(1, 2)))


class Operator(nn.Module):
    """One step of the decoder."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.gates_x = nn.Linear(EMBED + HIDDEN, 4 * HIDDEN)
        self.gates_h = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.merge = nn.Linear(2 * HIDDEN, HIDDEN)

    @torch.autocast("cpu", dtype=torch.bfloat16)  # sick here
    def forward(self, word, h, c, keys):
        scores = torch.einsum("bh,bgh->bg", self.query(h), keys) / HIDDEN**0.5
        context = torch.einsum("bg,bgh->bh", scores.softmax(-1), keys)
        gates = self.gates_x(torch.cat([word, context], dim=-1)) + self.gates_h(h)
        i, f, g, o = gates.float().chunk(4, dim=-1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return torch.tanh(self.merge(torch.cat([h, context], dim=-1))), h, c


class TelegramModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.words = nn.Embedding(WORDS, EMBED)
        self.operator = Operator()
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(HIDDEN, WORDS)

    @torch.autocast("cpu", dtype=torch.bfloat16)  # well
    def forward(self, codes, words):
        keys = self.encoder(codes)
        h = keys.mean(1).float()
        c = torch.zeros_like(h)
        given = torch.cat([torch.full_like(words[:, :1], BOS), words[:, :-1]], dim=1)
        given = self.drop(self.words(given))
        outputs = []
        for t in range(words.size(1)):
            out, h, c = self.operator(given[:, t], h, c, keys)
            outputs.append(out)
        return self.head(torch.stack(outputs, dim=1).float())


model = TelegramModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.01, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")

# %% [markdown]
# ## Training


# %%
def loss_of(codes, words):
    logits = model(codes, words)
    return F.cross_entropy(logits.float().flatten(0, 1), words.flatten()), logits


@torch.no_grad()
def read_valid():
    model.eval()
    right = total = 0
    for codes, words in zip(valid_codes.split(128), valid_words.split(128)):
        _, logits = loss_of(codes, words)
        right += (logits.argmax(-1) == words).sum().item()
        total += words.numel()
    model.train()
    return right / total


# %%
history = []
began = time.perf_counter()
for step in range(1, STEPS + 1):
    pick = torch.randint(0, len(train_codes), (BATCH,))
    loss, _ = loss_of(train_codes[pick], train_words[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    history.append(loss.detach())
    if step % EVERY == 0:
        recent = torch.stack(history[-EVERY:]).mean().item()
        print(f"step {step}: loss {recent:.3f}, words read right {read_valid():.3f}")
took = time.perf_counter() - began

# %%
rate = STEPS * BATCH / took
print(f"{rate:.1f} telegrams/s")
