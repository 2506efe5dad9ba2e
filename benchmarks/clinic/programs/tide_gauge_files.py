# /// clinic
# expect = ["PD03.workers-restarted"]
# stratum = "twins"
# domain = "tide gauges: next day's water level"
# ///
"""Forecast the water level at a tide gauge for the next day with transformers' Trainer.

The gauges' archive is made up first: one gzipped CSV of hourly readings per station, the way the
hydrographic offices hand them out (time stamp, millimetres above datum, quality flag).
"""

import csv
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

PAST, AHEAD = 144, 24
# speeds of the constituents in degrees per hour: M2 S2 N2 K1 O1 M4 Mf
SPEEDS = np.deg2rad(np.array([28.984, 30.0, 28.440, 15.041, 13.943, 57.968, 1.098]))


def write_archive(folder, stations=16, hours=17_520, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    stamps = np.datetime_as_string(np.datetime64("2016-01-01T00", "h") + t, unit="m").tolist()
    for s in range(stations):
        amplitude = rng.gamma(2.0, 1.0, len(SPEEDS)) * np.array([600, 220, 120, 150, 110, 40, 30]) / 2
        phase = rng.uniform(0, 2 * np.pi, len(SPEEDS))
        tide = (amplitude * np.cos(np.outer(t, SPEEDS) + phase)).sum(1)
        surge = np.convolve(rng.normal(0, 1, hours + 72), np.hanning(73), "valid") * 25
        level = np.rint(tide + surge + rng.normal(0, 12, hours) + 3000).astype(int)
        flag = (rng.random(hours) < 0.01).astype(int)
        lines = [f"{stamp},{mm},{q}" for stamp, mm, q in zip(stamps, level.tolist(), flag.tolist())]
        with gzip.open(folder / f"gauge_{s:02d}.csv.gz", "wt", compresslevel=4) as f:
            f.write("\n".join(lines))
    return sorted(folder.glob("gauge_*.csv.gz"))


class GaugeWindows(Dataset):
    """Windows of PAST known and AHEAD unknown hours from all stations of the archive."""

    def __init__(self, files, windows, first_hour, last_hour, seed):
        rng = np.random.default_rng(seed)
        self.files = files
        self.station = rng.integers(len(files), size=windows)
        self.begin = rng.integers(first_hour, last_hour - PAST - AHEAD, size=windows)
        self.records = {}

    def record(self, number):
        if number not in self.records:
            self.records[number] = self.read(self.files[number])  # here
        return self.records[number]

    @staticmethod
    def read(path):
        with gzip.open(path, "rt", newline="") as f:
            stamp, level, flag = zip(*csv.reader(f))
        hours = np.array(stamp, dtype="datetime64[m]").astype("datetime64[h]").astype(np.int64)
        level = np.array(level, dtype=np.float64)
        good = np.array(flag) == "0"
        level = np.interp(hours, hours[good], level[good])
        return ((level - level.mean()) / level.std()).astype(np.float32)

    def __len__(self):
        return len(self.station)

    def __getitem__(self, i):
        begin = int(self.begin[i])
        level = self.record(int(self.station[i]))[begin : begin + PAST + AHEAD]
        angle = np.outer(SPEEDS, np.arange(begin, begin + PAST + AHEAD)).astype(np.float32)
        return {
            "past": level[:PAST],
            "astro": np.concatenate([np.cos(angle), np.sin(angle)]),
            "future": level[PAST:],
        }


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(torch.nn.functional.gelu(self.conv(x)))


class TideModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.enter = nn.Conv1d(2 + 2 * len(SPEEDS), width, 1)
        self.blocks = nn.Sequential(*(Residual(width, d) for d in (1, 3, 9)))
        self.squeeze = nn.Linear(width * PAST // 12, 128)
        self.leave = nn.Sequential(nn.Conv1d(width + 128, width, 1), nn.GELU(), nn.Conv1d(width, 1, 1))
        self.pool = nn.AvgPool1d(12)

    def forward(self, past, astro, future=None):
        known = torch.nn.functional.pad(past, (0, AHEAD)).unsqueeze(1)
        mask = torch.zeros_like(known)
        mask[..., :PAST] = 1
        x = self.blocks(self.enter(torch.cat([known, mask, astro], dim=1)))
        summary = self.squeeze(self.pool(x[..., :PAST]).flatten(1))
        x = torch.cat([x[..., PAST:], summary.unsqueeze(-1).expand(-1, -1, AHEAD)], dim=1)
        forecast = self.leave(x).squeeze(1)
        loss = None if future is None else torch.nn.functional.smooth_l1_loss(forecast, future)
        return {"loss": loss, "forecast": forecast}


class Logbook(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.start = self.tick = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            now = time.perf_counter()
            print(f"epoch {state.epoch:4.1f}  loss {float(logs['loss']):.4f}  {now - self.tick:.2f} s", flush=True)
            self.tick = now

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.start


def main(epochs=20):
    set_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        files = write_archive(Path(folder))
        train = GaugeWindows(files, 2048, 0, 15_500, seed=1)
        test = GaugeWindows(files, 512, 15_500, 17_520, seed=2)
        logbook = Logbook()
        trainer = Trainer(
            model=TideModel(),
            args=TrainingArguments(
                output_dir=folder + "/run",
                num_train_epochs=epochs,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=128,
                learning_rate=2e-3,
                lr_scheduler_type="cosine",
                weight_decay=0.01,
                dataloader_num_workers=1,  # here
                dataloader_persistent_workers=True,  # well
                label_names=["future"],
                logging_strategy="epoch",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=train,
            eval_dataset=test,
            callbacks=[logbook],
        )
        trainer.train()
        print(f"held-out loss {trainer.evaluate()['eval_loss']:.4f}")
        print(f"training took {logbook.seconds:.1f} s")


if __name__ == "__main__":
    main()
