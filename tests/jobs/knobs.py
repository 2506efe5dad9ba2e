"""Sets torch's threads and oneDNN in several ways: `python knobs.py STYLE`."""

import sys

import torch
from loops import data, setup, train


def assigned():
    torch.set_num_threads(2)
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False


def called():
    torch.backends.mkldnn.set_flags(False)


def untouched():
    torch.backends.mkldnn.set_flags(True)
    with torch.backends.mkldnn.flags(enabled=False):
        pass


globals()[sys.argv[1]]()
train(*setup(), data())
print(torch.get_num_threads(), torch.backends.mkldnn.enabled)
