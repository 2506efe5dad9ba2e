"""Batches of a data-loader worker that take longer and longer: what its data set keeps, and the lines that take longer.

Nothing is looked at in a worker whose batches stay as they are.
"""

from .growth import Growth

_BATCHES = 8
"""At first and of late, whose medians are compared."""
_LONGER = 1.15
"""Of late over at first: a noisy data set reaches it now and then, and that costs a few censuses."""
_SPACING = 0.25
"""Of the batches so far, until the next census: three show growth, and they grow rarer."""
_CENSUSES = 3
"""After so many a batch is made line by line, and after every one that follows."""


class SlowerFetches:
    """Of one worker, from its first settled batch on."""

    def __init__(self, recorder, sites, fetcher) -> None:
        roots = (("dataset", fetcher.dataset), ("collate_fn", fetcher.collate_fn.original))
        self.growth = Growth(recorder, sites, roots)
        self.first: "list[int]" = []
        self.latest: "list[int]" = []
        self.due = 0
        self.taken = 0

    def add(self, number: int, took_us: int) -> bool:
        """Batch `number` took so long. True where the next one is to be made line by line."""
        if len(self.first) < _BATCHES:
            self.first.append(took_us)
            return False
        self.latest.append(took_us)
        del self.latest[:-_BATCHES]
        if number < self.due or len(self.latest) < _BATCHES or _median(self.latest) < _LONGER * _median(self.first):
            return False
        self.growth.take(number)
        self.taken += 1
        self.due = number + max(_BATCHES, int(_SPACING * number))
        return self.taken >= _CENSUSES


def _median(values: "list[int]") -> int:
    return sorted(values)[len(values) // 2]
