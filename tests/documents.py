"""What the Markdown pages say: code blocks, commands and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commands import REPOSITORY

README = REPOSITORY / "README.md"
RESULTS = sorted((REPOSITORY / "results").glob("*.md"))
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", *DOCS, *RESULTS]  # a changelog names what is gone


class Block(NamedTuple):
    """A fenced block of code; ``where`` is ``FILE:LINE`` of its fence."""

    where: str
    language: str
    text: str


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text()
    return [
        Block(f"{name_of(page)}:{text.count(chr(10), 0, found.start()) + 1}", *found.groups())
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def commands_of(script: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Variables and words of each line of a script: the last of a pipe, no redirections."""
    known: dict[str, str] = {}
    for line in re.sub(r"\\\n", " ", script).splitlines():
        words = shlex.split(line.rpartition(" | ")[2], comments=True)
        if words and words[0].startswith("$"):
            words[:1] = known[words[0][1:]].split()
        if ">" in words:
            words = words[: words.index(">")]
        variables = {}
        while words and (found := re.fullmatch(r"(\w+)=(.*)", words[0])):
            variables[found[1]] = found[2]
            words = words[1:]
        if words:
            yield variables, words
        known |= variables


def anchors(page: Path) -> set[str]:
    """The names by which headings are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    plain = (re.sub(r"[^\w\s-]", "", heading).lower() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    """What a page's relative links and pictures point to."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target
