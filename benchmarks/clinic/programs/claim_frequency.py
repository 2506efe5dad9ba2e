# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "tabular data"
# ///
"""Claim counts of a motor insurance portfolio: a residual MLP with a Poisson loss and exposure offset.

Written in a functional style: parameters are a plain dict, the forward pass is a function of (params, batch).
"""

import math
import time
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F


ROWS, VALID_ROWS = 60_000, 6_000
NUMERIC = 40
CATEGORIES = (22, 12, 96, 7, 31)  # region, vehicle class, make, fuel/gear, tariff zone
CAT_DIM = 8
WIDTH, DEPTH = 256, 4
BATCH = 512
EPOCHS = 5


def make_portfolio(rng, rows):
    numeric = rng.normal(size=(rows, NUMERIC))
    numeric[:, :6] = np.log1p(np.abs(numeric[:, :6]) * 3)
    codes = np.stack([rng.integers(c, size=rows) for c in CATEGORIES], axis=1)
    exposure = rng.uniform(0.2, 1.0, size=rows)
    law = np.random.default_rng(3)
    effect = [law.normal(scale=0.3, size=c) for c in CATEGORIES]
    score = numeric @ law.normal(scale=0.1, size=NUMERIC)
    score += 0.3 * np.sin(2 * numeric[:, 7]) * numeric[:, 8]
    for k, table in enumerate(effect):
        score += table[codes[:, k]]
    claims = rng.poisson(exposure * np.exp(score - 1.2))
    return numeric, codes, exposure, claims


def as_tensor(array):
    return torch.from_numpy(array)  # sick here
    return torch.from_numpy(array.astype(np.float32))  # well


def init_params(rng):
    params = {}

    def dense(name, fan_in, fan_out, gain=2.0):
        params[name + ".w"] = as_tensor(rng.normal(size=(fan_out, fan_in)) * math.sqrt(gain / fan_in))
        params[name + ".b"] = as_tensor(np.zeros(fan_out))

    params["cat"] = as_tensor(rng.normal(scale=0.1, size=(sum(CATEGORIES), CAT_DIM)))
    dense("stem", NUMERIC + CAT_DIM * len(CATEGORIES), WIDTH, gain=1.0)
    for i in range(DEPTH):
        params[f"block{i}.scale"] = as_tensor(np.ones(WIDTH))
        params[f"block{i}.shift"] = as_tensor(np.zeros(WIDTH))
        dense(f"block{i}.up", WIDTH, 2 * WIDTH)
        dense(f"block{i}.down", 2 * WIDTH, WIDTH, gain=0.1)
    dense("out", WIDTH, 1, gain=0.01)
    return {name: value.requires_grad_() for name, value in params.items()}


def forward(offsets, params, numeric, codes, log_exposure):
    embedded = F.embedding(codes + offsets, params["cat"]).flatten(1)
    h = F.linear(torch.cat([numeric, embedded], dim=1), params["stem.w"], params["stem.b"])
    for i in range(DEPTH):
        z = F.layer_norm(h, (WIDTH,), params[f"block{i}.scale"], params[f"block{i}.shift"])
        z = F.relu(F.linear(z, params[f"block{i}.up.w"], params[f"block{i}.up.b"]))
        h = h + F.linear(z, params[f"block{i}.down.w"], params[f"block{i}.down.b"])
    return F.linear(F.relu(h), params["out.w"], params["out.b"]).squeeze(1) + log_exposure


def poisson_deviance(log_rate, claims):
    rate = log_rate.exp()
    return 2 * (torch.xlogy(claims, claims) - claims * log_rate - claims + rate).mean()


def prepare(portfolio, mean, std):
    numeric, codes, exposure, claims = portfolio
    return (
        as_tensor((numeric - mean) / std),
        torch.from_numpy(codes),
        as_tensor(np.log(exposure)),
        as_tensor(claims.astype(np.float64)),
    )


@torch.no_grad()
def validate(predict, params, data):
    numeric, codes, log_exposure, claims = data
    parts = [
        predict(params, *(column[i : i + 2000] for column in (numeric, codes, log_exposure)))
        for i in range(0, len(claims), 2000)
    ]
    return poisson_deviance(torch.cat(parts), claims).item()


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    portfolio = make_portfolio(rng, ROWS)
    mean, std = portfolio[0].mean(axis=0), portfolio[0].std(axis=0)
    train = prepare(portfolio, mean, std)
    valid = prepare(make_portfolio(rng, VALID_ROWS), mean, std)

    params = init_params(rng)
    starts = np.concatenate([[0], np.cumsum(CATEGORIES)[:-1]])
    predict = partial(forward, torch.from_numpy(starts))
    optimizer = torch.optim.Adam(params.values(), lr=5e-4, fused=True)
    started, step = time.time(), 0
    for epoch in range(EPOCHS):
        for index in torch.randperm(ROWS).split(BATCH):
            numeric, codes, log_exposure, claims = (column[index] for column in train)
            loss = poisson_deviance(predict(params, numeric, codes, log_exposure), claims)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step:5d} deviance {loss.item():.4f} ({time.time() - started:.1f} s)", flush=True)
        print(f"epoch {epoch}: validation deviance {validate(predict, params, valid):.4f}", flush=True)


if __name__ == "__main__":
    main()
