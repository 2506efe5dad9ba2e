# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "chess positions"
# ///
"""Chess endgame evaluation network with king-relative piece features (HalfKP), trained on expected scores."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

PIECES = 10  # five kinds without the king, two colours
FEATURES = 64 * PIECES * 64
MAX_PIECES = 14
PIECE_VALUE = np.array([1.0, 3.2, 3.3, 5.0, 9.5], dtype=np.float32)
SCALE = 4.0  # pawns per unit of the logistic


def random_positions(count, rng):
    """Piece placements for both points of view, with a score from material and centrality."""
    squares = np.argsort(rng.random((count, 64), dtype=np.float32), axis=1)
    own_king, their_king = squares[:, :1], squares[:, 1:2]
    place = squares[:, 2 : 2 + MAX_PIECES]
    kind = rng.choice(5, size=(count, MAX_PIECES), p=[0.52, 0.14, 0.14, 0.14, 0.06])
    side = rng.integers(0, 2, (count, MAX_PIECES))
    present = np.arange(MAX_PIECES)[None] < rng.integers(4, MAX_PIECES + 1, (count, 1))

    def indices(king, mine, square):
        feature = (king * PIECES + kind + 5 * mine) * 64 + square
        return np.where(present, feature, FEATURES)

    white = indices(own_king, side, place)
    black = indices(their_king ^ 56, 1 - side, place ^ 56)
    centre = 3.5 - np.abs(place % 8 - 3.5) - np.abs(place // 8 - 3.5) * 0.5
    worth = PIECE_VALUE[kind] + 0.08 * centre
    score = (np.where(side == 0, worth, -worth) * present).sum(1) + rng.normal(0, 0.3, count)
    expected = 1 / (1 + np.exp(-score / SCALE))
    return TensorDataset(
        torch.from_numpy(white), torch.from_numpy(black), torch.from_numpy(expected.astype(np.float32))
    )


class FeatureTransformer(nn.Module):
    """First layer: sums one learnt vector for each piece on the board."""

    def __init__(self, width):
        super().__init__()
        sparse = False  # sick
        sparse = True  # well
        self.table = nn.EmbeddingBag(
            FEATURES + 1,
            width,
            mode="sum",
            padding_idx=FEATURES,
            sparse=sparse,
        )
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, pieces):
        return self.table(pieces) + self.bias


class EvaluationNet(L.LightningModule):
    def __init__(self, width=128, hidden=256, lr=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.features = FeatureTransformer(width)
        self.layers = nn.Sequential(
            nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, white, black):
        both = torch.cat([self.features(white), self.features(black)], dim=1)
        return self.layers(both.clamp(0, 1)).squeeze(1)

    def training_step(self, batch, index):
        white, black, expected = batch
        loss = F.binary_cross_entropy_with_logits(self(white, black), expected)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        white, black, expected = batch
        error = (self(white, black).sigmoid() - expected).abs().mean()
        self.log("val_error", error, batch_size=len(expected))

    def configure_optimizers(self):
        return torch.optim.Adagrad(self.parameters(), lr=self.hparams.lr)


class Positions(L.LightningDataModule):
    def __init__(self, count=120_000, batch_size=384, seed=5):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        rng = np.random.default_rng(self.hparams.seed)
        self.train_set = random_positions(self.hparams.count, rng)
        self.val_set = random_positions(8192, rng)

    def train_dataloader(self):
        batches = BatchSampler(RandomSampler(self.train_set), self.hparams.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=batches, batch_size=None)

    def val_dataloader(self):
        batches = BatchSampler(SequentialSampler(self.val_set), 2048, drop_last=False)
        return DataLoader(self.val_set, sampler=batches, batch_size=None)


class Pace(Callback):
    def __init__(self):
        self.start, self.seen = None, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.seen += 1
        if self.seen == 5:
            self.start = time.perf_counter()

    def on_validation_epoch_end(self, trainer, module):
        print(f"epoch {trainer.current_epoch}: error {trainer.callback_metrics['val_error'].item():.4f}")


def main():
    L.seed_everything(5)
    pace = Pace()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=3,
        callbacks=[pace],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    model = EvaluationNet()
    trainer.fit(model, datamodule=Positions())
    elapsed = time.perf_counter() - pace.start
    torch.save(model.state_dict(), "evaluation.pt")
    print(f"{(pace.seen - 5) / elapsed:.2f} steps/s")


if __name__ == "__main__":
    main()
