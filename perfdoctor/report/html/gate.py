"""A gate as an HTML page."""

from __future__ import annotations

from ...gate.model import GateResult
from ..gate_words import prepare_gate
from .page import page


def render_gate_html(result: GateResult) -> str:
    """The whole gate, ending in a newline."""
    content = prepare_gate(result)
    return page("gate.html.j2", {}, title=f"perfdoctor gate: {content.headline}", gate=content)
