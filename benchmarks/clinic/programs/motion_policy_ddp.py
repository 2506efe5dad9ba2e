# /// clinic
# expect = ["PD19.buffers-broadcast"]
# stratum = "twins"
# domain = "robotics"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Imitate a motion planner for a five-joint arm, with a collision term looked up in a distance field of the workspace.

Start with: torchrun --standalone --nproc-per-node 2 job.py
"""

import math
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler


JOINTS = 5
LINK = 0.22
HORIZON = 8
VOXELS = 144
BATCH = 128
STEPS = 900


def workspace_distance_field(n_voxels, n_spheres=6, seed=3):
    """Signed distance to a clutter of spheres on a regular grid over [-1.2, 1.2]^3."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1.2, 1.2, n_voxels)
    field = torch.full((n_voxels,) * 3, 1e3)
    for _ in range(n_spheres):
        direction = F.normalize(torch.randn(3, generator=g), dim=0)
        x, y, z = direction * (0.6 + 0.4 * torch.rand((), generator=g))
        radius = 0.08 + 0.12 * torch.rand((), generator=g)
        square = ((axis - z) ** 2)[:, None, None] + ((axis - y) ** 2)[None, :, None] + ((axis - x) ** 2)[None, None, :]
        torch.minimum(field, square.sqrt_().sub_(radius), out=field)
    return field[None, None]


def forward_kinematics(q):
    """Points along an arm with alternating yaw and pitch joints: (..., JOINTS) -> (..., 2 * JOINTS, 3)."""
    yaw = torch.cumsum(q[..., 0::2], -1).repeat_interleave(2, -1)[..., :JOINTS]
    pitch = torch.cumsum(F.pad(q[..., 1::2], (1, 0)), -1).repeat_interleave(2, -1)[..., :JOINTS]
    link = LINK * torch.stack([yaw.cos() * pitch.cos(), yaw.sin() * pitch.cos(), pitch.sin()], -1)
    ends = torch.cumsum(link, -2)
    return torch.cat([ends, ends - 0.5 * link], -2)


class DemonstrationSet(Dataset):
    """Start and goal configurations with the waypoints that the planner put between them."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        limit = 0.8 * math.pi
        self.start = (torch.rand(n, JOINTS, generator=g) * 2 - 1) * limit
        self.goal = (torch.rand(n, JOINTS, generator=g) * 2 - 1) * limit
        s = torch.linspace(0, 1, HORIZON + 1)[1:].view(1, -1, 1)
        ease = 3 * s**2 - 2 * s**3
        detour = torch.sin(self.start + 2 * self.goal).unsqueeze(1) * torch.sin(math.pi * s) * 0.4
        self.path = self.start.unsqueeze(1) * (1 - ease) + self.goal.unsqueeze(1) * ease + detour

    def __len__(self):
        return len(self.start)

    def __getitems__(self, indices):
        return self.start[indices], self.goal[indices], self.path[indices]


class MotionPolicy(nn.Module):
    """Maps (start, goal) to waypoints; also measures how far the arm is from the obstacles on the way."""

    def __init__(self, field, width=384, depth=4):
        super().__init__()
        layers = [nn.Linear(6 * JOINTS, width), nn.SiLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, HORIZON * JOINTS))
        self.register_buffer("field", field)
        self.register_buffer("blend", torch.linspace(0, 1, HORIZON + 1)[1:].view(1, -1, 1))

    def clearance(self, q):
        points = forward_kinematics(q) / 1.2
        grid = points.reshape(1, -1, 1, 1, 3)
        dist_to = F.grid_sample(self.field, grid, align_corners=True, padding_mode="border")
        return dist_to.view(points.shape[:-1])

    def forward(self, start, goal):
        x = torch.cat([start.sin(), start.cos(), start, goal.sin(), goal.cos(), goal], -1)
        line = torch.lerp(start.unsqueeze(1), goal.unsqueeze(1), self.blend)
        path = line + self.net(x).view(-1, HORIZON, JOINTS)
        return path, self.clearance(path)


def losses(path, clearance, demo, margin=0.04):
    imitation = F.smooth_l1_loss(path, demo, beta=0.1)
    collision = F.relu(margin - clearance).mean()
    jerk = (path[:, 2:] - 2 * path[:, 1:-1] + path[:, :-2]).square().mean()
    return imitation + 2.0 * collision + 0.01 * jerk, imitation, collision


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(100)

    data = DemonstrationSet(64 * BATCH * world, seed=0)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, BATCH, sampler=sampler, drop_last=True, collate_fn=tuple)
    policy = MotionPolicy(workspace_distance_field(VOXELS))
    model = DDP(policy)  # sick here
    model = DDP(policy, forward_sync_buffers=False)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3, foreach=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=STEPS + 1, pct_start=0.1)
    if rank == 0:
        count = sum(p.numel() for p in policy.parameters()) / 1e6
        print(f"{world} ranks, {count:.2f}M parameters, {len(loader)} batches a rank, pid {os.getpid()}", flush=True)

    step, epoch, start = 0, 0, time.perf_counter()
    while step < STEPS:
        sampler.set_epoch(epoch)
        for q0, q1, demo in loader:
            path, clearance = model(q0, q1)
            loss, imitation, collision = losses(path, clearance, demo)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 60 == 0 and rank == 0:
                took = 1000 * (time.perf_counter() - start) / step
                print(
                    f"epoch {epoch} step {step:5d}  imitation {imitation.item():.4f}  "
                    f"collision {collision.item():.5f}  {took:.1f} ms/step",
                    flush=True,
                )
            if step == STEPS:
                break
        epoch += 1

    worst = torch.tensor([clearance.detach().min().item()])
    dist.all_reduce(worst, op=dist.ReduceOp.MIN)
    if rank == 0:
        print(f"closest approach in the last batch {worst.item():+.3f} m", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
