# /// clinic
# expect = ["PD20.decoding-without-cache"]
# stratum = "twins"
# domain = "molecules"
# ///
"""Teaches a recurrent policy to write molecule strings: likelihood on a corpus plus reinforcement on its own samples."""

import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = ["<pad>", "<bos>", "<eos>", "C", "N", "O", "S", "F", "=", "(", ")"]
CODE = {s: i for i, s in enumerate(ALPHABET)}
PAD, BOS, EOS = 0, 1, 2
LENGTH, BATCH, SAMPLES, STEPS = 32, 64, 32, 220


def chain(rng, budget, depth=0):
    """A random string of atoms with branches and double bonds."""
    out = []
    while budget > 0:
        out.append(rng.choice("CCCCNOS"))
        budget -= 1
        if depth < 2 and budget > 3 and rng.random() < 0.3:
            inner = rng.randint(1, 3)
            out += ["(", *chain(rng, inner, depth + 1), ")"]
            budget -= inner
        elif budget > 1 and rng.random() < 0.15:
            out.append("=")
        elif rng.random() < 0.06:
            break
    if depth == 0 and rng.random() < 0.2:
        out.append("F")
    return out


def make_corpus(count, seed):
    rng = random.Random(seed)
    rows = torch.full((count, LENGTH + 1), PAD)
    for row in rows:
        text = chain(rng, rng.randint(8, 18))[: LENGTH - 1]
        codes = [BOS, *(CODE[s] for s in text), EOS]
        row[: len(codes)] = torch.tensor(codes)
    return rows


class Policy(nn.Module):
    """Next-symbol scores for each place of the given strings, and the state after the last one."""

    def __init__(self, dim=48, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, len(ALPHABET))

    def forward(self, tokens, state=None):
        h, state = self.rnn(self.embed(tokens), state)
        return self.head(self.norm(h)), state


class Sampler:
    def __init__(self, policy, temperature=1.0):
        self.policy, self.temperature = policy, temperature
        self.banned = torch.zeros(len(ALPHABET))
        self.banned[[PAD, BOS]] = float("-inf")

    @torch.no_grad()
    def __call__(self, count):
        tokens = torch.full((count, LENGTH + 1), PAD)
        tokens[:, 0] = BOS
        ended, state = torch.zeros(count, dtype=torch.bool), None
        for t in range(LENGTH):
            scores, _ = self.policy(tokens[:, : t + 1])  # sick here
            scores, state = self.policy(tokens[:, t : t + 1], state)  # well
            probs = (scores[:, -1] / self.temperature + self.banned).softmax(-1)
            drawn = torch.multinomial(probs, 1).squeeze(1)
            tokens[:, t + 1] = drawn.masked_fill_(ended, PAD)
            ended |= drawn == EOS
            if ended.all():
                break
        return tokens


class Reward:
    """One for a string that ends with its brackets closed, and up to one half for its share of hetero-atoms."""

    def __init__(self):
        self.turn = torch.zeros(len(ALPHABET))
        self.turn[CODE["("]], self.turn[CODE[")"]] = 1, -1
        self.hetero = torch.zeros(len(ALPHABET))
        self.hetero[[CODE[s] for s in "NOSF"]] = 1

    def __call__(self, tokens):
        level = self.turn[tokens].cumsum(1)
        closed = (level.amin(1) >= 0) & (level[:, -1] == 0) & (tokens == EOS).any(1)
        share = self.hetero[tokens].sum(1) / (tokens > EOS).sum(1).clamp(min=1)
        return closed.float() + 0.5 * share


class MixedLoss(nn.Module):
    """Likelihood for the first rows, advantage-weighted log-probability for the rest."""

    def __init__(self, strength=0.1, decay=0.95):
        super().__init__()
        self.register_buffer("baseline", torch.zeros(()))
        self.strength, self.decay = strength, decay

    def forward(self, scores, tokens, reward):
        logp = -F.cross_entropy(scores.transpose(1, 2), tokens, ignore_index=PAD, reduction="none")
        n, real = len(tokens) - len(reward), tokens != PAD
        fit = -logp[:n].sum() / real[:n].sum()
        self.baseline.lerp_(reward.mean(), 1 - self.decay)
        gain = ((reward - self.baseline)[:, None] * logp[n:]).sum() / real[n:].sum()
        return fit - self.strength * gain


def main():
    torch.manual_seed(41)
    corpus = make_corpus(6000, 42)
    policy = Policy()
    sample, reward_of, criterion = Sampler(policy), Reward(), MixedLoss()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)

    total, began = torch.zeros(()), time.perf_counter()
    for step in range(STEPS):
        own = sample(SAMPLES)
        reward = reward_of(own)
        rows = torch.cat([corpus[torch.randint(len(corpus), (BATCH,))], own])
        scores, _ = policy(rows[:, :-1])
        loss = criterion(scores, rows[:, 1:], reward)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        sched.step()
        total += loss.detach()
        if step % 55 == 54:
            print(f"step {step + 1}: loss {total.item() / 55:.3f}, reward {criterion.baseline.item():.3f}")
            total.zero_()
    took = time.perf_counter() - began

    print("".join(ALPHABET[i] for i in sample(1)[0].tolist() if i > EOS))
    print(f"{STEPS / took:.1f} steps/s")


if __name__ == "__main__":
    main()
