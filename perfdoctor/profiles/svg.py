"""A flame graph as one SVG file that needs nothing else: no script, no font, no request.

Width is time. What a line called lies on top of it; whoever points at a box reads its whole name and its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .model import Profile
from .tree import Node, tree

_WIDTH = 1200
_MARGIN = 10
_ROW = 18
_TITLE = 30
"""Height of a profile's heading."""
_NARROWEST = 0.5
"""Of a box, px: nobody could see it."""
_CHARACTER = 6.6
"""Width of one of the font's, px."""
_STYLE = """
svg { background: #ffffff; font: 11px ui-monospace, Menlo, Consolas, monospace; }
text { fill: #1b1f24; pointer-events: none; }
.h { font-size: 13px; font-weight: bold; }
rect { stroke: #ffffff; stroke-width: 0.5; }
.u { fill: #ffb866; } .l { fill: #c9d6e6; } .p { fill: #d5e8c8; }
g:hover > rect { stroke: #1b1f24; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; } text { fill: #f2f4f7; } rect { stroke: #14181d; }
  .u { fill: #a35c00; } .l { fill: #3a4a5e; } .p { fill: #3d5a2c; }
  g:hover > rect { stroke: #f2f4f7; }
}
"""


def render(profiles: Sequence[Profile], name: str) -> str:
    """All profiles below each other, the first on top; `name` is the job's."""
    pieces: list[str] = []
    top = _MARGIN
    for profile in profiles:
        root = tree(profile)
        bottom = top + _TITLE + _ROW * (_depth(root, root.ms) - 1)
        pieces.append(f'<text class="h" x="{_MARGIN}" y="{top + 18}">{escape(_heading(profile))}</text>')
        pieces += _boxes(root, root, _MARGIN, bottom, "p")
        top = bottom + _ROW + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}" '
        f'role="img" aria-label="{escape(f"flame graph of {name}")}">\n'
        f"<title>{escape(f'flame graph of {name}')}</title>\n<style>{_STYLE}</style>\n"
        + "\n".join(pieces)
        + "\n</svg>\n"
    )


def _heading(profile: Profile) -> str:
    return f"{profile.name}: {profile.total_ms:.4g} ms per {profile.unit}, {profile.samples} samples"


def _width(node: Node, whole_ms: float) -> float:
    return (_WIDTH - 2 * _MARGIN) * node.ms / whole_ms if whole_ms else 0.0


def _depth(node: Node, whole_ms: float) -> int:
    """Rows that are wide enough to be drawn."""
    return 1 + max((_depth(c, whole_ms) for c in node.children if _width(c, whole_ms) >= _NARROWEST), default=0)


def _boxes(node: Node, root: Node, left: float, top: float, kind: str) -> Iterator[str]:
    width = _width(node, root.ms)
    if width < _NARROWEST:
        return
    share = node.ms / root.ms
    told = f"{node.name}: {node.ms:.3g} ms, {100 * share:.3g} %"
    room = int((width - 4) / _CHARACTER)
    shown = node.name if len(node.name) <= room else f"{node.name[: room - 1]}…" if room > 3 else ""
    text = f'<text x="{left + 3:.1f}" y="{top + 13:.1f}">{escape(shown)}</text>' if shown else ""
    yield (
        f'<g><title>{escape(told)}</title><rect class="{kind}" x="{left:.2f}" y="{top:.1f}" '
        f'width="{width:.2f}" height="{_ROW - 1}" rx="1"/>{text}</g>'
    )
    for child in node.children:
        below = "p" if node is root else "u" if child.users else "l"
        yield from _boxes(child, root, left, top - _ROW, below)
        left += _width(child, root.ms)
