"""Which line of the user's code the host was in."""

from __future__ import annotations

import os.path
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...traces.model import NOT_SAID, Floats, Ints, Trace
from ..model import Missing, Site
from .segments import Set

_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARIES = re.compile(r"(^|/)(site-packages|dist-packages|lib/python\d[\d.]*)/|^<|^nn\.Module")
_FRAMEWORKS = re.compile(
    r"(torch|torchvision|torchaudio|torchmetrics|lightning|pytorch_lightning|lightning_fabric|transformers|accelerate"
    r"|deepspeed|megatron|apex|numpy|scipy|pandas|PIL|tqdm|datasets|tensorboard|wandb|mlflow|ignite|fastai|triton"
    r"|multiprocess|cloudpickle)(/|\.py$)"
)
"""Packages whose frames are not the user's: a trace leaves out where they are installed."""
_ASKED = 400
"""Longest intervals that are looked at: the rest of the time is spread like theirs."""
_STEPS_BACK = 200
"""Frames looked through for one that lasts until then: more than any program nests."""

NO_STACK = Missing("the trace has no Python stacks", "record it with with_stack=True")
NO_USER_LINE = Missing("no line of the user's code was on the stack")


class Lines:
    """Frames of the user's code on one thread, or the stacks that operators came with."""

    def __init__(self, trace: Trace, thread: int) -> None:
        self._trace = trace
        self._sites: dict[int, Site | None] = {}
        mine = trace.frames.where(trace.frames.thread == thread)
        used = np.unique(mine.name)
        theirs = used[np.fromiter((self._frame(int(one)) is not None for one in used), bool, len(used))]
        self._frames = mine.where(np.isin(mine.name, theirs))
        carriers = (trace.operators, trace.marks)
        parts = [(one.start_us, one.end_us, one.stack) for one in carriers]
        start, end, stack = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.flatnonzero(stack != NOT_SAID)
        order = order[np.argsort(start[order], kind="stable")]
        self._stacked = start[order], end[order], stack[order]
        self._root = _common_folder(self._user_files())

    def during(self, intervals: Set) -> Site | Missing:
        """The line in which most of that time passed."""
        if not len(self._trace.frames) and not len(self._stacked[0]):
            return NO_STACK
        starts, ends = intervals
        longest = np.argsort(starts - ends)[:_ASKED]
        spent: dict[Site, float] = defaultdict(float)
        for at, ms in zip(((starts + ends) / 2)[longest], (ends - starts)[longest], strict=True):
            site = self._at(float(at))
            if site is not None:
                spent[site] += float(ms)
        return max(spent, key=lambda site: spent[site]) if spent else NO_USER_LINE

    def _at(self, moment: float) -> Site | None:
        frame = lasting(self._frames.start_us, self._frames.end_us, moment)
        if frame is not None:
            return self._shown(self._frame(int(self._frames.name[frame])))
        start, end, stack = self._stacked
        operator = lasting(start, end, moment)
        if operator is None:
            operator = int(np.searchsorted(start, moment)) if len(start) else None  # what came next was on the way
        if operator is None or operator >= len(start):
            return None
        return self._shown(self._innermost(int(stack[operator])))

    def _innermost(self, stack: int) -> Site | None:
        for text in self._trace.names[stack].split(";"):
            site = _users(text.strip())
            if site is not None:
                return site
        return None

    def _frame(self, name: int) -> Site | None:
        if name not in self._sites:
            self._sites[name] = _users(self._trace.names[name])
        return self._sites[name]

    def _user_files(self) -> Iterable[str]:
        frames = {site.file for site in self._sites.values() if site is not None}
        stacks: Ints = np.unique(self._stacked[2])
        of_stacks = (self._innermost(int(one)) for one in stacks[:_ASKED])
        return frames | {site.file for site in of_stacks if site is not None}

    def _shown(self, site: Site | None) -> Site | None:
        """Relative to the folder that holds all of the user's files: what lies above it is nobody's business."""
        if site is None or not site.file.startswith("/"):
            return site
        return Site(os.path.relpath(site.file, self._root), site.line, site.function)


def _common_folder(files: Iterable[str]) -> str:
    absolute = [str(Path(file).parent) for file in files if file.startswith("/")]
    return os.path.commonpath(absolute) if absolute else "/"


def _users(frame: str) -> Site | None:
    """The place, unless it is a library's."""
    match = _FRAME.match(frame)
    if match is None or _LIBRARIES.search(match["file"]):
        return None
    top = match["file"].partition("/")[0].removesuffix(".py")
    is_short = not match["file"].startswith("/")
    if is_short and (_FRAMEWORKS.match(match["file"]) or top in sys.stdlib_module_names):
        return None
    return Site(match["file"], int(match["line"]), match["function"])


def lasting(starts: Floats, ends: Floats, moment: float) -> int | None:
    """The interval that began last of those around a moment."""
    last = int(np.searchsorted(starts, moment, side="right")) - 1
    for row in range(last, max(-1, last - _STEPS_BACK), -1):
        if ends[row] >= moment:
            return row
    return None
