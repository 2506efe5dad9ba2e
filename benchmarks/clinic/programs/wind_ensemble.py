# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "wind forecasts"
# ///
"""Calibrated ensembles of hub-height wind speed for a set of turbines, from a coarse weather forecast."""

import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TURBINES = 24
PREDICTORS = 40
MEMBERS = 64
LATENT = 8


class ForecastArchive(Dataset):
    """Pairs of coarse predictors and observed wind speeds, with noise that depends on the weather."""

    def __init__(self, hours, seed):
        g = torch.Generator().manual_seed(seed)
        mixing = torch.Generator().manual_seed(7)
        site = torch.randn(PREDICTORS, TURBINES, generator=mixing) / PREDICTORS**0.5
        gustiness = torch.randn(PREDICTORS, TURBINES, generator=mixing) / PREDICTORS**0.5
        self.predictors = torch.randn(hours, PREDICTORS, generator=g)
        mean = 8 + 3 * torch.tanh(self.predictors @ site)
        sigma = 0.5 + nn.functional.softplus(self.predictors @ gustiness)
        shared = torch.randn(hours, 1, generator=g)
        local = torch.randn(hours, TURBINES, generator=g)
        self.speed = (mean + sigma * (0.6 * shared + 0.8 * local)).clamp(min=0)

    def __len__(self):
        return len(self.speed)

    def __getitem__(self, hour):
        return self.predictors[hour], self.speed[hour]


class EnsembleCRPS(nn.Module):
    """Continuous ranked probability score of an equally weighted ensemble: E|X - y| - E|X - X'| / 2."""

    def __init__(self, members):
        super().__init__()
        self.members = members
        self.register_buffer("rank_weight", 2.0 * torch.arange(1, members + 1) - members - 1)  # well

    def spread(self, ensemble):
        return (ensemble.unsqueeze(-1) - ensemble.unsqueeze(-2)).abs().mean(dim=(-2, -1))  # sick here
        ranked = ensemble.sort(dim=-1).values  # well
        return 2 * (ranked * self.rank_weight).sum(-1) / self.members**2  # well

    def forward(self, ensemble, observed):
        error = (ensemble - observed.unsqueeze(-1)).abs().mean(-1)
        return (error - 0.5 * self.spread(ensemble)).mean()


class MemberGenerator(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.weather = nn.Linear(PREDICTORS, width)
        self.perturbation = nn.Linear(LATENT, width, bias=False)
        self.body = nn.Sequential(
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, TURBINES),
        )

    def forward(self, predictors, members):
        latent = torch.randn(len(predictors), members, LATENT, device=predictors.device)
        hidden = self.weather(predictors).unsqueeze(1) + self.perturbation(latent)
        return 8 + self.body(hidden).transpose(1, 2).contiguous()  # batch, turbines, members


class WindEnsemble(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.generator = MemberGenerator()
        self.crps = EnsembleCRPS(MEMBERS)

    def training_step(self, batch, index):
        predictors, speed = batch
        return self.crps(self.generator(predictors, MEMBERS), speed)

    def validation_step(self, batch, index):
        predictors, speed = batch
        ensemble = self.generator(predictors, MEMBERS)
        self.log("val_crps", self.crps(ensemble, speed), on_epoch=True, batch_size=len(speed))
        coverage = ((ensemble < speed.unsqueeze(-1)).float().mean(-1) - 0.5).abs() < 0.4
        self.log("val_cover80", coverage.float().mean(), on_epoch=True, batch_size=len(speed))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Pace(L.Callback):
    def __init__(self):
        self.steps = 0
        self.since = None

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.steps += 1
        if self.steps == 5:
            self.since = time.perf_counter()

    def on_validation_end(self, trainer, module):
        seen = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
        print(f"step {trainer.global_step}: {seen}", flush=True)

    def on_train_end(self, trainer, module):
        print(f"{(self.steps - 5) / (time.perf_counter() - self.since):.2f} steps/s")


def main():
    L.seed_everything(3, verbose=False)
    train = DataLoader(ForecastArchive(32 * 250, seed=1), batch_size=32, shuffle=True, drop_last=True)
    held_out = DataLoader(ForecastArchive(32 * 10, seed=2), batch_size=32)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        callbacks=[Pace()],
    )
    trainer.fit(WindEnsemble(), train, held_out)


if __name__ == "__main__":
    main()
