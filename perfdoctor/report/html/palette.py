"""All colours of a page, light and dark, as CSS variables: nothing else in the page names a colour.

Text on its ground has a contrast of 4.5 at least (WCAG 2.2, AA), of which a test makes sure.
"""

from __future__ import annotations

LIGHT = {
    "ground": "#ffffff",
    "raised": "#f6f7f9",
    "line": "#d5dae1",
    "text": "#1b1f24",
    "muted": "#545d68",
    "accent": "#0b5cad",
    "error": "#a8231b",
    "error-ground": "#fdeeed",
    "warning": "#7d5200",
    "warning-ground": "#fff5df",
    "opportunity": "#0b5cad",
    "opportunity-ground": "#eaf3fc",
    "good": "#17692f",
    "code-ground": "#f3f5f7",
    "hot-ground": "#ffefc2",
    "texture": "#ffffff59",
    "on-hue": "#ffffff",
    "hue-red": "#b8432f",
    "hue-green": "#2b774a",
    "hue-cyan": "#1d7486",
    "hue-blue": "#3d63b8",
    "hue-magenta": "#8a4fa8",
    "hue-yellow": "#8a6100",
    "hue-white": "#626a75",
    "hue-bright_blue": "#5361c4",
    "hue-dim": "#6d7580",
}
DARK = {
    "ground": "#14171b",
    "raised": "#1b1f25",
    "line": "#363d47",
    "text": "#e6e9ed",
    "muted": "#a3adb9",
    "accent": "#74b5f7",
    "error": "#ff9a91",
    "error-ground": "#3a1f1e",
    "warning": "#f0bd57",
    "warning-ground": "#33290f",
    "opportunity": "#74b5f7",
    "opportunity-ground": "#172a3d",
    "good": "#6acb8a",
    "code-ground": "#20252c",
    "hot-ground": "#453a19",
    "texture": "#14171b59",
    "on-hue": "#14171b",
    "hue-red": "#f08c78",
    "hue-green": "#7ccb97",
    "hue-cyan": "#6cc7d6",
    "hue-blue": "#8fb1f5",
    "hue-magenta": "#cf9be6",
    "hue-yellow": "#e3b75a",
    "hue-white": "#aab3be",
    "hue-bright_blue": "#a9b3fa",
    "hue-dim": "#8d96a1",
}
"""By the same names. `hue-...` is the style that a part has on a terminal, `on-hue` what is written on it."""


def declarations(colours: dict[str, str]) -> str:
    """As the inside of a CSS rule."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())
