"""Models with one stack of layers, whose attention is that of an encoder-decoder variant.

What language models and masked language models have in common: their options are those of fairseq's
model and those that the variant adds to fairseq's transformer, and the variant builds their
attention.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import field, fields, make_dataclass
from typing import Any, ClassVar

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig

from fairseq_collab.models.base import HeadModel, HeadTransformer
from fairseq_collab.models.config import TransformerOptions, preset
from fairseq_collab.models.layers import Site


class VariantModel(HeadModel):
    """A model with one stack of layers whose attention is that of an encoder-decoder variant."""

    #: The encoder-decoder model that builds the attention.
    variant: ClassVar[type[HeadTransformer]]
    #: The options that the variant adds to fairseq's transformer.
    variant_options: ClassVar[type]
    #: The model's options, without the values of a preset.
    options: ClassVar[type]

    @classmethod
    def add_args(cls, parser: Any) -> None:
        # Without the preset's values: fairseq makes a flag whose default is true one that switches
        # it off, and --decoder-normalize-before would do so.
        gen_parser_from_dataclass(parser, cls.options(), delete_default=True)

    @classmethod
    def transformer_config(cls, given: Mapping[str, Any]) -> TransformerConfig:
        """fairseq's nested configuration from flat options, with what builds the attention.

        Raises:
            ValueError: an option's value makes no sense; the message names it.
        """
        left_out = {option.name: option.default for option in added_by(cls.variant_options)}
        config = TransformerConfig.from_namespace(Namespace(**{**left_out, **given}))
        config.attention_builder = cls.variant.attention_builder(config)
        return config


def added_by(variant_options: type) -> list[Any]:
    """The fields that a variant's option class adds to fairseq's transformer."""
    known = {option.name for option in fields(TransformerOptions)}
    return [option for option in fields(variant_options) if option.name not in known]


def with_variant(
    base: type, variant_options: type, absent: Collection[Site], replaced: Collection[str] = ()
) -> type:
    """The option class ``base`` with what ``variant_options`` adds.

    Args:
        absent: attention sites that the model lacks; options of theirs alone are left out.
        replaced: options that would have no effect, left out, too.
    """
    endings = tuple(f"_in_{site}" for site in absent)
    added = [
        (option.name, option.type, field(default=option.default, metadata=dict(option.metadata)))
        for option in added_by(variant_options)
        if not option.name.endswith(endings)
        and option.name != "collaborative_sites"  # there is one
        and option.name not in replaced
    ]
    return make_dataclass(f"{base.__name__}{variant_options.__name__}", added, bases=(base,))


def register_variant(
    arch: str,
    model: type[VariantModel],
    variant: type[HeadTransformer],
    variant_options: type,
    options: type,
    presets: Mapping[str, Mapping[str, Any]],
) -> None:
    """Register ``model`` with the attention of ``variant`` once for each preset.

    Args:
        arch: the architecture's name, to which a preset adds its ending.
        options: all options; see :func:`with_variant`.
    """
    for ending, values in presets.items():
        name = f"{arch}{ending}"
        members = {"variant": variant, "variant_options": variant_options, "options": options}
        register_model(name, dataclass=preset(options, f"Options_{name}", **values))(
            type(f"{model.__name__}_{name}", (model,), members)
        )
