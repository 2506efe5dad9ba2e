# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "beaver dams"
# ///
# Will the dams of a beaver family hold through the spring flood?
# Every stream reach is a small tree of ponds, one prediction per reach. Message passing written by hand.
import math
import random
import time
import torch
import torch.nn.functional as F
from torch import nn

random.seed(11)
torch.manual_seed(11)
N_REACH, PER_BATCH, WIDTH, LAYERS, EPOCHS = 720, 48, 96, 3, 36
FEATS = ["slope", "stream width", "willow", "catchment", "dam height", "dam age", "mud share", "road distance"]


def make_reach():
    n = random.randint(20, 40)
    # pond i drains into parent[i] further down the valley
    parent = [0] + [random.randint(max(0, i - 4), i - 1) for i in range(1, n)]
    x = torch.randn(n, len(FEATS))
    x[:, 3] = x[:, 3].abs() + torch.linspace(2, 0, n)
    x[:, 4] = 0.5 * x[:, 4] + 0.4 * x[:, 6]
    up = torch.arange(1, n)
    down = torch.tensor(parent[1:])
    fall = (x[up, 0] - x[down, 0]).abs()
    edge = torch.stack([fall, x[up, 1] - x[down, 1], torch.rand(n - 1)], 1)
    src = torch.cat([up, down])
    dst = torch.cat([down, up])
    way = torch.cat([torch.ones(n - 1), -torch.ones(n - 1)])
    edge = torch.cat([torch.cat([edge, edge]), way[:, None]], 1)
    # load on a dam: own catchment plus what comes down from the ponds above
    load = x[:, 3].clone()
    for i in range(n - 1, 0, -1):
        load[parent[i]] += 0.3 * load[i] * torch.sigmoid(-x[i, 4])
    strength = 1.2 * x[:, 4] + 0.8 * x[:, 6] + 0.4 * x[:, 2] - 0.3 * x[:, 5]
    score = (strength - 0.35 * load).mean() + 0.1 * torch.randn(())
    return x, src, dst, edge, score


t_make = time.time()
reaches = [make_reach() for _ in range(N_REACH)]
middle = torch.stack([r[4] for r in reaches]).median()


def collate(chunk):
    sizes = torch.tensor([len(r[0]) for r in chunk])
    shift = torch.cumsum(sizes, 0) - sizes
    x = torch.cat([r[0] for r in chunk])
    src = torch.cat([r[1] + s for r, s in zip(chunk, shift)])
    dst = torch.cat([r[2] + s for r, s in zip(chunk, shift)])
    edge = torch.cat([r[3] for r in chunk])
    reach = torch.repeat_interleave(torch.arange(len(chunk)), sizes)
    y = torch.tensor([float(r[4] > middle) for r in chunk])
    return x, src, dst, edge, reach, sizes.float(), y


batches = [collate(reaches[i : i + PER_BATCH]) for i in range(0, N_REACH, PER_BATCH)]
train, held_out = batches[:-3], batches[-3:]
print(f"{N_REACH} reaches, {sum(len(r[0]) for r in reaches)} ponds, made in {time.time() - t_make:.1f} s")

embed = nn.Linear(len(FEATS), WIDTH)
message = nn.ModuleList([nn.Linear(2 * WIDTH + 4, WIDTH) for _ in range(LAYERS)])
update = nn.ModuleList([nn.Linear(2 * WIDTH, WIDTH) for _ in range(LAYERS)])
norm = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(LAYERS)])
vote = nn.Linear(WIDTH * (LAYERS + 1), 64)
last = nn.Linear(64, 1)
everything = nn.ModuleList([embed, message, update, norm, vote, last])
optimizer = torch.optim.Adam(everything.parameters(), lr=1e-3, weight_decay=1e-5)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + math.cos(math.pi * e / EPOCHS)) + 0.02)
print("parameters:", sum(p.numel() for p in everything.parameters()))


def per_reach(h, reach, sizes):
    """mean of the pond states of every reach"""
    return torch.stack([h[reach == r].mean(0) for r in range(len(sizes))])  # sick here
    return torch.zeros(len(sizes), h.shape[1]).index_add(0, reach, h) / sizes[:, None]  # well


def predict(x, src, dst, edge, reach, sizes):
    h = F.relu(embed(x))
    levels = [per_reach(h, reach, sizes)]
    for i in range(LAYERS):
        m = F.relu(message[i](torch.cat([h[src], h[dst], edge], 1)))
        inflow = torch.zeros_like(h).index_add(0, dst, m)
        h = norm[i](h + F.relu(update[i](torch.cat([h, inflow], 1))))
        levels.append(per_reach(h, reach, sizes))
    z = F.relu(vote(torch.cat(levels, 1)))
    return last(F.dropout(z, 0.1, everything.training)).squeeze(1)


@torch.no_grad()
def check():
    everything.eval()
    logits = torch.cat([predict(*b[:-1]) for b in held_out])
    truth = torch.cat([b[-1] for b in held_out])
    everything.train()
    right = ((logits > 0) == (truth > 0.5)).float().mean()
    return F.binary_cross_entropy_with_logits(logits, truth).item(), right.item()


best, best_state, bad, patience, epoch, seen = float("inf"), None, 0, 1000, 0, 0
started = time.perf_counter()
while epoch < EPOCHS and bad < patience:
    running = torch.zeros(())
    for k in torch.randperm(len(train)).tolist():
        x, src, dst, edge, reach, sizes, y = train[k]
        x = x + 0.02 * torch.randn_like(x)
        loss = F.binary_cross_entropy_with_logits(predict(x, src, dst, edge, reach, sizes), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(everything.parameters(), 2.0)
        optimizer.step()
        running += loss.detach()
        seen += len(y)
    schedule.step()
    val, acc = check()
    if val < best - 1e-4:
        best, bad = val, 0
        best_state = {k: v.clone() for k, v in everything.state_dict().items()}
    else:
        bad += 1
    epoch += 1
    if epoch % 4 == 0:
        print(f"epoch {epoch:3d}  train {running.item() / len(train):.4f}  held out {val:.4f}  right {acc:.3f}")
rate = seen / (time.perf_counter() - started)

everything.load_state_dict(best_state)
print(f"best held-out loss {check()[0]:.4f}, accuracy {check()[1]:.3f}")
print(f"{rate:.1f} reaches/s")
