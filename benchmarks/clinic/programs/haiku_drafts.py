# /// clinic
# expect = ["PD20.decoding-without-cache"]
# stratum = "twins"
# domain = "text generation (transformers)"
# sizes = {DRAFTS = [44, 56], FRESH = [60, 72]}
# ///
"""Train a pocket GPT-2 on made-up verse; after each epoch it drafts a few verses and we score them."""

import time
from dataclasses import dataclass

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

logging.set_verbosity_error()

DRAFTS = 48
FRESH = 64


@dataclass
class Plan:
    vocab: int = 480
    length: int = 64
    batch: int = 16
    steps: int = 28
    epochs: int = 7
    prompt: int = 8
    lr: float = 1e-3


class VerseChain:
    """A sparse second-hand Markov chain: each word can be followed by five others."""

    def __init__(self, vocab, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.next = torch.randint(1, vocab, (vocab, 5), generator=self.gen)
        self.odds = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])

    def verses(self, n, length):
        out = torch.empty(n, length, dtype=torch.long)
        out[:, 0] = torch.randint(1, len(self.next), (n,), generator=self.gen)
        for j in range(1, length):
            turn = torch.multinomial(self.odds, n, replacement=True, generator=self.gen)
            out[:, j] = self.next[out[:, j - 1], turn]
        return out

    def grammatical(self, ids):
        follow = self.next[ids[:, :-1]]
        return (follow == ids[:, 1:, None]).any(-1).float().mean().item()


def write_drafts(model, prompts, plan):
    settings = GenerationConfig(
        max_new_tokens=FRESH,
        do_sample=False,
        use_cache=False,  # sick here
        pad_token_id=0,
        eos_token_id=None,
    )
    model.eval()
    with torch.inference_mode():
        drafts = model.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=settings)
    model.train()
    return drafts[:, plan.prompt - 1 :]


def train(plan):
    torch.manual_seed(5)
    chain = VerseChain(plan.vocab, 17)
    corpus = chain.verses(plan.batch * plan.steps, plan.length)
    prompts = chain.verses(DRAFTS, plan.prompt)
    cfg = GPT2Config(
        vocab_size=plan.vocab, n_positions=128, n_embd=128, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(cfg).train()
    opt = torch.optim.AdamW(model.parameters(), lr=plan.lr, weight_decay=0.01, fused=True)

    start, done = 0.0, 0
    for epoch in range(plan.epochs):
        if epoch == 1:
            start = time.perf_counter()
        total = 0.0
        for rows in torch.randperm(len(corpus)).split(plan.batch):
            ids = corpus[rows]
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            total += loss.item()
            done += epoch > 0
        score = chain.grammatical(write_drafts(model, prompts, plan))
        print(f"[{epoch}] loss {total / plan.steps:.3f}  drafts in grammar {score:.2f}", flush=True)
    return done / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"overall {train(Plan()):.2f} steps/s")
