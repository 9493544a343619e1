"""What the Markdown pages say: code blocks, commands and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from commands import REPOSITORY

RESULTS = sorted((REPOSITORY / "results").glob("*.md"))
NAMES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "results/*.md",
)  # a changelog says what is gone
PAGES = {
    str(page.relative_to(REPOSITORY)): page for name in NAMES for page in REPOSITORY.glob(name)
}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language."""
    return [text for name, text in FENCED.findall(page.read_text()) if name == language]


def commands_of(script: str) -> Iterator[list[str]]:
    """Words of each line of a script: the last of a pipe, no variables, no redirections."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line.rpartition(" | ")[2].partition(" > ")[0], comments=True)
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words:
            yield words


def links(page: Path) -> list[str]:
    """What a page's relative links and pictures point to."""
    return re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The names by which headings are linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-") for heading in headings}
