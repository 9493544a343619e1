"""Which families of models have which variants, in one table; importing it registers them all."""

from __future__ import annotations

from fairseq_collab.models import (
    collaborative,
    concatenated,
    gated,
    grouped_query,
    head_groups,
    latent,
    mfa,
)
from fairseq_collab.models.base import Family, Variant, register
from fairseq_collab.models.language_models import LANGUAGE_MODEL
from fairseq_collab.models.masked_lm import MASKED_LANGUAGE_MODEL
from fairseq_collab.models.translation import TRANSLATION

_ALL = (TRANSLATION, LANGUAGE_MODEL, MASKED_LANGUAGE_MODEL)

COLLABORATIVE = Variant("collab", collaborative.attention, collaborative.CollabOptions, _ALL)
CONCATENATED = Variant("headsize_n", concatenated.attention, concatenated.ConcatenatedOptions, _ALL)
HEAD_GROUPS = Variant(
    "grouped_heads",
    head_groups.attention,
    head_groups.HeadGroupOptions,
    (TRANSLATION, LANGUAGE_MODEL),
    upgrade=head_groups.add_groups,
)
GATED = Variant(
    "gated_heads",
    gated.attention,
    gated.GatedOptions,
    (TRANSLATION,),
    finish=gated.freeze_parts,
    upgrade=gated.add_gates,
)
GROUPED_QUERY = Variant(
    "grouped_query", grouped_query.attention, grouped_query.GroupedQueryOptions, _ALL
)
LATENT = Variant("latent", latent.attention, latent.LatentOptions, _ALL)

MFA = Variant("mfa", mfa.attention, mfa.MFAOptions, _ALL)

VARIANTS = (COLLABORATIVE, CONCATENATED, HEAD_GROUPS, GATED, GROUPED_QUERY, LATENT, MFA)
for variant in VARIANTS:
    register(variant)


def family_of(kind: type) -> Family | None:
    """The family of a class of models; None if it is neither fairseq's own nor ours."""
    return next((one for one in _ALL if kind in one.stock or issubclass(kind, one.model)), None)
