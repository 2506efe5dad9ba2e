"""Where batches are padded to a length that none of their samples has, by the source."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from perfdoctor.injected._perfdoctor_probe.windows.padding_lines import padding_line

LONGEST = 64
WIDTH = 3


class Settings:
    longest = 64


settings = Settings()
tokenizer: Any = None


def by_a_name(items):
    longest = LONGEST  # here
    batch = torch.zeros(len(items), longest, WIDTH)
    for row, item in enumerate(items):
        batch[row, : len(item)] = item
    return batch


def by_an_argument(items, longest=LONGEST):
    rows = []
    for item in items:
        rows.append(functional.pad(item, (0, 0, 0, longest - len(item))))  # here
    return torch.stack(rows)


def by_a_setting(items):
    batch = np.zeros((len(items), settings.longest), dtype=np.int64)  # here
    for row, item in enumerate(items):
        batch[row, : len(item)] = item
    return torch.from_numpy(batch)


def by_a_list(items):
    return torch.tensor([item + [0] * (LONGEST - len(item)) for item in items])  # here


def by_a_tokenizer(items):
    texts = [item["text"] for item in items]
    return tokenizer(texts, truncation=True, padding="max_length", max_length=LONGEST)  # here


def to_the_longest(items):
    longest = max(len(item) for item in items)
    batch = torch.zeros(len(items), longest, WIDTH)
    for row, item in enumerate(items):
        batch[row, : len(item)] = item
    return batch


def to_the_longest_of_lengths(items):
    lengths = torch.tensor([len(item) for item in items])
    return torch.zeros(len(items), int(lengths.max()), WIDTH)


def without_padding(items):
    count = len(items)
    return torch.stack(items).view(count, -1)


def _marked(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(number for number, line in enumerate(lines, first) if "# here" in line)


@pytest.mark.parametrize(
    "function",
    [by_a_name, by_an_argument, by_a_setting, by_a_list, by_a_tokenizer],
    ids=lambda one: one.__name__,
)
def test_the_line_that_says_to_what_length_is_found(function: Callable[..., Any]) -> None:
    assert padding_line(function.__code__) == _marked(function)


@pytest.mark.parametrize(
    "function", [to_the_longest, to_the_longest_of_lengths, without_padding], ids=lambda one: one.__name__
)
def test_lengths_that_the_samples_say_are_none(function: Callable[..., Any]) -> None:
    assert padding_line(function.__code__) == 0
