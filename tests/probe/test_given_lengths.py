"""Where the source of the job's own files says what a call is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.source import given_at

SOURCE = """\
size = 5023
def convolve(clip, response):
    length = clip.shape[-1] + response.shape[-1] - 1
    spectrum = torch.fft.rfft(clip, n=length)
    transfer = torch.fft.rfft(response, length)
    out = torch.fft.irfft(spectrum * transfer, n=length)
    length = 7
    return out[..., : clip.shape[-1]]
def plain(clip):
    return torch.fft.rfft(clip)
def constant(clip):
    return torch.fft.rfft(clip, n=5023)
def outer(clip):
    return torch.fft.rfft(clip, n=size)
"""


@pytest.mark.parametrize(
    ("line", "given"),
    [(4, 3), (5, 3), (6, 3), (10, 10), (12, 12), (14, 14)],
    ids=["by keyword", "by position", "back", "nothing", "a number", "set elsewhere"],
)
def test_a_length_is_found_where_the_function_computes_it(tmp_path: Path, line: int, given: int) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    assert given_at(str(file), line, ("n", "s")) == given


def test_what_cannot_be_read_is_given_where_it_is_called(tmp_path: Path) -> None:
    assert given_at(str(tmp_path / "gone.py"), 12, ("n",)) == 12
