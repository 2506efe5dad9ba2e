"""Batches that take less to make: what to do, and what it wins back."""

from __future__ import annotations

from perfdoctor.api.findings import Fix
from perfdoctor.api.quantities import Cause

WON_BACK = (0.25, 0.9)
"""Of what making batches costs: a cheaper way keeps 10 to 75 % of it."""
CHEAPER = {
    Cause.STORAGE: (
        "read less often or from faster storage (pack many samples into one file with WebDataset, Arrow or memory-"
        "mapped arrays, keep the data set in memory, or copy it to a local disk before training)",
        "np.save('samples.npy', samples)\nsamples = np.load('samples.npy', mmap_mode='r')  # read by page",
    ),
    Cause.TRANSFORM: (
        "cache the transform's result, save the transformed data set before training, or transform whole batches "
        "instead of single samples",
        "dataset = [dataset[i] for i in range(len(dataset))]  # once, before the first epoch",
    ),
    Cause.COLLATE: (
        "stack arrays once in `collate_fn` with `torch.from_numpy(np.stack(...))` instead of converting element by "
        "element",
        "def collate(samples):\n    return torch.from_numpy(np.stack(samples))",
    ),
}
"""A clause and the code, by what takes longest."""


WITHOUT_LOOP = Fix(
    text="Compute on whole arrays instead of element by element: NumPy and torch run such a loop inside one operator.",
    code="image = np.clip(image * contrast + brightness, 0, 1)  # no loop over its pixels",
    risk="Sums may be taken in another order, so that the last digits differ.",
    remedies=("etl.replay",),
)


def cheaper_batch(cause: Cause) -> Fix:
    """By what takes longest."""
    way, code = CHEAPER[cause]
    return Fix(
        text=f"Make the batch cheaper: {way}.",
        code=code,
        risk="None for the results, if the samples stay the same.",
        remedies=("etl.replay",),
    )
