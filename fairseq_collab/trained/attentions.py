"""All attentions of a model, stock fairseq's or ours: the one place that knows where they are."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from torch import nn

from fairseq_collab.models.layers import SITES, Site

#: How a model calls its attentions.
_NAME = re.compile(
    r"(?P<side>encoder|decoder)\.layers\.(?P<layer>\d+)\.(?P<kind>self_attn|encoder_attn)"
)


class Attention(NamedTuple):
    """One attention of a model: its site, its layer from 0, the module, its name in the weights."""

    site: Site
    layer: int
    module: Any
    name: str

    def __str__(self) -> str:
        return f"{self.site} {self.layer}"


def attentions(model: nn.Module) -> list[Attention]:
    """All attentions of a translation or language model, of whatever kind.

    Encoder, decoder, then cross, layer by layer; none of a model without such layers.
    """
    found = []
    for name, module in model.named_modules(remove_duplicate=False):
        if match := _NAME.fullmatch(name):
            own: Site = "encoder" if match["side"] == "encoder" else "decoder"
            site: Site = own if match["kind"] == "self_attn" else "cross"
            found.append(Attention(site, int(match["layer"]), module, name))
    return sorted(found, key=lambda one: (SITES.index(one.site), one.layer))


def by_site(model: nn.Module) -> dict[Site, list[Attention]]:
    """The same by site; a site that the model lacks has an empty list."""
    found = attentions(model)
    return {site: [one for one in found if one.site == site] for site in SITES}
