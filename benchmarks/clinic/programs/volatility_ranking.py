# /// clinic
# expect = ["PD15.growing-work"]
# stratum = "twins"
# domain = "finance: walk-forward volatility forecasts"
# ///
"""Walk-forward volatility forecasts: every trading day the net is updated on the latest week and then
forecasts tomorrow for all stocks.  Features are standardised per stock with what was known up to that day,
so that nothing from the future leaks into the training.
"""

import math
import time

import torch
import torch.nn.functional as F


DAYS = 1400
STOCKS = 240
FEATURES = 24
WEEK = 5
WARMUP = 120
HIDDEN = 256


def make_market(seed):
    """Log-volatility follows a mean-reverting walk per stock; features are noisy lagged views of it."""
    gen = torch.Generator().manual_seed(seed)
    shocks = torch.randn(DAYS, STOCKS, generator=gen) * 0.2 + torch.randn(DAYS, 1, generator=gen) * 0.15
    level = torch.empty(DAYS, STOCKS)
    now = torch.zeros(STOCKS)
    for day in range(DAYS):
        now = 0.95 * now + shocks[day]
        level[day] = now
    loading = torch.randn(FEATURES, generator=gen) * 0.7
    scale = torch.rand(STOCKS, FEATURES, generator=gen) * 3 + 0.5
    panel = level.unsqueeze(2) * loading + torch.randn(DAYS, STOCKS, FEATURES, generator=gen)
    return panel * scale + scale, level


def init_params():
    def layer(fan_in, fan_out):
        weight = torch.randn(fan_out, fan_in) * math.sqrt(2.0 / fan_in)
        return weight.requires_grad_(), torch.zeros(fan_out).requires_grad_()

    return [layer(FEATURES, HIDDEN), layer(HIDDEN, HIDDEN), layer(HIDDEN, 1)]


def forecast(params, x):
    for weight, bias in params[:-1]:
        x = F.silu(F.linear(x, weight, bias))
    return F.linear(x, *params[-1]).squeeze(-1)


def loss_fn(params, x, target):
    """Squared error plus a term that wants the cross-section in the right order."""
    guess = forecast(params, x)
    centred_guess = guess - guess.mean(1, keepdim=True)
    centred_target = target - target.mean(1, keepdim=True)
    agreement = F.cosine_similarity(centred_guess, centred_target, dim=1)
    return F.mse_loss(guess, target) + 0.5 * (1 - agreement).mean(), guess


def start_moments(panel, day):
    past = panel[:day].double()
    return day, past.mean(0), (past - past.mean(0)).square().sum(0)


def add_day(moments, row):
    count, mean, spread = moments
    row = row.double()
    delta = row - mean
    mean = mean + delta / (count + 1)
    return count + 1, mean, spread + delta * (row - mean)


def known_scale(panel, day, moments):
    """Mean and standard deviation of each stock's features over the days up to and including `day`."""
    std, mean = torch.std_mean(panel[: day + 1], dim=0)  # sick here
    return mean, std, moments  # sick
    moments = add_day(moments, panel[day])  # well
    count, mean, spread = moments  # well
    return mean.float(), (spread / (count - 1)).sqrt().float(), moments  # well


def walk_forward(panel, level):
    params = init_params()
    flat = [p for layer in params for p in layer]
    optimizer = torch.optim.AdamW(flat, lr=5e-4, fused=True)
    moments = start_moments(panel, WARMUP)
    hits = torch.zeros(())
    begun = time.perf_counter()
    for day in range(WARMUP, DAYS - 1):
        mean, std, moments = known_scale(panel, day, moments)  # here
        window = slice(day - WEEK, day)
        x = ((panel[window] - mean) / std).clamp_(-5, 5)
        target = level[day - WEEK + 1 : day + 1]
        for _ in range(2):
            loss, _ = loss_fn(params, x, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        with torch.no_grad():
            tomorrow = forecast(params, ((panel[day] - mean) / std).clamp_(-5, 5))
            riskiest = tomorrow.topk(24).indices
            hits += torch.isin(riskiest, level[day + 1].topk(24).indices).float().mean()
        if day % 100 == 0:
            share = hits.item() / (day - WARMUP + 1)
            print(
                f"day {day:5d} loss {loss.item():.4f} hit rate {share:.3f} {time.perf_counter() - begun:6.1f} s",
                flush=True,
            )


def main():
    torch.manual_seed(2)
    panel, level = make_market(seed=4)
    walk_forward(panel, level)


if __name__ == "__main__":
    main()
