"""Fourier transforms of real numbers, of whose spectrum one half is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from operands import drawn
from rewriting import watched

SOUNDS, ECHOES = drawn(32, 8, 1024, learns=False), drawn(8, 1024)
ALREADY_COMPLEX = torch.complex(SOUNDS, SOUNDS.flip(0))


def filtered() -> torch.Tensor:
    spectrum = torch.fft.fft(SOUNDS) * torch.fft.fft(ECHOES)
    return torch.fft.ifft(spectrum).real


def made_complex() -> torch.Tensor:
    spectrum = torch.fft.fft(SOUNDS.to(torch.complex64))
    spectrum = spectrum * torch.fft.fft(ECHOES.to(torch.complex64))
    return torch.fft.ifft(spectrum).real[..., 100:612].tanh()


def made_complex_and_padded() -> torch.Tensor:
    spectrum = torch.fft.fft(SOUNDS.to(torch.complex64), n=2048)
    spectrum = spectrum * torch.fft.fft(ECHOES.to(torch.complex64), n=2048)
    return torch.fft.ifft(spectrum).real[..., :1024].tanh()


def pictures() -> torch.Tensor:
    spectrum = torch.fft.fft2(SOUNDS.view(32, 8, 32, 32)) * torch.fft.fft2(ECHOES.view(8, 32, 32))
    return torch.fft.ifft2(spectrum).real.relu()


def along_the_first() -> torch.Tensor:
    """What comes back lies in another order in memory."""
    spectrum = torch.fft.fft(SOUNDS.view(256, 1024), dim=0) * torch.fft.fft(ECHOES.view(256, 32)[:, :1], dim=0)
    return torch.fft.ifft(spectrum, dim=0).real.relu()


@pytest.mark.parametrize("step", [filtered, made_complex, made_complex_and_padded, pictures, along_the_first])
def test_both_ways_are_found_where_what_comes_back_is_real(step: Callable[[], torch.Tensor]) -> None:
    rows = watched(step)
    first = step.__code__.co_firstlineno
    assert "half-transform" in {row["kind"] for row in rows if row["at"] <= first + 2}
    (back,) = [row for row in rows if row["kind"] == "real-transform"]
    assert back["at"] > first + 1
    assert back["forward_ms"] > back["other_forward_ms"] > 0
    assert back["backward_ms"] > back["other_backward_ms"] > 0


def of_complex_numbers() -> torch.Tensor:
    return torch.fft.ifft(torch.fft.fft(ALREADY_COMPLEX) * torch.fft.fft(ECHOES)).real


def read_as_it_is() -> torch.Tensor:
    back = torch.fft.ifft(torch.fft.fft(SOUNDS) * torch.fft.fft(ECHOES))
    return back.real + back.imag


def of_half_already() -> torch.Tensor:
    return torch.fft.irfft(torch.fft.rfft(SOUNDS) * torch.fft.rfft(ECHOES), n=1024)


@pytest.mark.parametrize("step", [of_complex_numbers, read_as_it_is, of_half_already])
def test_nothing_comes_back_by_half_of_another_spectrum_or_for_who_reads_the_rest(
    step: Callable[[], torch.Tensor],
) -> None:
    assert [row for row in watched(step) if row["kind"] == "real-transform"] == []
