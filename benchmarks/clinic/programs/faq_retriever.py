# /// clinic
# expect = ["PD20.metrics-in-each-step", "PD10.unchanged-work"]
# stratum = "twins"
# domain = "search and retrieval"
# ///
"""A dual encoder that finds the FAQ entry for a question, trained with in-batch negatives.

Questions and entries are bags of token ids about hidden topics. Accelerate runs the loop and
writes the curves for TensorBoard.
"""

import time
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.retrieval import RetrievalMRR


@dataclass
class Config:
    seed: int = 23
    vocabulary: int = 3000
    entries: int = 16_000
    question_tokens: int = 12
    entry_tokens: int = 20
    dim: int = 96
    layers: int = 1
    batch_size: int = 64
    epochs: int = 4
    learning_rate: float = 5e-4
    temperature: float = 0.05
    log_every: int = 25


def make_pairs(cfg):
    """The question shares some of its tokens with its entry, the rest is noise."""
    entry = torch.randint(1, cfg.vocabulary, (cfg.entries, cfg.entry_tokens))
    shared = torch.randint(cfg.entry_tokens, (cfg.entries, cfg.question_tokens))
    question = entry.gather(1, shared)
    noise = torch.rand(question.shape) < 0.6
    question[noise] = torch.randint(1, cfg.vocabulary, (int(noise.sum()),))
    return TensorDataset(question, entry)


class TextEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocabulary, cfg.dim)
        self.positions = nn.Parameter(0.02 * torch.randn(cfg.entry_tokens, cfg.dim))
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 2 * cfg.dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)

    def forward(self, ids):
        hidden = self.tokens(ids) + self.positions[: ids.shape[1]]
        return F.normalize(self.body(hidden).mean(dim=1), dim=-1)


class DualEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = TextEncoder(cfg)
        self.temperature = cfg.temperature

    def forward(self, question, entry):
        return self.encoder(question) @ self.encoder(entry).T / self.temperature


class BatchRanking:
    """Mean reciprocal rank of the right entry among the entries of the batch."""

    def __init__(self, batch_size):
        self.metric = RetrievalMRR()
        self.indexes = torch.arange(batch_size).repeat_interleave(batch_size)
        self.target = torch.eye(batch_size, dtype=torch.bool).flatten()

    def __call__(self, scores):
        self.metric.reset()
        self.metric.update(scores.detach().flatten(), self.target, indexes=self.indexes)  # here
        return self.metric.compute().item()  # here


def train(cfg):
    accelerator = Accelerator(
        cpu=True, log_with="tensorboard", project_config=ProjectConfiguration(project_dir="/tmp/faq_retriever")
    )
    accelerator.init_trackers("faq", config=asdict(cfg))
    model = DualEncoder(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.learning_rate)
    loader = DataLoader(make_pairs(cfg), batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    ranking = BatchRanking(cfg.batch_size)
    gold = torch.arange(cfg.batch_size)
    step, start = 0, time.monotonic()
    for epoch in range(cfg.epochs):
        for question, entry in loader:
            scores = model(question, entry)
            loss = F.cross_entropy(scores, gold)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1

            logs = {"loss": loss.item(), "mrr": ranking(scores)}  # sick here
            if step % cfg.log_every == 0:
                logs = {"loss": loss.item(), "mrr": ranking(scores)}  # well
                accelerator.log(logs, step=step)
            if step % (4 * cfg.log_every) == 0:
                accelerator.print(
                    f"epoch {epoch} step {step} loss {logs['loss']:.3f} mrr {logs['mrr']:.3f} "
                    f"{time.monotonic() - start:.1f} s",
                    flush=True,
                )
    accelerator.end_training()
    return accelerator.unwrap_model(model)


@torch.no_grad()
def recall(model, cfg, k=10, count=1000):
    """Fresh questions against their own collection."""
    question, entry = make_pairs(cfg)[:count]
    model.eval()
    scores = model(question, entry)
    top = scores.topk(k, dim=1).indices
    return (top == torch.arange(count)[:, None]).any(dim=1).float().mean().item()


def main():
    cfg = Config()
    set_seed(cfg.seed)
    model = train(cfg)
    print(f"recall at 10: {recall(model, cfg):.3f}")


if __name__ == "__main__":
    main()
