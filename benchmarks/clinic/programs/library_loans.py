# /// clinic
# expect = ["PD08.memory-trimmed"]
# stratum = "twins"
# domain = "recommending library loans with a denoising autoencoder (class Trainer)"
# ///
"""What will a reader borrow next? An autoencoder over the loans of a public library.

A reader is a row of zeros and ones over the catalogue; the model is trained to fill in loans that were
hidden from it (a multinomial likelihood, as in Mult-DAE), and tested by recall on held-out loans.
"""

import ctypes
import time

import torch
from torch import nn
from torch.nn import functional as F


TRIM_AFTER_STEP = True  # sick here
TRIM_AFTER_STEP = False  # well
CONFIG = {
    "titles": 5000,
    "readers": 5000,
    "genres": 40,
    "hidden": 128,
    "code": 48,
    "batch_size": 256,
    "steps": 600,
    "learning_rate": 0.8,
    "hide": 0.3,
    "trim_after_step": TRIM_AFTER_STEP,  # here
    "report_every": 50,
}


def simulate_loans(config, generator):
    """Readers like a few genres; popular titles are borrowed more often."""
    genre_of_title = torch.randint(0, config["genres"], (config["titles"],), generator=generator)
    popularity = torch.rand(config["titles"], generator=generator) ** 3
    taste = torch.rand(config["readers"], config["genres"], generator=generator) ** 6
    shelves = []
    for some in taste.split(1250):
        chance = some[:, genre_of_title] * popularity * 0.5
        shelves.append(torch.rand(chance.shape, generator=generator) < chance)
    return torch.cat(shelves)


class LoanAutoencoder(nn.Module):
    def __init__(self, titles, hidden, code):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(titles, hidden), nn.Tanh(), nn.Linear(hidden, code), nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.Tanh(), nn.Linear(hidden, titles))

    def forward(self, loans):
        x = F.normalize(loans, dim=1)
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self, config):
        self.config = config
        self.libc = ctypes.CDLL("libc.so.6")  # here
        self.generator = torch.Generator().manual_seed(11)
        loans = simulate_loans(config, self.generator)
        self.train_loans, self.test_loans = loans[:-500], loans[-500:]
        torch.manual_seed(11)
        self.model = LoanAutoencoder(config["titles"], config["hidden"], config["code"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["learning_rate"])
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=config["learning_rate"], total_steps=config["steps"]
        )

    def tidy_memory(self):
        if self.config["trim_after_step"]:
            self.libc.malloc_trim(0)  # here

    def sample(self):
        rows = torch.randint(0, len(self.train_loans), (self.config["batch_size"],), generator=self.generator)
        return self.train_loans[rows].float()

    def hide_some(self, loans):
        return F.dropout(loans, self.config["hide"])

    def training_step(self, loans):
        logits = self.model(self.hide_some(loans))
        likelihood = F.log_softmax(logits, dim=1)
        loss = -(likelihood * loans).sum(dim=1).mean() / 50
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def fit(self):
        start = time.time()
        total = torch.zeros(())
        every = self.config["report_every"]
        for step in range(1, self.config["steps"] + 1):
            total += self.training_step(self.sample())
            self.tidy_memory()  # here
            if step % every == 0:
                print(f"step {step:4d}  loss {total.item() / every:.4f}  {time.time() - start:.1f} s", flush=True)
                total.zero_()

    @torch.no_grad()
    def recall(self, top=50):
        """Share of the hidden loans that are among the best `top` titles not yet borrowed."""
        hidden = self.test_loans & (torch.rand(self.test_loans.shape, generator=self.generator) < 0.2)
        seen = self.test_loans & ~hidden
        scores = self.model(seen.float()).masked_fill(seen, float("-inf"))
        best = scores.topk(top, dim=1).indices
        found = hidden.gather(1, best).sum(dim=1)
        return (found / hidden.sum(dim=1).clamp(min=1)).mean().item()


def main():
    trainer = Trainer(CONFIG)
    print(f"{int(trainer.train_loans.sum())} loans of {CONFIG['titles']} titles")
    trainer.fit()
    print(f"recall at 50: {trainer.recall():.4f}")


if __name__ == "__main__":
    main()
