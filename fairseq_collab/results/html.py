"""Pages from the templates in ``templates/``: text is data there, whatever it holds.

A page extends ``base.html.j2``: it is given ``title`` and ``sections`` (pairs of anchor and
heading) and fills the blocks ``style``, ``lead``, ``main`` and ``script``.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def source(name: str) -> Markup:
    """A file of ``fairseq_collab/results`` as it is: style sheets and scripts of our own."""
    return Markup((files("fairseq_collab.results") / name).read_text(encoding="utf-8"))


def render(name: str, **content: object) -> str:
    """Render a template.

    Args:
        name: file in ``templates/``
        content: its variables; strings are escaped, except :class:`markupsafe.Markup`

    Returns:
        The page, the same for the same content.

    Raises:
        jinja2.UndefinedError: the template asks for a variable that is not given
    """
    return ENVIRONMENT.get_template(name).render(content)


ENVIRONMENT = Environment(
    loader=PackageLoader("fairseq_collab.results"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals["source"] = source
