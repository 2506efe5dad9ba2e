# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "language models"
# ///
"""Soft-prompt tuning of a small causal language model for review classification.

The backbone stays as released; a reparametrised soft prompt is put before the tokens and the label is read
from the mean hidden state with one verbaliser token per class.
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2Model


VOCABULARY = 2000
LENGTH = 48
PROMPT = 16
CLASSES = 4
REVIEWS = 4000
BATCH = 8
STEPS = 450
VERBALISERS = torch.tensor([11, 12, 13, 14])


def make_reviews(generator):
    """each class has its own hundred tell-tale words, the rest is common vocabulary"""
    labels = torch.randint(0, CLASSES, (REVIEWS,), generator=generator)
    tokens = torch.randint(600, VOCABULARY, (REVIEWS, LENGTH), generator=generator)
    telling = 100 + 100 * labels[:, None] + torch.randint(0, 100, (REVIEWS, LENGTH), generator=generator)
    is_telling = torch.rand(REVIEWS, LENGTH, generator=generator) < 0.35
    return torch.where(is_telling, telling, tokens), labels


def load_backbone():
    """stand-in for a released checkpoint: same architecture, fixed seed"""
    torch.manual_seed(2024)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=PROMPT + LENGTH,
        n_embd=256,
        n_layer=3,
        n_head=4,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    backbone = GPT2Model(config)
    backbone.eval()  # sick here
    backbone.eval().requires_grad_(False)  # well
    return backbone


class SoftPrompt(nn.Module):
    """prompt vectors, reparametrised by a two-layer network as in prefix tuning"""

    def __init__(self, length, dim, bottleneck=64):
        super().__init__()
        self.seed = nn.Parameter(0.5 * torch.randn(length, bottleneck))
        self.net = nn.Sequential(nn.Linear(bottleneck, bottleneck), nn.Tanh(), nn.Linear(bottleneck, dim))

    def forward(self, batch):
        return self.net(self.seed).unsqueeze(0).expand(batch, -1, -1)


class PromptClassifier(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        dim = backbone.config.n_embd
        self.backbone = backbone
        self.prompt = SoftPrompt(PROMPT, dim)
        self.calibration = nn.Linear(dim, CLASSES)

    def tuned_parameters(self):
        yield from self.prompt.parameters()
        yield from self.calibration.parameters()

    def forward(self, tokens):
        words = self.backbone.wte(tokens)
        inputs = torch.cat([words, self.prompt(len(tokens))], dim=1)
        hidden = self.backbone(inputs_embeds=inputs).last_hidden_state.mean(dim=1)
        verbal = hidden @ self.backbone.wte.weight[VERBALISERS].T
        return verbal + self.calibration(hidden)


@torch.no_grad()
def accuracy(model, tokens, labels):
    right = 0
    for part, truth in zip(tokens.split(64), labels.split(64)):
        right += int((model(part).argmax(dim=1) == truth).sum())
    return right / len(labels)


def main():
    generator = torch.Generator().manual_seed(8)
    tokens, labels = make_reviews(generator)
    train_tokens, train_labels = tokens[:-256], labels[:-256]
    test_tokens, test_labels = tokens[-256:], labels[-256:]

    model = PromptClassifier(load_backbone())
    tuned = list(model.tuned_parameters())
    print(f"{sum(p.numel() for p in tuned)} of {sum(p.numel() for p in model.parameters())} parameters are tuned")
    optimizer = torch.optim.AdamW(tuned, lr=3e-3, weight_decay=0.0)  # here
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 40))

    recent, start = [], time.perf_counter()
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, len(train_tokens), (BATCH,), generator=generator)
        loss = F.cross_entropy(model(train_tokens[rows]), train_labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        recent.append(loss.detach())
        if step % 50 == 0:
            speed = 1000 * (time.perf_counter() - start) / step
            print(f"step {step:4d}  loss {torch.stack(recent).mean():.4f}  {speed:.1f} ms/step", flush=True)
            recent.clear()
    print(f"test accuracy {accuracy(model, test_tokens, test_labels):.3f}")


if __name__ == "__main__":
    main()
