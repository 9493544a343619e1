"""Options of our models: fairseq's transformer options, flat, and what each variant adds.

fairseq's ``TransformerConfig`` is nested (``encoder.embed_dim``), its command line is flat
(``--encoder-embed-dim``), and only a flat dataclass makes both ``--arch`` and Hydra's ``model.``
overrides see the same names.  So the nested options are flattened here, one for one, and nested
again when a model is built.

A preset is a dataclass of its own, registered as a model of its own: its sizes are then plain
defaults, and hold on the command line and under Hydra alike (fairseq applies architecture
*functions* on the command line only).
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from argparse import Namespace
from dataclasses import Field, dataclass, field, fields, make_dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf

#: Options whose declared type or default does not fit their use in fairseq.
_CORRECTED: dict[str, tuple[Any, Any]] = {
    "encoder_layers_to_keep": (Optional[str], None),  # fairseq splits it at commas
    "decoder_layers_to_keep": (Optional[str], None),
    "decoder_input_dim": (Optional[int], None),  # --decoder-embed-dim unless given
    "decoder_output_dim": (Optional[int], None),
}


def _flat_fields(config: type, prefix: str = "") -> list[tuple[str, Any, Any]]:
    flat: list[tuple[str, Any, Any]] = []
    for option in fields(config):
        name = prefix + option.name
        if option.name == "_name":
            continue
        if isinstance(option.type, type) and issubclass(option.type, FairseqDataclass):
            flat += _flat_fields(option.type, f"{name}_")
        else:
            kind, default = _CORRECTED.get(name, (option.type, option.default))
            flat.append((name, kind, field(default=default, metadata=_with_help(option, name))))
    return flat


def _with_help(option: Field[Any], name: str) -> dict[str, Any]:
    return {"help": name.replace("_", " "), **option.metadata}


#: All options of fairseq's transformer, under the names they have on the command line.
TransformerOptions = make_dataclass(
    "TransformerOptions", _flat_fields(TransformerConfig), bases=(FairseqDataclass,)
)


def preset(base: type, name: str, **defaults: Any) -> type:
    """A copy of the option class ``base`` with other defaults.

    Raises:
        ValueError: ``base`` has no option of that name.
    """
    known = {option.name: option for option in fields(base)}
    unknown = defaults.keys() - known.keys()
    if unknown:
        raise ValueError(f"preset {name}: no such options: {', '.join(sorted(unknown))}")
    changed = [
        (key, known[key].type, field(default=value, metadata=dict(known[key].metadata)))
        for key, value in defaults.items()
    ]
    return make_dataclass(name, changed, bases=(base,))


def _both_sides(**sizes: int) -> dict[str, Any]:
    """The same sizes for encoder and decoder."""
    return {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}


#: Sizes of the presets, the same for every variant.  The first four are fairseq's own
#: (``transformer``, ``transformer_iwslt_de_en``, ``transformer_wmt_en_de``, ``..._big``).
PRESET_SIZES: dict[str, dict[str, Any]] = {
    "": {},
    "_iwslt_de_en": _both_sides(ffn_embed_dim=1024, attention_heads=4),
    "_wmt_en_de": {},
    "_wmt_en_de_big": {
        "dropout": 0.3,
        **_both_sides(embed_dim=1024, ffn_embed_dim=4096, attention_heads=16),
    },
    "_multi30k": {
        "dropout": 0.3,
        **_both_sides(embed_dim=256, ffn_embed_dim=512, attention_heads=4, layers=3),
    },
}


def nested(options: DictConfig) -> TransformerConfig:
    """fairseq's nested configuration with the values of our flat ``options``.

    Options that fairseq does not know become attributes of the result as they are.
    """
    values = OmegaConf.to_container(options, resolve=True, enum_to_str=True)
    assert isinstance(values, dict)
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if values[name] is None:
            values[name] = values["decoder_embed_dim"]
    return TransformerConfig.from_namespace(Namespace(**{str(k): v for k, v in values.items()}))


def _key_dim_in(site: str) -> Any:
    """The option for the shared key dimensions of one attention site."""
    return field(
        default=None,
        metadata={
            "help": f"key dimension in {site}: a number, or one a layer, joined by commas; 0 for "
            "ordinary heads in that layer (default: --key-dim)"
        },
    )


# mypy cannot follow a base class that make_dataclass makes at run time: hence the ignores below.
# The defaults here are the authors' (xavier, embed); configs/model/collab.yaml has block and key,
# which start as concatenated heads do.  Both stay: trained models and commands rely on them.
@dataclass
class CollabOptions(TransformerOptions):  # type: ignore[misc, valid-type]
    """Options of ``transformer_collab`` (Cordonnier et al. 2020, arXiv 2006.16362)."""

    key_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "size of the query/key space that all heads of an attention share "
            "(default: a quarter of the model dimension)"
        },
    )
    key_dim_in_encoder: Optional[str] = _key_dim_in("encoder self-attention")
    key_dim_in_decoder: Optional[str] = _key_dim_in("decoder self-attention")
    key_dim_in_cross: Optional[str] = _key_dim_in("decoder-encoder attention")
    collaborative_sites: str = field(
        default="encoder,decoder,cross",
        metadata={
            "help": "attentions with collaborative heads: some of encoder, decoder (its "
            "self-attention), cross, joined by commas, or none; the others keep ordinary heads"
        },
    )
    mixing_init: str = field(
        default="xavier",
        metadata={
            "help": "initial mixing: xavier (as the authors' translation code), block (starts as "
            "concatenated heads of size key-dim/heads), normal (std 0.2, as their library), ones"
        },
    )
    attention_scale: str = field(
        default="embed",
        metadata={
            "help": "scale of the scores: embed for (model dimension/heads)^-0.5 at every key "
            "dimension (as the authors' translation code), key for (key-dim/heads)^-0.5 (as "
            "their library)"
        },
    )
    attention_bias: str = field(
        default="projection",
        metadata={
            "help": "projection (query and key biases, as the authors' translation code), content "
            "(one content vector a head, as their library), none"
        },
    )
    value_init: str = field(
        default="constant",
        metadata={
            "help": "initial values: constant (fairseq's own at every key dimension), fork (gain 1 "
            "in place of 1/sqrt(2) wherever the key dimension is not the model dimension, as the "
            "authors' translation code)"
        },
    )


def _heads_in(site: str, default: str) -> Any:
    """The option that counts the heads of one attention site."""
    return field(
        default=None,
        metadata={
            "help": f"heads in {site}: a number, or one a layer, joined by commas "
            f"(default: {default})"
        },
    )


@dataclass
class HeadSizeOptions(TransformerOptions):  # type: ignore[misc, valid-type]
    """Options of ``transformer_headsize_n`` (Bhojanapalli et al. 2020, arXiv 2002.07028)."""

    head_size: Optional[int] = field(
        default=None,
        metadata={
            "help": "size of a head's query, key and value, whatever the model dimension and the "
            "number of heads (default: model dimension/heads)"
        },
    )
    qk_head_size: Optional[int] = field(
        default=None,
        metadata={"help": "size of a head's query and key (default: --head-size)"},
    )
    v_head_size: Optional[int] = field(
        default=None, metadata={"help": "size of a head's value (default: --head-size)"}
    )
    key_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "size of the queries and keys of all heads together: another way to say "
            "--qk-head-size, key-dim/heads"
        },
    )
    heads_in_encoder: Optional[str] = _heads_in(
        "encoder self-attention", "--encoder-attention-heads"
    )
    heads_in_decoder: Optional[str] = _heads_in(
        "decoder self-attention", "--decoder-attention-heads"
    )
    heads_in_cross: Optional[str] = _heads_in(
        "decoder-encoder attention", "--decoder-attention-heads"
    )
    attention_scale: str = field(
        default="key",
        metadata={
            "help": "scale of the scores: key for (query/key head size)^-0.5, embed for (model "
            "dimension/heads)^-0.5 whatever the head size (as in the concatenated baseline of "
            "arXiv 2006.16362's translation code)"
        },
    )
    key_init: str = field(
        default="constant",
        metadata={
            "help": "initial queries and keys: constant (fairseq's gain 1/sqrt(2) at every head "
            "size), fork (gain 1 wherever heads times query/key head size is not the model "
            "dimension, as arXiv 2006.16362's translation code)"
        },
    )
    value_init: str = field(
        default="constant",
        metadata={"help": "initial values: constant or fork, as for --key-init"},
    )
