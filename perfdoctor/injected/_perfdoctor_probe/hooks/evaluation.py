"""Forward passes that train nothing: in evaluation mode, or without gradients, between two steps of training.

Of each step that holds some it is kept how long they took together with what lies between them: from the start of the
latest iterator, or from the step's beginning where none was started, to the end of the last of them. Whether that was
an evaluation or the way this loop works (a teacher, an agent that acts) is for the reader to tell.
"""

from .. import records
from ..recorder import columns
from ..timeline import BACKWARD, CHECKPOINT, LOGGING


class Evaluation:
    """All methods are called on the training thread."""

    def __init__(self, recorder, loop, loading) -> None:
        self.recorder = recorder
        self.loop = loop
        self.loading = loading
        self.reset()

    def reset(self) -> None:
        self.rows: "list[list[int]]" = []
        """As the columns of `evaluations`, but in nanoseconds."""
        self.began_ns = self.apart_ns = 0
        self.iterated: "tuple[int, int, int]" = (-1, 0, 0)
        """Step, time and `_apart` when the latest iterator was wanted."""

    def _apart(self) -> int:
        """Nanoseconds of the step so far that are told by themselves: checkpoints and logging."""
        spent = self.loop.timeline.spent
        return spent[CHECKPOINT] + spent[LOGGING]

    def iterator_wanted(self) -> None:
        """The loop asks for an iterator of its loader."""
        line = self.loop.timeline
        self.iterated = line.step, line.mark, self._apart()

    def forward_ended(self, took_ns: int) -> None:
        """Such a forward pass has just ended."""
        line, batches = self.loop.timeline, self.loading.rows
        if not self.rows or self.rows[-1][0] != line.step:
            step, self.began_ns, self.apart_ns = self.iterated
            if step != line.step:
                trained = line.spent[BACKWARD] > 0
                self.began_ns = self.loop.forward_began_ns if trained else line.boundary_ns
                self.apart_ns = self._apart() if trained else 0
            self.rows.append([line.step, 0, 0, 0, -1])
        row = self.rows[-1]
        row[1] = line.mark - self.began_ns - (self._apart() - self.apart_ns)
        row[2] += 1
        row[3] += took_ns
        row[4] = batches[-1][0] if batches and batches[-1][1] == line.step else -1

    def flush(self) -> None:
        """Queue the rows collected since the last call."""
        if self.rows:
            rows = [(row[0], row[1] // 1000, row[2], row[3] // 1000, row[4]) for row in self.rows]
            self.recorder.record("evaluations", **columns(records.EVALUATION_COLUMNS, rows))
            self.rows = []
