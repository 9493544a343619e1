"""A page that needs nothing but itself: head, style, sections with a list of links to them.

Both reports are made of it, ``fairseq-collab heads`` and ``fairseq-collab report``, and of
the elements in :mod:`fairseq_collab.markup` and ``page_parts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from fairseq_collab.markup import Markup, element, join

#: Where the style sheet of all pages is.
STYLE = ("fairseq_collab.analysis.heads", "style.css")
#: Nothing is fetched and nothing sent, whatever the texts in a page say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def document(
    title: str,
    summary: str,
    sections: Sequence[tuple[str, str, Markup]],
    styles: Sequence[str] = (),
    scripts: Sequence[Markup] = (),
) -> str:
    """The whole page; the same arguments give the same page.

    Args:
        title: heading and name of the page
        summary: a paragraph below it
        sections: anchor, heading and content
        styles: style sheets beside the one that all pages have
        scripts: stand at the end
    """
    links = [element("li", element("a", name, href=f"#{anchor}")) for anchor, name, _ in sections]
    parts = [
        element("section", element("h2", name, id=f"{anchor}-title"), inside, id=anchor,
                aria_labelledby=f"{anchor}-title")
        for anchor, name, inside in sections
    ]  # fmt: skip
    top = element(
        "header",
        element("h1", title),
        element("p", summary),
        element("nav", element("ul", *links), aria_label="Sections"),
    )
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            element("title", title),
            element("style", Markup("".join([own(*STYLE), *styles]))),
        ]
    )
    body = [top, element("main", *parts), *(element("script", script) for script in scripts)]
    page = element("html", element("head", head), element("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def own(package: str, name: str) -> Markup:
    """A file that lies in a package."""
    return Markup((files(package) / name).read_text(encoding="utf-8"))
