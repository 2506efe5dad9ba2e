"""URLs of storage: which words are some, their parts, and how they are shown. Nothing is opened here."""

from __future__ import annotations

import re
from urllib.parse import unquote

from ..launch.masking import MASK, masked

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
"""`zip::s3://` too: fsspec chains file systems so."""
_PASSWORD = re.compile(r"://[^/?@]*?:([^/?]*)@")
_SHORT = 3
"""Characters of what is not looked for in other texts: it would blot out words, and is no secret."""
_LONGEST = 300
"""Characters of what a backend says of a failure; some quote whole answers of a server."""


def is_url(text: str) -> bool:
    """Whether `--runs` or RUN names storage rather than a path."""
    return _URL.match(text) is not None


def joined(url: str, name: str) -> str:
    """`name` below a URL; its query stays at the end."""
    base, question, query = url.partition("?")
    return f"{base.rstrip('/')}/{name}{question}{query}"


def parted(url: str) -> tuple[str, str]:
    """The URL of what lies around, and the last name, of which `joined` makes the URL again."""
    base, question, query = url.partition("?")
    around, _, name = base.rstrip("/").rpartition("/")
    return f"{around}{question}{query}", name


def shown(url: str) -> str:
    """The URL as reports and messages name it: without a password, and without its query, where tokens stand."""
    (named,) = masked([url.partition("?")[0]])
    return named + (f"?{MASK}" if "?" in url else "")


def without_secrets(text: str, url: str) -> str:
    """What a backend says of a failure at this URL, in one line, without the URL's password and tokens."""
    found = [*_PASSWORD.findall(url), *(pair.partition("=")[2] for pair in url.partition("?")[2].split("&"))]
    for secret in (written for one in found for written in (one, unquote(one))):
        if len(secret) > _SHORT:
            text = text.replace(secret, MASK)
    (line,) = masked([" ".join(text.split())])
    return line[:_LONGEST] or "it does not say why"
