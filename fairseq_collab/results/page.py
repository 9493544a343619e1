"""A page that needs nothing but itself: head, style, sections with a list of links; and tables.

Both reports are made of it, ``fairseq-collab heads`` and ``fairseq-collab report``, and of
the elements in ``results.markup``.  ``style.css``, beside this file, is the style sheet
of all pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from fairseq_collab.results.markup import Markup, element, join, scroll

#: Nothing is fetched and nothing sent, whatever the texts in a page say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
#: A number, or none where a measure does not apply; and what a cell then shows.
Number = float | None
NOTHING = "\N{EN DASH}"


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
            element(
                "style", Markup("".join([own("fairseq_collab.results", "style.css"), *styles]))
            ),
        ]
    )
    body = [top, element("main", *parts), *(element("script", script) for script in scripts)]
    page = element("html", element("head", head), element("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def own(package: str, name: str) -> Markup:
    """A file that lies in a package."""
    return Markup((files(package) / name).read_text(encoding="utf-8"))


def grid(
    name: str,
    corner: str,
    columns: Sequence[str],
    rows: Iterable[tuple[str, Sequence[Markup]]],
    kind: str,
) -> Markup:
    """A table with headings above and on the left, in a part that narrow screens scroll.

    Args:
        name: stands above, and names the table to those who do not see it
        corner: what the headings on the left are
        rows: heading and cells; a row that is shorter than the headings is filled up
        kind: classes of ``style.css`` or of the page's own
    """
    top = [element("th", column, scope="col") for column in columns]
    body = [
        element(
            "tr",
            element("th", heading, scope="row"),
            *cells,
            *[element("td")] * (len(columns) - len(cells)),
        )
        for heading, cells in rows
    ]
    whole = element(
        "table",
        element("caption", name),
        element("thead", element("tr", element("th", corner, scope="col"), *top)),
        element("tbody", *body),
        class_=kind,
    )
    return scroll(whole, name)


def facts(items: Iterable[tuple[str, str]]) -> Markup:
    """A list of names and what they stand for."""
    pairs = [part for name, value in items for part in (element("dt", name), element("dd", value))]
    return element("dl", *pairs)


def decimals(value: Number) -> str:
    """Two decimals."""
    return NOTHING if value is None else f"{value:.2f}"
