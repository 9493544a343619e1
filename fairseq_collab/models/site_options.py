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


def in_site(what: str, site: Site, default: str, zero: str = "") -> Any:
    """The option ``--NAME-in-SITE``: a number for all layers of a site, or one for each.

    Args:
        what: a number is given of.
        default: the option that holds where this one is not given.
        zero: what 0 stands for, if it may be given.
    """
    each = "a number, or one for each layer, joined by commas"
    return config.option(None, f"{what} in {_CALLED[site]}: {each}{zero} (default: {default})")


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
        option: how the option is called, for messages.
        least: the smallest number that makes sense.

    Raises:
        ValueError: not such numbers, or as many as neither one nor the layers.
    """
    if text is None:
        return None
    try:
        numbers = [int(number) for number in str(text).split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        numbers *= layers
    if len(numbers) != layers or min(numbers, default=least) < least:
        raise ValueError(
            f"{option} is {text!r}; it must be a number from {least} up, or {layers} of them "
            "(one for each layer) joined by commas"
        )
    return numbers


def at_layer(
    cfg: TransformerConfig, name: str, site: Site, layer: int, least: int, default: Any = None
) -> Any:
    """What ``--NAME-in-SITE`` says of one layer (counted from 0), or else ``default``.

    Args:
        name: of the option, as in ``cfg``: ``heads`` for ``heads_in_encoder`` and its like.
        least: the smallest number that makes sense.

    Raises:
        ValueError: not numbers, or as many as neither one nor the layers, those that are not kept
            included.
    """
    text = getattr(cfg, f"{name}_in_{site}")
    option = f"--{name.replace('_', '-')}-in-{site}"
    layers, kept = cfg.layers_at[site]
    numbers = one_a_layer(option, text, layers, least)
    return default if numbers is None else numbers[kept[layer]]
