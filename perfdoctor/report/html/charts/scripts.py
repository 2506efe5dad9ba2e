"""The scripts and styles of a page's charts: only those that its charts need."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent.parent
_OURS = ("core", "view", "steps", "distributions", "ranks", "lanes", "flame", "pairs", "start")
"""In the order in which they use one another."""
_D3 = ("array", "color", "dispatch", "ease", "format", "hierarchy", "interpolate", "time", "time-format", "timer")
_D3_DRAWING = ("scale", "selection", "transition")
_LIBRARIES = {"steps": ("uplot",), "flame": (*(f"d3-{name}" for name in (*_D3, *_D3_DRAWING)), "d3-flame-graph")}
"""By the chart that needs them, in the order in which they need one another."""
_LICENCES = {"steps": ("uplot",), "flame": ("d3", "d3-ease", "d3-flame-graph")}
_STYLES = {"steps": ("uplot",)}


def chart_scripts(names: Iterable[str]) -> list[str]:
    """Libraries with their licences, then ours, in a scope of their own."""
    drawn = list(names)
    if not drawn:
        return []
    libraries = [_vendored(f"{file}.js") for name in drawn for file in _LIBRARIES.get(name, ())]
    licences = [_vendored(f"licences/{file}.txt") for name in drawn for file in _LICENCES.get(name, ())]
    ours = "\n".join((HERE / "assets" / "charts" / f"{name}.js").read_text(encoding="utf-8") for name in _OURS)
    return [
        *(f"/*!\n{licence}*/" for licence in licences),
        *libraries,
        f'(() => {{\n"use strict";\n{ours}}})();\n',
    ]


def chart_styles(names: Iterable[str]) -> list[str]:
    """Libraries' first: ours change some of them."""
    drawn = list(names)
    if not drawn:
        return []
    libraries = [_vendored(f"{file}.css") for name in drawn for file in _STYLES.get(name, ())]
    return [*libraries, (HERE / "assets" / "charts.css").read_text(encoding="utf-8")]


def _vendored(file: str) -> str:
    return (HERE / "vendored" / file).read_text(encoding="utf-8")
