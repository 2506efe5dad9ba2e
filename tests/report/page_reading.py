"""A page as a browser reads it: parsed by the standard's own rules, any error of which fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

import html5lib


class Page:
    """A parsed page."""

    def __init__(self, html: str) -> None:
        tree = html5lib.getTreeBuilder("etree")
        self.html = html
        self.root: Element = html5lib.HTMLParser(tree, strict=True, namespaceHTMLElements=False).parse(html)

    def all(self, *tags: str, of: str = "") -> list[Element]:
        """The elements with one of these tags (any without), of that class, in their order."""
        return [
            element
            for element in self.root.iter()
            if isinstance(element.tag, str)
            and (not tags or element.tag in tags)
            and (not of or of in element.get("class", "").split())
        ]

    def by_id(self, name: str) -> Element:
        (found,) = (element for element in self.all() if element.get("id") == name)
        return found

    @property
    def text(self) -> str:
        """What a reader sees, folded parts too: no scripts and styles, blanks as one."""
        return text_of(self.root.find("body"))


def text_of(element: Element | None) -> str:
    assert element is not None
    return " ".join("".join(_texts(element)).split())


def _texts(element: Element) -> Iterator[str]:
    if element.tag in ("script", "style"):
        return
    yield element.text or ""
    for child in element:
        # Blocks and cells stand apart, words of a sentence do not.
        apart = "" if child.tag in ("code", "mark", "strong", "a") else " "
        yield apart
        yield from _texts(child)
        yield apart + (child.tail or "")


def words(text: str) -> str:
    """A sentence of a report as a page shows it: its code is an element."""
    return " ".join(re.sub(r"`+", "", text).split())
