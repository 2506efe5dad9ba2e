"""Text as HTML. Everything is escaped; only the code spans of a sentence become elements."""

from __future__ import annotations

from markupsafe import Markup, escape

from .. import wording


def prose(text: str) -> Markup:
    """A sentence: what stands between backticks is code."""
    pieces, end = [], 0
    for span in wording.CODE_SPAN.finditer(text):
        pieces += [escape(text[end : span.start()]), Markup("<code>{}</code>").format(span.group(2).strip())]
        end = span.end()
    return Markup("").join([*pieces, escape(text[end:])])
