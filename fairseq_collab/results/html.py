"""Pages from the templates in ``templates/``: text is data there, whatever it holds.

An HTML page extends ``base.html.j2``: it is given ``title`` and ``sections`` (pairs of anchor and
heading) and fills the blocks ``lead`` and ``main``.
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from fairseq_collab.results.tables import EN_DASH, grid, num

#: Of all templates: an unknown name is an error, and lines of statements leave no blank ones.
STRICT: dict[str, Any] = {
    "undefined": StrictUndefined,
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
}


def source(name: str) -> Markup:
    """A style sheet in ``fairseq_collab/results``, unescaped."""
    return Markup((files("fairseq_collab.results") / name).read_text(encoding="utf-8"))


def render(name: str, **content: object) -> str:
    """The page of a file in ``templates/``, the same for the same content.

    In HTML, strings are escaped, except :class:`markupsafe.Markup`; a variable that is not given is
    an error.
    """
    return _ENVIRONMENT.get_template(name).render(content)


_ENVIRONMENT = Environment(
    loader=PackageLoader("fairseq_collab.results"),
    autoescape=select_autoescape(["html.j2"], default=False),
    **STRICT,
)
_ENVIRONMENT.globals |= {"source": source, "grid": grid}
_ENVIRONMENT.filters["num"] = partial(num, nothing=EN_DASH)
