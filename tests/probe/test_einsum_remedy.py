"""Einsums of several operands are multiplied in another order, and come out the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.einsum_order import InOrder

LEFT, RIGHT, MIX = torch.randn(2, 24, 8), torch.randn(2, 24, 8), torch.randn(8, 8, 4)
LONG, SHORT = "bid,bje,dec->bijc", "bid,bje->bij"


def test_what_goes_the_long_way_is_put_in_order_and_all_else_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = torch._VF.einsum
    monkeypatch.setattr(torch._VF, "einsum", lambda *args: seen.append(args[0]) or original(*args), raising=False)
    before = torch._VF.einsum
    wanted = original(LONG, (LEFT, RIGHT, MIX))
    remedy = InOrder(SimpleNamespace())
    remedy.apply()
    try:
        assert remedy.lost()
        torch.testing.assert_close(torch.einsum(LONG, LEFT, RIGHT, MIX), wanted, rtol=1e-4, atol=1e-4)
        torch.einsum(SHORT, LEFT, RIGHT)
        assert seen == ["bid,dec,bje->bijc", SHORT] and not remedy.lost()
    finally:
        remedy.withdraw()
    assert torch._VF.einsum is before


def test_opt_einsum_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.opt_einsum, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", True)
    with pytest.raises(UnsuitableError, match="opt_einsum"):
        InOrder(SimpleNamespace()).apply()
