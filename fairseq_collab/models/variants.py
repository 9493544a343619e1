"""The table of variants and families of models; importing it registers them all."""

from __future__ import annotations

from fairseq_collab.models import gated_heads as gated
from fairseq_collab.models import separate_heads as separate
from fairseq_collab.models import shared_heads as shared
from fairseq_collab.models.base import Family, Variant, register
from fairseq_collab.models.families import LANGUAGE_MODEL, TRANSLATION

_ALL = (TRANSLATION, LANGUAGE_MODEL)

COLLABORATIVE = Variant("collab", shared.shared_keys, shared.CollabOptions, _ALL)
GROUPED_QUERY = Variant("grouped_query", shared.grouped_query, shared.GroupedQueryOptions, _ALL)
LATENT = Variant("latent", shared.latent, shared.LatentOptions, _ALL, finish=shared.share_latents)
SEPARATE = Variant("headsize_n", separate.separate_heads, separate.SeparateOptions, _ALL)
HEAD_GROUPS = Variant("grouped_heads", separate.grouped_heads, separate.HeadGroupOptions, _ALL)
GATED = Variant(
    "gated_heads",
    gated.gated_heads,
    gated.GatedOptions,
    (TRANSLATION,),
    finish=gated.freeze_decoder,
    upgrade=gated.add_gates,
)

VARIANTS = (COLLABORATIVE, SEPARATE, HEAD_GROUPS, GATED, GROUPED_QUERY, LATENT)
for variant in VARIANTS:
    register(variant)


def family_of(kind: type) -> Family | None:
    """Return the family of a class of models; None if the class is neither fairseq's nor ours.

    A class that is derived from one of these may compute something else, and has no family.
    """
    registered = "variant" in vars(kind)  # by register, not inherited
    return next(
        (f for f in _ALL if kind in f.stock or (registered and issubclass(kind, f.model))), None
    )
