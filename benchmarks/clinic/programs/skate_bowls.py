# /// clinic
# expect = ["PD17.gradients-without-optimizer", "PD08.unused-gradients"]
# stratum = "twins"
# domain = "skate parks"
# ///
# A skater learns to pump through the bowls of a skate park: TD3 with bare tensors.
# Many parks side by side, the ground of each is a sum of a few round bowls; the skater steers and pumps.
import copy
import math
import time
import torch
import torch.nn.functional as F

torch.manual_seed(540)
PARKS, BOWLS, DT, G = 48, 4, 0.08, 9.8
OBS, ACT, HIDDEN, BATCH = 14, 2, 320, 384
STEPS, WARM, EVERY = 1100, 60, 220
GAMMA, TAU, NOISE, CLIP, DELAY, LR = 0.98, 0.005, 0.2, 0.5, 2, 7e-4


def new_parks(n):
    where = torch.rand(n, BOWLS, 2) * 12 - 6
    return where, torch.rand(n, BOWLS) * 1.6 + 0.8, torch.rand(n, BOWLS) + 1.6  # middle, depth, width


def ground(parks, xy):
    """height and slope of the concrete under the board"""
    where, depth, wide = parks
    d = xy[:, None, :] - where
    dip = -depth * torch.exp(-(d**2).sum(2) / (2 * wide**2))
    slope = (-dip / wide**2)[..., None] * d
    return dip.sum(1), slope.sum(1)


def start(n):
    return torch.cat([torch.randn(n, 2) * 2, torch.randn(n, 2), torch.ones(n, 1)], 1)


def observe(parks, s):
    xy, v, breath = s[:, :2], s[:, 2:4], s[:, 4:5]
    h, slope = ground(parks, xy)
    ahead, slope2 = ground(parks, xy + 4 * DT * v)
    near = (parks[0] - xy[:, None]).norm(dim=2).min(1).values
    speed = v.norm(dim=1, keepdim=True)
    parts = [xy / 6, v / 4, breath, h[:, None], slope, ahead[:, None], slope2, near[:, None] / 6, speed / 4]
    return torch.cat([*parts, (v * slope).sum(1, keepdim=True) / 4], 1)


def ride(parks, s, a):
    """one step: state, reward, fallen"""
    xy, v, breath = s[:, :2], s[:, 2:4], s[:, 4]
    h, slope = ground(parks, xy)
    speed = v.norm(dim=1).clamp_min(1e-3)
    along = v / speed[:, None]
    across = torch.stack([-along[:, 1], along[:, 0]], 1)
    effort = (a[:, 0].clamp(0, 1) * breath)[:, None]
    pump = 2.5 * effort * (1 + 1.5 * slope.norm(dim=1, keepdim=True)) * along
    v = v + DT * (-G * slope + pump + 3.0 * a[:, 1:] * speed[:, None] * across - 0.12 * v)
    xy = xy + DT * v
    breath = (breath - 0.06 * effort[:, 0] + 0.02).clamp(0, 1)
    fallen = (xy.abs().amax(1) > 8) | (v.norm(dim=1) > 11)
    reward = 0.15 * v.norm(dim=1) + 0.4 * slope.norm(dim=1) - 0.05 * (a**2).sum(1) - 3.0 * fallen.float()
    return torch.cat([xy, v, breath[:, None]], 1), reward, fallen.float()


def layers(*sizes):
    made = []
    for i, o in zip(sizes, sizes[1:]):
        bound = 1 / math.sqrt(i)
        made += [torch.empty(i, o).uniform_(-bound, bound), torch.empty(o).uniform_(-bound, bound)]
    return [p.requires_grad_() for p in made]


def mlp(p, x):
    for w, b in zip(p[:-2:2], p[1:-2:2]):
        x = F.relu(torch.addmm(b, x, w))
    return torch.addmm(p[-1], x, p[-2])


actor = layers(OBS, HIDDEN, HIDDEN, ACT)
critic1, critic2 = layers(OBS + ACT, HIDDEN, HIDDEN, 1), layers(OBS + ACT, HIDDEN, HIDDEN, 1)
actor_t, critic1_t, critic2_t = copy.deepcopy(actor), copy.deepcopy(critic1), copy.deepcopy(critic2)
policy = lambda p, s: torch.tanh(mlp(p, s))
value = lambda p, s, a: mlp(p, torch.cat([s, a], 1)).squeeze(1)
opt_a, opt_c = torch.optim.Adam(actor, lr=LR), torch.optim.Adam(critic1 + critic2, lr=LR)

# replay memory: plain tensors and a pointer
SIZE = 40 * 1000 // PARKS * PARKS
mem_s, mem_a, mem_s2 = torch.zeros(SIZE, OBS), torch.zeros(SIZE, ACT), torch.zeros(SIZE, OBS)
mem_r, mem_d = torch.zeros(SIZE), torch.zeros(SIZE)
fill, pointer = 0, 0


@torch.no_grad()
def judge(n=64, length=60):
    parks = new_parks(n)
    s = start(n)
    alive = torch.ones(n)
    total = torch.zeros(n)
    for _ in range(length):
        s, r, fallen = ride(parks, s, policy(actor, observe(parks, s)))
        total += alive * r
        alive = alive * (1 - fallen)
    return total.mean().item(), alive.mean().item()


print("before training: return {:.2f}, still standing {:.2f}".format(*judge()))
parks = new_parks(PARKS)
state = start(PARKS)
age = torch.zeros(PARKS)
step = -WARM
losses = []
clock = None
while step < STEPS:
    with torch.no_grad():
        obs = observe(parks, state)
        act = torch.rand(PARKS, ACT) * 2 - 1 if step < 0 else policy(actor, obs) + 0.15 * torch.randn(PARKS, ACT)
        act = act.clamp(-1, 1)
        state, reward, fallen = ride(parks, state, act)
        age += 1
        into = slice(pointer, pointer + PARKS)
        mem_s[into], mem_a[into], mem_s2[into] = obs, act, observe(parks, state)
        mem_r[into], mem_d[into] = reward, fallen
        pointer = (pointer + PARKS) % SIZE
        fill = min(SIZE, fill + PARKS)
        over = (fallen > 0) | (age > 120)
        state = torch.where(over[:, None], start(PARKS), state)
        age = torch.where(over, torch.zeros(()), age)
    step += 1
    if step <= 0:
        continue
    clock = clock or time.perf_counter()
    i = torch.randint(fill, (BATCH,))
    s, a, r, s2, dead = mem_s[i], mem_a[i], mem_r[i], mem_s2[i], mem_d[i]
    smooth = (NOISE * torch.randn(BATCH, ACT)).clamp(-CLIP, CLIP)
    with torch.no_grad():  # well
        a2 = (policy(actor_t, s2) + smooth).clamp(-1, 1)  # well
        y = r + GAMMA * (1 - dead) * torch.minimum(value(critic1_t, s2, a2), value(critic2_t, s2, a2))  # well
    a2 = (policy(actor_t, s2) + smooth).clamp(-1, 1)  # sick here
    y = r + GAMMA * (1 - dead) * torch.minimum(value(critic1_t, s2, a2), value(critic2_t, s2, a2))  # sick here
    loss_c = F.mse_loss(value(critic1, s, a), y) + F.mse_loss(value(critic2, s, a), y)
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    losses.append(loss_c.detach())
    if step % DELAY == 0:
        loss_a = -value(critic1, s, policy(actor, s)).mean()
        opt_a.zero_grad()
        loss_a.backward(inputs=actor)
        opt_a.step()
        with torch.no_grad():
            for mine, target in zip(actor + critic1 + critic2, actor_t + critic1_t + critic2_t):
                target.lerp_(mine, TAU)
    if step % EVERY == 0:
        score, standing = judge()
        error = torch.stack(losses[-EVERY:]).mean()
        print(f"step {step:5d}  critic loss {error:.3f}  return {score:.2f}  still standing {standing:.2f}")
rate = STEPS * BATCH / (time.perf_counter() - clock)

score, standing = judge(256, 100)
print(f"256 unknown parks, 100 steps: return {score:.2f}, still standing {standing:.2f}, memory {fill}")
print(f"{rate:.1f} samples/s")
