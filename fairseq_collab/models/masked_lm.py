"""Encoder-only masked language models with our heads, each beside fairseq's ``roberta``.

BERT's initialisation (all projections normal with standard deviation 0.02) replaces the variants'
own, so ``--value-init`` and ``--key-init`` are left out, and ``--attention-scale variance``, which
is a rule for those, is refused; ``--mixing-init`` holds.
"""

# Optional: fairseq reads the fields' types, and knows no other spelling.
# ruff: noqa: UP045
from __future__ import annotations

from argparse import Namespace
from dataclasses import MISSING, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.roberta import RobertaEncoder, RobertaModel
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from collab_common.errors import UserError
from fairseq_collab.models.base import Family, HeadModel
from fairseq_collab.models.config import TransformerOptions, copied, of_fairseq, option
from fairseq_collab.models.layers import Encoder

#: Options that fairseq's RoBERTa has in common with its transformer.
_SHARED = (
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads"),
    *("encoder_normalize_before", "encoder_layerdrop", "encoder_layers_to_keep", "activation_fn"),
    *("dropout", "attention_dropout", "activation_dropout", "layernorm_embedding"),
    *("checkpoint_activations", "offload_activations", "quant_noise_pq"),
    *("quant_noise_pq_block_size", "quant_noise_scalar", "min_params_to_wrap"),
)
#: RoBERTa's values.  A flag is false, or the command line could not switch it on: presets do.
_BASE = of_fairseq("roberta", TransformerOptions, but="layernorm_embedding")
_KNOWN = {option.name: option for option in fields(TransformerOptions)}
_OWN: list[tuple[str, Any, Any, str]] = [
    ("pooler_activation_fn", _KNOWN["activation_fn"].type, "tanh", "activation of the pooler"),
    ("pooler_dropout", float, 0.0, "dropout probability in the pooler"),
    (
        "max_positions",
        Optional[int],
        None,
        "number of positions to learn (default: the task's tokens per sample)",
    ),
    ("load_checkpoint_heads", bool, False, "(re-)register and load heads with a checkpoint"),
    ("untie_weights_roberta", bool, False, "untie the output layer from the embeddings"),
    ("spectral_norm_classification_head", bool, False, "normalise heads by their spectrum"),
]

#: fairseq's options of RoBERTa, but for those that prune its own attention while it trains.
MaskedLanguageModelOptions = make_dataclass(
    "MaskedLanguageModelOptions",
    [copied(_KNOWN[name], _BASE.get(name, MISSING)) for name in _SHARED]
    + [(name, kind, option(value, what)) for name, kind, value, what in _OWN],
    bases=(FairseqDataclass,),
)

#: fairseq's own sizes, by the ending of the architecture's name (``roberta_large``, ...).
_SIZES = {
    ending: of_fairseq(f"roberta{ending}", MaskedLanguageModelOptions)
    for ending in ("", "_base", "_prenorm", "_large")
}


class HeadRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder around our stack of layers."""

    def __init__(self, args: Namespace, dictionary: Any, config: TransformerConfig):
        self.config = config  # before the parent, which builds the stack
        super().__init__(args, dictionary)

    def build_encoder(
        self, args: Namespace, dictionary: Any, embed_tokens: nn.Embedding
    ) -> Encoder:
        encoder = Encoder(self.config, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder


class HeadRoberta(HeadModel, RobertaModel):
    """RoBERTa whose attention is one of ours."""

    @classmethod
    def build(cls, given: dict[str, Any], task: Any) -> HeadRoberta:
        if given.get("attention_scale") == "variance":
            raise ValueError(
                "attention scale is 'variance', a rule for this project's initial weights, which "
                "BERT's replace here: give key or embed"
            )
        if given["max_positions"] is None:
            given["max_positions"] = positions_of(task)
        # What fairseq's RoBERTa sets and gives no option for.
        fixed = {
            "max_source_positions": given["max_positions"],
            "encoder_learned_pos": True,
            "no_scale_embedding": True,
        }
        config = cls.nested({**given, **fixed})
        arguments = Namespace(**given)
        return cls(arguments, HeadRobertaEncoder(arguments, task.source_dictionary, config))


def positions_of(task: Any) -> int:
    """The length that a task cuts its samples to; raises UserError if it has none."""
    for name in ("tokens_per_sample", "max_positions"):
        length = getattr(task.cfg, name, None)
        if length is not None:
            return length
    raise UserError("the task says no length of its samples", todo="give --max-positions")


MASKED_LANGUAGE_MODEL = Family(
    "roberta_",
    HeadRoberta,
    MaskedLanguageModelOptions,
    _SIZES,
    stock=(RobertaModel,),
    absent=("decoder", "cross"),
    without=("collaborative_sites", "value_init", "key_init"),  # there is one; see above
)
