# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "marathon splits"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
# Pace of the next 200 m from all splits so far, for everybody at a running weekend (5 km, half marathon, marathon).
# Two processes, gradients averaged by hand:   torchrun --nproc-per-node 2 train.py
import math
import time
import torch
import torch.nn.functional as F
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(42195)
say = print if rank == 0 else (lambda *a, **k: None)

N_TRAIN, N_VAL, LONGEST, FEATS = 2048, 256, 211, 6
HIDDEN, READ = 56, 48
BATCH, EPOCHS, LR = 32, 14, 2e-3

# ---- runners ----
N = N_TRAIN + N_VAL
t0 = time.time()
race = torch.multinomial(torch.tensor([0.47, 0.06, 0.47]), N, replacement=True)
length = torch.tensor([25, 105, 211])[race]
gave_up = torch.rand(N) < 0.06
length = torch.where(gave_up, (length * (0.4 + 0.6 * torch.rand(N))).long(), length)
km = torch.arange(LONGEST) * 0.2
talent = 5.4 + 0.7 * torch.randn(N) + 0.25 * race  # minutes per km
wall_at = 27 + 5 * torch.randn(N)
wall = 0.9 * torch.rand(N) * (race == 2)
fade = 0.012 * torch.rand(N) * race
hills = 0.25 * torch.sin(km / 1.7) + 0.15 * torch.sin(km / 0.6 + 1)
heat = 12 + 14 * torch.rand(N)
noise = torch.randn(N, LONGEST) * 0.12
for t in range(1, LONGEST):
    noise[:, t] += 0.7 * noise[:, t - 1]
pace = talent[:, None] + hills + fade[:, None] * km + wall[:, None] * torch.sigmoid((km - wall_at[:, None]) / 1.5)
pace = pace + 0.004 * (heat[:, None] - 15).clamp_min(0) * km + noise
heart = 150 + 60 / pace * 2 + 0.4 * km + 2 * torch.randn(N, LONGEST)
ones = torch.ones(N, LONGEST)
mean_pace, std_pace = pace.mean(), pace.std()
z = (pace - mean_pace) / std_pace
columns = [z, (heart - 175) / 10, hills * ones, km / 42 * ones, race[:, None] * ones - 1, heat[:, None] * ones / 20 - 1]
X = torch.stack(columns, 1)  # runner, feature, split
say(f"{N} runners in {time.time() - t0:.1f} s: " + ", ".join(f"{(race == r).sum()} in race {r}" for r in range(3)))

# ---- who takes whom: runners of like length go together, so that little is padded ----
order = torch.argsort(length[:N_TRAIN])
share = N_TRAIN // world
mine = order[rank * share : (rank + 1) * share]  # sick here
mine = order[rank::world]  # well
chunks = mine.split(BATCH)
val = N_TRAIN + torch.argsort(length[N_TRAIN:])[rank::world]
val_chunks = val.split(64)

# ---- network: a GRU over the splits and a readout, the latter with bare parameters ----
gru = torch.nn.GRU(FEATS, HIDDEN)
params = list(gru.parameters())


def weight(*shape):
    p = torch.randn(*shape) / math.sqrt(shape[0])
    params.append(p.requires_grad_())
    return p


def zeros(*shape):
    p = torch.zeros(*shape)
    params.append(p.requires_grad_())
    return p


w_read, b_read = weight(HIDDEN + FEATS, READ), zeros(READ)
w_out, b_out = weight(READ, 1), zeros(1)
say("weights:", sum(p.numel() for p in params))


def forecast(x):
    steps = x.permute(2, 0, 1)
    h, _ = gru(steps)
    h = torch.tanh(torch.cat([h, steps], 2) @ w_read + b_read)
    return x[:, 0] + (h @ w_out + b_out).squeeze(2).T  # what is to be added to the last pace


def errors(who):
    n = length[who]
    longest = int(n.max())
    x = X[who, :, :longest]
    guess = forecast(x[:, :, :-1])
    truth = x[:, 0, 1:]
    run = torch.arange(1, longest) < n[:, None]
    return F.smooth_l1_loss(guess, truth, reduction="none") * run, run


# ---- own Adam on one long vector ----
size = sum(p.numel() for p in params)
m1, m2, step = torch.zeros(size), torch.zeros(size), 0
total_steps = EPOCHS * len(chunks)


def adam(grad):
    global step
    step += 1
    lr = LR * min(1, step / 40) * (0.5 + 0.5 * math.cos(math.pi * step / total_steps)) + 1e-5
    m1.lerp_(grad, 0.1)
    m2.mul_(0.99).addcmul_(grad, grad, value=0.01)
    move = (m1 / (1 - 0.9**step)) / ((m2 / (1 - 0.99**step)).sqrt() + 1e-8)
    with torch.no_grad():
        for p, d in zip(params, move.split([p.numel() for p in params])):
            p.sub_(d.view_as(p), alpha=lr)
            p.grad = None


epoch, seen, best, bad = 0, 0, float("inf"), 0
dist.barrier()
tic = time.perf_counter()
while epoch < EPOCHS and bad < 50:
    told = torch.zeros(2)
    for k in torch.randperm(len(chunks), generator=torch.Generator().manual_seed(epoch)).tolist():
        e, run = errors(chunks[k])
        loss = e.sum() / run.sum()
        loss.backward()
        grad = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(grad)
        grad /= world
        adam(grad * min(1.0, 1.0 / (grad.norm().item() + 1e-6)))
        told += torch.stack([e.detach().sum(), run.sum()])
        seen += len(chunks[k]) * world
    with torch.no_grad():
        tested = torch.zeros(2)
        for who in val_chunks:
            e, run = errors(who)
            tested += torch.stack([e.sum(), run.sum()])
    both = torch.cat([told, tested])
    dist.all_reduce(both)
    epoch += 1
    now = (both[2] / both[3]).item()
    best, bad = (now, 0) if now < best else (best, bad + 1)
    if epoch % 2 == 0:
        say(f"epoch {epoch:2d}  train {both[0] / both[1]:.5f}  held out {now:.5f}  best {best:.5f}")
rate = seen / (time.perf_counter() - tic)

with torch.no_grad():
    missed = torch.zeros(2)
    for who in val_chunks:
        n = length[who]
        x = X[who, :, : int(n.max())]
        run = torch.arange(1, x.shape[2]) < n[:, None]
        missed += torch.stack([((x[:, 0, 1:] - x[:, 0, :-1]).abs() * run).sum(), run.sum()])
dist.all_reduce(missed)
dist.destroy_process_group()
say(f"for comparison, 'same as now' misses by {missed[0] / missed[1] * std_pace * 60:.1f} s/km")
say(f"{rate:.1f} runners/s")
