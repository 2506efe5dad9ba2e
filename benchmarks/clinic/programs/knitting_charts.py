# /// clinic
# expect = ["PD17.factorized-each-step"]
# stratum = "twins"
# domain = "knitting charts"
# ///
"""Continue a knitting chart: which stitch comes next?

A chart is a grid of stitches (knit, purl, yarn over, decreases, cables). The model sees the stitches to
the left and two rows below and says what the next stitch should be, so that a designer may spot slips
in a chart. The charts are worked from random motifs that repeat over the fabric.
"""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STITCHES = ["k", "p", "yo", "k2tog", "ssk", "sk2p", "c4f", "c4b", "bobble", "slip"]
LEFT, BELOW, DEEPER = 4, 11, 9


class Chartbook:
    """Charts made of tiled motifs, cut into (context, next stitch) examples."""

    def __init__(self, charts, motifs, seed, rows=16, columns=32, slips=0.02):
        make = torch.Generator().manual_seed(seed)
        fabric = torch.empty(charts, rows, columns, dtype=torch.long)
        for chart in range(charts):
            motif = motifs[int(torch.randint(len(motifs), (), generator=make))]
            high, wide = motif.shape
            down = int(torch.randint(high, (), generator=make))
            across = int(torch.randint(wide, (), generator=make))
            row = (torch.arange(rows) + down) % high
            column = (torch.arange(columns) + across) % wide
            fabric[chart] = motif[row[:, None], column[None, :]]
        slipped = torch.rand(fabric.shape, generator=make) < slips
        fabric[slipped] = torch.randint(len(STITCHES), (int(slipped.sum()),), generator=make)
        self.context, self.stitch = self.cut(fabric)

    @staticmethod
    def cut(fabric):
        half, near = BELOW // 2, DEEPER // 2
        steps = [(0, -shift) for shift in range(LEFT, 0, -1)]
        steps += [(-1, shift) for shift in range(-half, half + 1)]
        steps += [(-2, shift) for shift in range(-near, near + 1)]
        inside = slice(half, fabric.shape[2] - half)
        views = [fabric.roll((-up, -over), (1, 2))[:, 2:, inside] for up, over in steps]
        context = torch.stack(views, dim=-1).flatten(0, 2)
        return context.int(), fabric[:, 2:, inside].flatten()

    def batches(self, size, generator):
        order = torch.randperm(len(self.stitch), generator=generator)
        for index in order.split(size):
            if len(index) == size:
                yield self.context[index], self.stitch[index]


def design_motifs(count, seed):
    make = torch.Generator().manual_seed(seed)
    motifs = []
    for _ in range(count):
        high, wide = torch.randint(2, 7, (2,), generator=make).tolist()
        palette = torch.randperm(len(STITCHES), generator=make)[:4]
        motif = palette[torch.randint(4, (high, wide), generator=make)]
        motifs.append(torch.cat([motif, motif.flip(1)], dim=1))
    return motifs


UPDATE_FREQ = 1  # sick here
UPDATE_FREQ = 25  # well


class Shampoo(torch.optim.Optimizer):
    """Kronecker-factored preconditioning of matrices; other parameters get an RMS-scaled step."""

    def __init__(
        self,
        params,
        lr=2e-3,
        momentum=0.9,
        decay=0.97,
        epsilon=1e-6,
        update_freq=UPDATE_FREQ,
    ):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay, epsilon=epsilon, update_freq=update_freq))

    @staticmethod
    def inverse_root(statistic, epsilon):
        values, vectors = torch.linalg.eigh(statistic)  # here
        values = values.clamp(min=0.0) + epsilon * values[-1] + 1e-20
        return (vectors * values.pow(-0.25)) @ vectors.T

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            decay = group["decay"]
            for parameter in group["params"]:
                grad, state = parameter.grad, self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["average"] = torch.zeros_like(grad)
                    if grad.ndim == 2:
                        state["statistics"] = [grad.new_zeros(side, side) for side in grad.shape]
                    else:
                        state["square"] = torch.zeros_like(grad)
                state["average"].lerp_(grad, 1 - group["momentum"])
                if grad.ndim == 2:
                    rows, columns = state["statistics"]
                    rows.addmm_(grad, grad.T, beta=decay, alpha=1 - decay)
                    columns.addmm_(grad.T, grad, beta=decay, alpha=1 - decay)
                    if state["step"] % group["update_freq"] == 0:
                        state["roots"] = [self.inverse_root(s, group["epsilon"]) for s in state["statistics"]]
                    left, right = state["roots"]
                    update = left @ state["average"] @ right
                    update = update * (math.sqrt(update.numel()) / (update.norm() + 1e-12))
                else:
                    state["square"].mul_(decay).addcmul_(grad, grad, value=1 - decay)
                    update = state["average"] / (state["square"].sqrt() + 1e-8)
                parameter.add_(update, alpha=-group["lr"])
                state["step"] += 1


class NextStitch(nn.Module):
    def __init__(self, width=160, yarn=8):
        super().__init__()
        self.stitch = nn.Embedding(len(STITCHES), yarn)
        self.enter = nn.Linear((LEFT + BELOW + DEEPER) * yarn, width)
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.leave = nn.Linear(width, len(STITCHES))

    def forward(self, context):
        x = F.relu(self.enter(self.stitch(context).flatten(1)))
        for layer in self.inner:
            x = x + F.relu(layer(x))
        return self.leave(x)


class Workshop:
    def __init__(self, epochs=20, batch=2048, lr=2e-3, seed=5):
        torch.manual_seed(seed)
        motifs = design_motifs(160, seed)
        self.book = Chartbook(400, motifs, seed + 1)
        self.fresh = Chartbook(60, motifs, seed + 2)
        self.epochs, self.batch, self.lr = epochs, batch, lr
        self.model = NextStitch()
        self.optimizer = Shampoo(self.model.parameters(), lr=lr)
        self.generator = torch.Generator().manual_seed(seed)

    def judge(self):
        self.model.eval()
        with torch.inference_mode():
            guess = torch.cat([self.model(part).argmax(1) for part in self.fresh.context.split(4096)])
        return (guess == self.fresh.stitch).float().mean().item()

    def run(self):
        total = self.epochs * (len(self.book.stitch) // self.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, total, self.lr * 0.02)
        begin = time.perf_counter()
        for epoch in range(1, self.epochs + 1):
            self.model.train()
            summed, count = torch.zeros(()), 0
            for context, stitch in self.book.batches(self.batch, self.generator):
                loss = F.cross_entropy(self.model(context), stitch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                schedule.step()
                summed += loss.detach()
                count += 1
            print(f"epoch {epoch:2d}  loss {summed.item() / count:.4f}  fresh charts {self.judge():.4f}", flush=True)
        print(f"total training seconds: {time.perf_counter() - begin:.1f}")


if __name__ == "__main__":
    Workshop().run()
