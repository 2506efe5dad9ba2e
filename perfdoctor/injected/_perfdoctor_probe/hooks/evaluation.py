"""Forward passes that train nothing: in evaluation mode, or without gradients, between two steps of training.

Of each step that holds some it is kept how long they took together with what lies between them: from the start of the
latest iterator, or from the step's beginning where none was started, to the end of the last of them. Whether that was
an evaluation or the way this loop works (a teacher, an agent that acts) is for the reader to tell. Passes on held-out
data (`held_out`) have a row of their own: from the first of them to the last, where nothing is trained in between.
"""

import sys

import torch

from .. import records
from ..recorder import columns
from ..timeline import BACKWARD, CHECKPOINT, FORWARD, INPUT, LOGGING, OPTIMIZER
from .held_out import tensors

_LOOKED_AT = 2
"""Passes of a step that may be the first on held-out data: looking at one takes 10 us, and an agent acts a thousand
times."""
MANY = 8
"""Passes in evaluation mode of a step, from which on the line is looked up that asks for them."""
_LINES = 4
"""Lines that are told."""
_SHORT_NS = 100_000
"""Shorter ones are none: ten times what looking takes."""


def asked_at(sites, frame) -> int:
    """The line outside of modules that leads to `frame`, as a site: who asks for such passes; -1 without one."""
    while frame is not None:
        own = frame.f_locals.get("self")
        if not sites.is_library(frame.f_code.co_filename) and not isinstance(own, torch.nn.Module):
            return sites.at(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return -1


def samples_given(arguments: tuple) -> int:
    """To a module, by its first tensor."""
    given = next(tensors(arguments), None)
    return given.shape[0] if given is not None and given.dim() > 1 else 1


class Evaluation:
    """All methods are called on the training thread."""

    def __init__(self, recorder, sites, loop, loading, held_out, decoding) -> None:
        self.recorder = recorder
        self.sites = sites
        self.loop = loop
        self.loading = loading
        self.held_out = held_out
        self.decoding = decoding
        self.on_scores = None
        """Told what such a pass on held-out data was given and returned; set by a window."""
        self.on_batch = None
        """Told of each pass on a batch of a loader, with its number in the evaluation."""
        self.reset()

    def reset(self) -> None:
        self.decoding.reset()
        self.rows: "list[list[int]]" = []
        """As the columns of `evaluations`, but in nanoseconds."""
        self.lines: "set[int]" = set()
        self.row: "list[int] | None" = None
        """The latest of them."""
        self.again: "list[int] | None" = None
        """The latest on held-out data."""
        self.again_ended: "tuple[int, int, int]" = (0, 0, 0)
        """Time, `_training` and `_apart` at the end of the latest such pass."""
        self.began_ns = self.apart_ns = 0
        self.iterated: "tuple[int, int, int]" = (-1, 0, 0)
        """Step, time and `_apart` when the latest iterator was wanted."""

    def _apart(self) -> int:
        """Nanoseconds of the step so far that are told by themselves: checkpoints and logging."""
        spent = self.loop.timeline.spent
        return spent[CHECKPOINT] + spent[LOGGING]

    def _training(self) -> int:
        """Nanoseconds of the step so far in its other parts."""
        spent = self.loop.timeline.spent
        return spent[INPUT] + spent[FORWARD] + spent[BACKWARD] + spent[OPTIMIZER]

    def iterator_wanted(self) -> None:
        """The loop asks for an iterator of its loader."""
        line = self.loop.timeline
        self.iterated = line.step, line.mark, self._apart()

    def forward_ended(self, took_ns: int, module, arguments: tuple, output) -> None:
        """Such a forward pass has just ended."""
        step = self.loop.timeline.step
        known = self.again is not None and self.again[0] == step
        others = self.row[2] if self.row is not None and self.row[0] == step else 0
        if took_ns >= _SHORT_NS:
            self.decoding.forward_ended(took_ns, module, arguments, step)
        looks = known or (others < _LOOKED_AT and took_ns >= _SHORT_NS)
        if looks and self.held_out.met(module, arguments, step):
            self._on_held_out(took_ns, arguments, output)
        else:
            self._on_other_data(took_ns, module, arguments)

    def _on_held_out(self, took_ns: int, arguments: tuple, output) -> None:
        line, row, apart, training = self.loop.timeline, self.again, self._apart(), self._training()
        if row is None or row[0] != line.step:
            row = self.again = [line.step, 0, 0, 0, -1, 1, 0, 0]
            self.rows.append(row)
        else:
            ended_ns, trained_ns, apart_ns = self.again_ended
            if training - took_ns <= trained_ns:
                row[1] += max(0, line.mark - ended_ns - took_ns - (apart - apart_ns))
        row[1] += took_ns
        row[2] += 1
        row[3] += took_ns
        self.again_ended = line.mark, training, apart
        if self.on_scores is not None:
            self.on_scores(arguments, output)

    def _on_other_data(self, took_ns: int, module, arguments: tuple) -> None:
        line, batches, row = self.loop.timeline, self.loading.rows, self.row
        if row is None or row[0] != line.step:
            step, self.began_ns, self.apart_ns = self.iterated
            if step != line.step:
                trained = line.spent[BACKWARD] > 0
                self.began_ns = self.loop.forward_began_ns if trained else line.boundary_ns
                self.apart_ns = self._apart() if trained else 0
            row = self.row = [line.step, 0, 0, 0, -1, 0, 0, 0]
            self.rows.append(row)
        row[1] = line.mark - self.began_ns - (self._apart() - self.apart_ns)
        row[2] += 1
        row[3] += took_ns
        row[4] = batches[-1][0] if batches and batches[-1][1] == line.step else -1
        # While TorchScript traces, a size is a tensor, and what is added to it is written down.
        if row[4] < 0 and not module.training and not torch._C._get_tracing_state():
            row[6] += 1
            row[7] += samples_given(arguments)
            if row[6] == MANY:
                self._tell()
        if self.on_batch is not None and row[4] >= 0:
            self.on_batch(row[2])

    def _tell(self) -> None:
        site = asked_at(self.sites, sys._getframe(2))
        if site >= 0 and site not in self.lines and len(self.lines) < _LINES:
            self.lines.add(site)
            self.recorder.record("evaluated", site=site)

    def flush(self) -> None:
        """Queue the rows collected since the last call."""
        self.decoding.flush()
        if self.rows:
            rows = [(row[0], row[1] // 1000, row[2], row[3] // 1000, *row[4:]) for row in self.rows]
            self.recorder.record("evaluations", **columns(records.EVALUATION_COLUMNS, rows))
            self.rows, self.row, self.again = [], None, None
