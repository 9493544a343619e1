"""Options that no attention of a model reads, so that they would have no effect.

A variant has the options of all its heads, and other options decide which heads a model has: a
layer without a shared key has no query mixing, and a layer with a key width of its own does not
read the key width of the whole model.  So this module builds attentions with a configuration that
notes which options are read, and throws the attentions away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import Field, fields
from typing import Any, cast

import torch
from fairseq.models.transformer import TransformerConfig

from collab_common import ATTENTION_TYPES, AttentionType
from fairseq_collab.models.layers import build_attention
from fairseq_collab.models.options import CacheOptions, Site, site_of


class Reader:
    """A configuration that notes in ``read`` the names of the options that are read."""

    def __init__(self, cfg: TransformerConfig, read: set[str]):
        self._cfg, self._read = cfg, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._cfg, name)


def unused(
    cfg: TransformerConfig, variant_options: type, absent: Collection[AttentionType] = ()
) -> list[Field[Any]]:
    """List the options of heads and of their cache that are given but that no attention reads.

    An option that has its default does not count as given, nor does an option of the whole model
    (:func:`.options.option`).

    Args:
        absent: attention types that the model lacks.

    Raises:
        ValueError: an option makes no sense.
    """
    given = [
        option
        for kind in (variant_options, CacheOptions)
        for option in fields(kind)
        if option.name != "_name"
        and str(getattr(cfg, option.name, option.default)) != str(option.default)
        and not option.metadata.get("of_model")
    ]
    if not given:
        return []
    read: set[str] = set()
    noting = cast(TransformerConfig, Reader(cfg, read))
    with torch.random.fork_rng(devices=[]):  # a seed gives the weights that it would give without
        for site in sites(cfg, absent):
            build_attention(noting, site)
            if read.issuperset(option.name for option in given):
                break  # most often after the first
    return [option for option in given if option.name not in read]


def sites(cfg: TransformerConfig, absent: Collection[AttentionType] = ()) -> Iterator[Site]:
    """Yield the sites of a model: where it has attentions."""
    for type_ in ATTENTION_TYPES:
        if type_ in absent or (type_ == "cross" and cfg.no_cross_attention):
            continue
        for layer in range((cfg.encoder if type_ == "encoder" else cfg.decoder).layers):
            yield site_of(cfg, type_, layer)
