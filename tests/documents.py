"""What the Markdown pages say: code blocks, commands and links."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commands import REPOSITORY

README = REPOSITORY / "README.md"
RESULTS = sorted((REPOSITORY / "results").glob("*.md"))
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", *DOCS, *RESULTS]  # a changelog names what is gone
RECIPES = sorted((REPOSITORY / "recipes").glob("*.sh"))

#: bash finds no command and notes each: the names of its environment, how many words it has, and
#: the words. So bash itself expands variables and runs loops.
_RECORDER = """
command_not_found_handle() {
    local names=($(compgen -e))
    printf '%s\\0' "${names[*]}" "$#" "$@" >> "$RECORD"
    case "$*" in
        "fairseq-collab configs") echo configs ;;
    esac
}
source() { command_not_found_handle source "$@"; }
"""
_ALWAYS_SET = {"OLDPWD", "PATH", "PWD", "RECORD", "SHLVL", "_"}


class Block(NamedTuple):
    """A fenced block of code; ``where`` is ``FILE:LINE`` of its fence."""

    where: str
    language: str
    text: str


class Command(NamedTuple):
    """One command as bash would run it: its words, and the variables set for it."""

    words: list[str]
    variables: frozenset[str] = frozenset()


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


def code_spans(page: Path) -> list[str]:
    """Code within the text, as one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def commands_of(script: str, folder: Path) -> list[Command]:
    """The commands of a script of bash, none of them run; ``folder`` is an empty one to use."""
    record = folder / "record"
    record.write_text("")
    without_redirections = re.sub(r"\s\d?>>?\s*\S+", "", script)
    done = subprocess.run(
        ["/bin/bash", "-c", _RECORDER + without_redirections],
        env={"PATH": "/no/such/folder", "RECORD": str(record)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    fields = iter(record.read_text().split("\0")[:-1])
    found = []
    for names in fields:
        words = [next(fields) for _ in range(int(next(fields)))]
        found.append(Command(words, frozenset(names.split()) - _ALWAYS_SET))
    return found


def usage_lines(recipe: Path) -> list[str]:
    """The commands in the comment that a recipe starts with, each with what explains it cut off."""
    header = recipe.read_text().split("set -euo", 1)[0]
    found = re.findall(r"^#   ((?:[A-Z]+=\S+ )*bash recipes/.*)$", header, re.M)
    return [re.split(r"\s{2,}", line)[0] for line in found]


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
