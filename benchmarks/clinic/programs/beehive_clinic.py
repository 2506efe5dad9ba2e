# /// clinic
# expect = ["PD20.metrics-in-each-step", "PD15.growing-container", "PD15.growing-work"]
# stratum = "twins"
# domain = "admissions of a clinic"
# ///
"""Predicts from an admission table whether a sting patient will need adrenaline.

The table (age, blood values, region, beekeeping habits ...) is simulated. A small network with
embeddings for the categorical columns is trained; loss and AUROC are written for TensorBoard and
the best weights by validation AUROC are kept.
"""

import copy
import tempfile
import time

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from torchmetrics.classification import BinaryAUROC

ROWS, HELD_OUT = 65_536, 8_192
NUMERIC, LEVELS = 26, (5, 12, 3, 40, 7, 18)
BATCH, EPOCHS = 256, 18


def simulate_patients(rows, generator):
    latent = torch.randn(rows, 6, generator=generator)
    numeric = latent @ torch.randn(6, NUMERIC, generator=generator)
    numeric = numeric + 1.5 * torch.randn(rows, NUMERIC, generator=generator)
    numeric = (numeric - numeric.mean(0)) / numeric.std(0)
    columns, effect = [], torch.zeros(rows)
    for levels in LEVELS:
        column = torch.randint(0, levels, (rows,), generator=generator)
        effect += 0.5 * torch.randn(levels, generator=generator)[column]
        columns.append(column)
    score = latent[:, 0] * latent[:, 1] + latent[:, 2] + effect - 1.0
    outcome = torch.bernoulli(torch.sigmoid(1.5 * score), generator=generator)
    return numeric, torch.stack(columns, 1), outcome


class AdmissionNet(nn.Module):
    def __init__(self, width=512, code=8):
        super().__init__()
        offsets = torch.tensor((0,) + LEVELS[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.codes = nn.Embedding(sum(LEVELS), code)
        self.layers = nn.Sequential(
            nn.Dropout(0.1),
            nn.Linear(NUMERIC + code * len(LEVELS), width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width // 2),
            nn.ReLU(),
            nn.Linear(width // 2, 1),
        )

    def forward(self, numeric, categories):
        codes = self.codes(categories + self.offsets).flatten(1)
        return self.layers(torch.cat([numeric, codes], 1)).squeeze(1)


@torch.no_grad()
def validate(model, numeric, categories, outcome):
    model.eval()
    auroc = BinaryAUROC(validate_args=False)
    for part in torch.arange(len(outcome)).split(2048):
        auroc.update(model(numeric[part], categories[part]), outcome[part].long())
    model.train()
    return auroc.compute().item()


def main():
    torch.manual_seed(11)
    table = simulate_patients(ROWS + HELD_OUT, torch.Generator().manual_seed(5))
    train = [column[:ROWS] for column in table]
    held_out = [column[ROWS:] for column in table]

    model = AdmissionNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-2, fused=True)
    criterion = nn.BCEWithLogitsLoss()
    train_auroc = BinaryAUROC(validate_args=False)
    writer = SummaryWriter(tempfile.mkdtemp(prefix="clinic_"))
    best, best_weights, step = 0.0, None, 0

    start = time.perf_counter()
    for _ in range(EPOCHS):
        progress = []
        for rows in torch.randperm(ROWS).split(BATCH):
            numeric, categories, outcome = (column[rows] for column in train)
            logits = model(numeric, categories)
            loss = criterion(logits, outcome)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            train_auroc.update(logits.detach(), outcome.long())
            progress.append((loss.detach(), train_auroc.compute()))  # sick here
            progress.append((loss.detach(),))  # well
        writer.add_scalar("train/loss", torch.stack([entry[0] for entry in progress]).mean(), step)
        writer.add_scalar("train/auroc", train_auroc.compute(), step)
        train_auroc.reset()
        reached = validate(model, *held_out)
        writer.add_scalar("valid/auroc", reached, step)
        if reached > best:
            best, best_weights = reached, copy.deepcopy(model.state_dict())
    seconds = time.perf_counter() - start
    writer.close()
    model.load_state_dict(best_weights)
    print(f"best validation AUROC {best:.4f}")
    print(f"{step * BATCH / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
