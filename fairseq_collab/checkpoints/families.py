"""Which of fairseq's kinds of models a model is of: stock fairseq's, or one of ours beside it."""

from __future__ import annotations

from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_collab.models.base import Family
from fairseq_collab.models.language_models import LANGUAGE_MODEL
from fairseq_collab.models.masked_lm import MASKED_LANGUAGE_MODEL
from fairseq_collab.models.translation import TRANSLATION

#: fairseq's classes, exactly: a class derived from one may compute something else.
STOCK: dict[type, Family] = {
    TransformerModel: TRANSLATION,
    TransformerModelBase: TRANSLATION,
    TransformerLanguageModel: LANGUAGE_MODEL,
    RobertaModel: MASKED_LANGUAGE_MODEL,
}

#: Options that fairseq's own ``transformer_lm`` accepts and ignores.
IGNORED = ("scale_attn", "scale_fc", "scale_resids")


def family_of(kind: type) -> Family | None:
    """The family of a class of models; None if it is neither fairseq's own nor ours."""
    ours = (family for family in STOCK.values() if issubclass(kind, family.model))
    return STOCK.get(kind) or next(ours, None)
