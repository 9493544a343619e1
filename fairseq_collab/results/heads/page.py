"""The report of ``fairseq-collab heads``: one HTML file that needs nothing else, and its figures.

OUT/report.html          all that ``heads.json`` holds, for people; opens without a network
OUT/heads_*.png          figures of it, for a page of results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from collab_common.files import make_folder, write_content
from fairseq_collab.results.heads import figures, page_sections, page_text
from fairseq_collab.results.heads.page_examples import examples
from fairseq_collab.results.heads.page_sections import Content
from fairseq_collab.results.markup import Markup
from fairseq_collab.results.page import document, facts, own

NAME = "report.html"
#: Anchor, heading and content of each section, in the order of the page.
SECTIONS: list[tuple[str, str, Callable[[Content], Markup | None]]] = [
    ("roles", "Roles", page_sections.roles),
    ("measures", "Measures", page_sections.measures),
    ("positions", "Positions", page_sections.offsets),
    ("syntax", "Syntax", page_sections.syntax),
    ("similarity", "Similarity", page_sections.similarity),
    ("attention", "Attention on single sentences", examples),
]
#: Told in words of their own; all else that is one value is listed as it is.
PARTS = {
    "version", "heads", "measures", "offsets", "rare", "syntax", "similarity", "roles", "examples",
    "versions",
}  # fmt: skip


def write(content: Mapping[str, Any], out: Path) -> None:
    """Write the report and the figures, each file whole or not at all.

    Args:
        content: of ``heads.json``, see :mod:`fairseq_collab.analysis.heads.content`
        out: a folder, made if need be

    Raises:
        UserError: the folder cannot be made or written to.
    """
    made = {NAME: report(content).encode(), **figures.draw(content)}
    make_folder(out)
    for name, data in made.items():
        write_content(out / name, data)


def report(content: Content) -> str:
    """The whole page; the same content gives the same page."""
    made = [(anchor, title, make(content)) for anchor, title, make in SECTIONS]
    made.append(("circumstances", "Circumstances", facts(circumstances(content))))
    shown = [(anchor, title, inside) for anchor, title, inside in made if inside is not None]
    title = f"What the heads of {content['checkpoint']} do"
    scripts = [own("fairseq_collab.results.heads", "script.js")] if content.get("examples") else []
    return document(title, summary(content), shown, scripts=scripts)


def summary(content: Content) -> str:
    """What was analysed, in a sentence, and how to read its numbers."""
    counts = {site: sum(layers) for site, layers in content["heads"].items()}
    heads = ", ".join(f"{count} in {site} attention" for site, count in counts.items() if count)
    return (
        f"{content['arch']} with {sum(counts.values())} heads ({heads}), on "
        f"{content['sentences']:,} sentences of {content['data']}, {content['subset']}. "
        f"{page_text.COUNTING}"
    )


def circumstances(content: Content) -> Iterator[tuple[str, str]]:
    """Where, when and with what the numbers were made."""
    for name, value in content.items():
        if name in PARTS or value is None or isinstance(value, (dict, list)):
            continue
        text = f"{value:,}" if isinstance(value, int) else str(value)
        yield name.replace("_", " "), text
    versions = content.get("versions") or {}
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
