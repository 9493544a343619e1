"""HTML from Python, in which text is data: whatever is not made here is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already.  Every other string gets escaped."""

    def __add__(self, other: str) -> Markup:
        return join([self, other])


def element(name: str, /, *content: str, **attributes: str | float | bool | None) -> Markup:
    """``<name attribute="value">content</name>``.

    Args:
        content: :class:`Markup` as it is; other strings are escaped
        attributes: ``class_`` is ``class`` and ``aria_label`` is ``aria-label``; ``True`` stands
            for an attribute without value, ``None`` and ``False`` for none
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Parts one after the other, escaped where they are text."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def scroll(content: str, name: str) -> Markup:
    """A part that is as wide as it is; narrow screens scroll it, by touch or by keyboard."""
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=name)
