"""HTML pages as their readers see them."""

from __future__ import annotations

import re
from typing import Any

import lxml.html

VOID = {"meta", "wbr"}


class Page:
    """Words, elements, headings, and the last table of each caption.

    A second line in a cell follows a bar.
    """

    def __init__(self, text: str):
        self.tree = parsed(text.replace("<small>", " | <small>"))
        self.words = words(self.tree.body)
        self.headings = [words(found) for found in self.tree.iter("h2", "h3")]
        self.tables = {
            table.findtext("caption"): [
                [words(cell) for cell in row.iter("th", "td")] for row in table.iter("tr")
            ]
            for table in self.tree.iter("table")
        }

    def named(self, tag: str, **attributes: str) -> list[Any]:
        return [
            found.attrib
            for found in self.tree.iter(tag)
            if all(found.get(key) == value for key, value in attributes.items())
        ]


def parsed(text: str) -> Any:
    """The elements of a page, whose tags must match."""
    for tag in set(re.findall(r"<(\w+)", text)) - VOID:
        opened = re.findall(rf"<{tag}(?:\s[^<>]*[^/<>])?>", text)
        assert len(opened) == text.count(f"</{tag}>"), tag
    return lxml.html.document_fromstring(text)


def words(element: Any) -> str:
    return " ".join(element.text_content().split())


def check_alone(text: str) -> None:
    """A page fetches nothing, and links to its own sections, all of them."""
    assert not re.search(r"https?:|url\((?!#)|@import|//\w+\.", text)
    found = Page(text)
    for element in found.tree.iter("*"):
        assert not set(element.keys()) & {"src", "srcset", "data", "action"}
        assert all(element.get(name, "#")[0] == "#" for name in ("href", "xlink:href"))
    anchors = {f"#{section['id']}" for section in found.named("section")}
    assert {link["href"] for link in found.named("a")} == anchors
