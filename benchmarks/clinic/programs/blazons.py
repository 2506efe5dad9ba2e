# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "character-level GPT writing heraldic blazons"
# ///
# Blazons: a small character-level GPT that writes coats of arms ("Azure, a lion rampant or, a chief argent").
# Was blazons.ipynb; follows the "let's build GPT from scratch" lecture.
import random
import time

import torch
import torch.nn as nn
from torch.nn import functional as F


# ---- settings
batch_size = 16
block_size = 128
max_iters = 200
eval_interval = 100
eval_iters = 2
learning_rate = 1e-3
n_embd = 128
n_head = 8
n_layer = 4
torch.manual_seed(1337)
random.seed(1337)

# ---- corpus: blazons out of a little grammar of tinctures, ordinaries and charges
metals = ["or", "argent"]
colours = ["azure", "gules", "sable", "vert", "purpure", "tenne"]
furs = ["ermine", "vair", "erminois", "potent"]
ordinaries = ["a fess", "a bend", "a pale", "a chevron", "a cross", "a saltire", "a chief", "a bordure", "a pall"]
lines = ["", " engrailed", " wavy", " embattled", " indented", " invected", " dancetty", " nebuly"]
beasts = ["lion", "griffin", "stag", "wyvern", "boar", "eagle", "bear", "talbot", "unicorn"]
attitudes = ["rampant", "passant", "statant", "sejant", "couchant", "salient", "displayed"]
things = ["mullets", "crescents", "escallops", "fleurs-de-lys", "roundels", "billets", "martlets", "keys", "towers"]
numbers = ["two", "three", "four", "five", "six"]


def blazon():
    field = random.choice(colours + furs)
    metal = random.choice(metals)
    words = [field.capitalize()]
    draw = random.random()
    if draw < 0.35:
        words.append(f"a {random.choice(beasts)} {random.choice(attitudes)} {metal}, armed {random.choice(colours)}")
    elif draw < 0.7:
        words.append(f"{random.choice(ordinaries)}{random.choice(lines)} {metal}")
        words.append(f"between {random.choice(numbers)} {random.choice(things)} {random.choice(metals)}")
    else:
        words.append(f"{random.choice(numbers)} {random.choice(things)} {metal}")
        words.append(f"{random.choice(ordinaries)}{random.choice(lines)} {random.choice(metals + furs)}")
    if random.random() < 0.2:
        words.append(f"a label of {random.choice(numbers)} points {random.choice(metals)}")
    return ", ".join(words) + ".\n"


text = "".join(blazon() for _ in range(12000))
chars = sorted(set(text))
vocab_size = len(chars)
stoi = {c: i for i, c in enumerate(chars)}
itos = dict(enumerate(chars))


def encode(s):
    return [stoi[c] for c in s]


def decode(ids):
    return "".join(itos[i] for i in ids)


data = torch.tensor(encode(text), dtype=torch.long)
cut = int(0.9 * len(data))
train_data, val_data = data[:cut], data[cut:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    ix = torch.randint(len(source) - block_size - 1, (batch_size,)).tolist()
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + block_size + 1] for i in ix])
    return x, y


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "val"):
        out[split] = sum(model(*get_batch(split))[1].item() for _ in range(eval_iters)) / eval_iters
    model.train()
    return out


# ---- model
class Head(nn.Module):
    """One head of self-attention."""

    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.shape
        k, q, v = self.key(x), self.query(x), self.value(x)  # here
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5  # here
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # here
        wei = F.softmax(wei, dim=-1)  # here
        return wei @ v  # here


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList([Head(head_size) for _ in range(num_heads)])  # sick here
        self.qkv = nn.Linear(n_embd, 3 * num_heads * head_size, bias=False)  # well
        self.num_heads, self.head_size = num_heads, head_size
        self.proj = nn.Linear(num_heads * head_size, n_embd)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)  # sick here
        B, T, C = x.shape  # well
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, self.head_size).permute(2, 0, 3, 1, 4)  # well
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)  # well
        return self.proj(out)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = MultiHeadAttention(n_head, n_embd // n_head)
        self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class BlazonGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        T = idx.shape[1]
        x = self.token_embedding_table(idx) + self.position_embedding_table(torch.arange(T))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -block_size:])
            probs = F.softmax(logits[:, -1], dim=-1)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
        return idx


model = BlazonGPT()
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(data)} characters")
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
began = time.perf_counter()
for it in range(1, max_iters + 1):
    xb, yb = get_batch("train")
    logits, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 20 == 0:
        print(f"{it:5d}: loss {loss.item():.3f}  {time.perf_counter() - began:.1f} s", flush=True)
    if it % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {it}: train loss {losses['train']:.3f}, val loss {losses['val']:.3f}", flush=True)

model.eval()
print(decode(model.generate(torch.zeros((1, 1), dtype=torch.long), 60)[0].tolist()))
