"""Floating-point operations per operator: the operator window's against torch's own counter."""

import json
import sys

sys.path.insert(0, sys.argv[1])

import torch
import torch.nn.functional as F
from _perfdoctor_probe.hooks import profilers
from _perfdoctor_probe.windows import operators
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def counted(run):
    run()
    with FlopCounterMode(display=False) as counter:
        run()
    theirs = {str(op).removeprefix("aten."): n for op, n in counter.get_flop_counts().get("Global", {}).items()}
    window = operators.OpsWindow(profilers.Profilers(lambda: None), compiled=False, onednn=None, optimizer=None)
    assert not window.obstacle()
    window.open()
    run()
    summary = window.close(1)
    assert not torch.autograd._profiler_enabled()
    ours = {}
    for op in summary["profile"]["ops"]:
        if op["flops_per_step"]:
            ours[op["name"]] = ours.get(op["name"], 0) + op["flops_per_step"]
    return {"ours": ours, "theirs": theirs}


def through(module, *shape):
    x = torch.randn(*shape, requires_grad=True)
    return lambda: module(x).sum().backward()


def attention(q, k, dropout=0.0):
    return lambda: F.scaled_dot_product_attention(q, k, k, dropout_p=dropout).sum().backward()


torch.manual_seed(0)
lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
x = torch.randn(4, 7, 16)
q, k = torch.randn(2, 4, 32, 16, requires_grad=True), torch.randn(2, 4, 48, 16, requires_grad=True)
cases = {
    "mlp": through(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), 16, 32),
    "conv": through(nn.Conv2d(3, 16, 3, stride=2, padding=1), 4, 3, 32, 32),
    "dilated": through(nn.Conv2d(8, 4, (3, 1), dilation=2, padding="same"), 4, 8, 14, 14),
    "transposed": through(nn.ConvTranspose2d(32, 8, 4, stride=2, padding=1), 4, 32, 14, 14),
    "conv1d": through(nn.Conv1d(4, 8, 3, padding=1), 2, 4, 20),
    "conv3d": through(nn.Conv3d(4, 8, 3, padding=1), 2, 4, 6, 6, 6),
    "grouped": through(nn.Conv2d(16, 32, 3, groups=4), 4, 16, 16, 16),
    "bmm": lambda: torch.einsum("bij,bkj->bik", q[0], k[0]).sum().backward(),
    "attention": attention(q, k),
    "attention by parts": attention(q, k, dropout=0.1),
    "lstm": lambda: lstm(x)[0].sum().backward(),
    "gru": lambda gru=nn.GRU(16, 24, batch_first=True): gru(x)[0].sum().backward(),
}
print(json.dumps({name: counted(run) for name, run in cases.items()}))
