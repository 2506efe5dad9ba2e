"""Whether a larger tensor holds what a smaller one held, by some of its rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.windows.tensor_sizes import are_there, rows

SEEN = torch.cat([torch.zeros(4, 6), torch.randn(60, 6, generator=torch.Generator().manual_seed(0))])
NEW = torch.ones(16, 6)


@pytest.mark.parametrize(
    "larger",
    [torch.cat([SEEN, NEW]), torch.cat([NEW, SEEN]), torch.cat([SEEN, NEW]).numpy(), SEEN],
    ids=["behind", "in front", "array", "as it was"],
)
def test_rows_are_where_they_were_counted_from_either_end(larger: torch.Tensor | np.ndarray) -> None:
    assert are_there(larger, rows(SEEN))


@pytest.mark.parametrize(
    "other",
    [torch.randn(80, 6), torch.cat([NEW, SEEN, NEW]), SEEN[:40], torch.tensor(1.0)],
    ids=["others", "in between", "smaller", "number"],
)
def test_others_are_not(other: torch.Tensor) -> None:
    assert not are_there(other, rows(SEEN))


def test_images_are_known_by_values_from_all_over_them() -> None:
    """Each has a bright window somewhere, and the rest of it is dark, its last corner too."""
    generator = torch.Generator().manual_seed(1)
    images = torch.zeros(64, 3, 32, 32)
    for image, (x, y) in zip(images, torch.randint(0, 24, (64, 2), generator=generator).tolist(), strict=True):
        image[1, y : y + 7, x : x + 7] = 1.0
    assert are_there(torch.cat([images, images[:16]]), rows(images))
    assert not are_there(torch.cat([images.flip(0), images[:16]]), rows(images))


@pytest.mark.parametrize("before", [torch.zeros(64, 6), SEEN[:5], torch.tensor(1.0)], ids=["padding", "few", "number"])
def test_of_values_that_are_all_the_same_and_of_few_rows_nothing_is_known(before: torch.Tensor) -> None:
    assert not are_there(torch.cat([torch.zeros(64, 6), SEEN]), rows(before))
