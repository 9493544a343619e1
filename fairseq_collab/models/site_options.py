"""Options that speak of attention sites: some of the sites, a number a site, a number a layer."""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerConfig

from fairseq_collab.models import config
from fairseq_collab.models.layers import SITES, Site

#: What the help of options calls the sites.
_CALLED = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "decoder-encoder attention",
}


def in_site(name: str, site: Site, default: str, zero: str = "", what: str = "a number") -> Any:
    """The option ``--NAME-in-SITE``: one value for an attention type, or one for each layer.

    Args:
        name: of the value.
        default: the option that holds where this one is not given.
        zero: meaning of 0, if 0 is allowed.
        what: kind of value.
    """
    each = f"{what}, or one for each layer, joined by commas"
    return config.option(None, f"{name} in {_CALLED[site]}: {each}{zero} (default: {default})")


def named_sites(option: str, text: str, or_none: bool = False) -> tuple[Site, ...]:
    """Parse names of :data:`SITES` joined by commas.

    Args:
        option: how the option is called, for messages.
        or_none: the word ``none`` stands for no site.

    Raises:
        ValueError: an unknown name, or no name at all.
    """
    names = [] if or_none and text == "none" else text.split(",")
    if set(names) - set(SITES):
        raise ValueError(
            f"{option} is {text!r}; it must name some of {', '.join(SITES)}, joined by commas"
            + (", or be none" if or_none else "")
        )
    return tuple(site for site in SITES if site in names)


def per_site(option: str, text: str) -> dict[Site, int]:
    """Parse a number for all attentions, or one for each of :data:`SITES`, joined by commas.

    Raises:
        ValueError: neither of that, or a number below 1.
    """
    parts = str(text).split(",")
    if len(parts) == 1:
        parts *= len(SITES)
    if len(parts) != len(SITES) or not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(
            f"{option} is {text!r}; it must be a number above 0, or three joined by commas, for "
            f"{', '.join(SITES)}"
        )
    return {site: int(part) for site, part in zip(SITES, parts, strict=True)}


def one_a_layer(option: str, text: str | None, layers: int, least: int) -> list[int] | None:
    """Parse a number for all layers, or one for each, joined by commas; None stays None.

    Args:
        option: name of the option, for messages.
        least: the smallest number allowed.

    Raises:
        ValueError: not numbers, or neither one nor one per layer.
    """
    if text is None:
        return None
    try:
        numbers = [int(number) for number in str(text).split(",")]
    except ValueError:
        numbers = []
    if min(numbers, default=least) < least:
        numbers = []
    return _one_each(option, text, layers, numbers, f"a number from {least} up")


def _one_each(option: str, text: str, layers: int, values: list[Any], what: str) -> list[Any]:
    if len(values) == 1:
        values = values * layers
    if len(values) != layers:
        raise ValueError(
            f"{option} is {text!r}; it must be {what}, or {layers} of them (one for each layer) "
            "joined by commas"
        )
    return values


def at_layer(
    cfg: TransformerConfig, name: str, site: Site, layer: int, least: int, default: Any = None
) -> Any:
    """The number that ``--NAME-in-SITE`` gives one layer (counted from 0), or else ``default``.

    Args:
        name: of the option, as in ``cfg``: ``heads`` for ``heads_in_encoder``.
        least: the smallest number allowed.

    Raises:
        ValueError: not numbers, or neither one nor one per layer, removed layers included.
    """
    text, (layers, kept) = getattr(cfg, f"{name}_in_{site}"), cfg.layers_at[site]
    numbers = one_a_layer(_option(name, site), text, layers, least)
    return default if numbers is None else numbers[kept[layer]]


def word_at_layer(
    cfg: TransformerConfig,
    name: str,
    site: Site,
    layer: int,
    choices: tuple[str, ...],
    default: str,
) -> str:
    """The word that ``--NAME-in-SITE`` gives one layer, or else ``default``.

    Raises:
        ValueError: a word that is not among ``choices``, or neither one nor one per layer.
    """
    text, (layers, kept) = getattr(cfg, f"{name}_in_{site}"), cfg.layers_at[site]
    if text is None:
        return default
    words = text.split(",") if set(text.split(",")) <= set(choices) else []
    what = f"one of {', '.join(choices)}"
    return _one_each(_option(name, site), text, layers, words, what)[kept[layer]]


def _option(name: str, site: Site) -> str:
    return f"--{name.replace('_', '-')}-in-{site}"
