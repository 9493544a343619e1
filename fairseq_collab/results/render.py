"""What commands print and write, from the templates in ``templates/``."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from fairseq_collab.results.tables import grid, num

#: Of all templates: an unknown name is an error, and lines of statements leave no blank ones.
STRICT: dict[str, Any] = {
    "undefined": StrictUndefined,
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
}


def render(name: str, **content: object) -> str:
    """The text of a template; in HTML, strings are escaped, except ``markupsafe.Markup``."""
    return _ENVIRONMENT.get_template(name).render(content)


_ENVIRONMENT = Environment(
    loader=PackageLoader("fairseq_collab.results"),
    autoescape=select_autoescape(["html.j2"], default=False),
    **STRICT,
)
_ENVIRONMENT.globals["grid"] = grid
_ENVIRONMENT.filters["num"] = num
