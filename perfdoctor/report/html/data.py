"""The data that a page's scripts draw: JSON inside the page, which no text in it can end or turn into markup."""

from __future__ import annotations

import json

from markupsafe import Markup

from ..jsonform import Json

_AS_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""JSON has these characters in strings only. Without `<` there is neither `</script>` nor `<!--` in it."""


def embedded(value: Json) -> Markup:
    """The value as the text of `<script type="application/json">`. Raises ValueError for what is no number in JSON.

    Everything beyond ASCII is escaped too: line separators (U+2028) among it, and halves of surrogate pairs.
    """
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_AS_ESCAPES))
