"""Options of our models: fairseq's transformer options, flat, and presets of their values.

fairseq's ``TransformerConfig`` is nested (``encoder.embed_dim``), its command line is flat
(``--encoder-embed-dim``), and only a flat dataclass makes both ``--arch`` and Hydra's ``model.``
overrides see these names.  So the nested options are flattened here, one for one, and nested
again when a model is built.

A preset is a separate dataclass, registered as a separate model: its sizes are then plain
defaults, and hold on the command line and under Hydra (fairseq applies architecture
*functions* on the command line only).

Options named ``--NAME-in-TYPE`` have one value for an attention type, or one for each layer.
"""

# No "from __future__ import annotations", and Optional: fairseq reads the fields' types, and knows
# no other spelling.
# ruff: noqa: UP045
from argparse import Namespace
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from typing import Any, NamedTuple, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf

from collab_common import ATTENTION_TYPES, AttentionType
from fairseq_collab.attention.rounding import BITS

#: Sizes whose default is ``--decoder-embed-dim``.
_OF_THE_MODEL = ("decoder_input_dim", "decoder_output_dim")
#: Options whose declared type or default does not fit their use in fairseq.
_CORRECTED: dict[str, tuple[Any, Any]] = {
    "encoder_layers_to_keep": (Optional[str], None),  # fairseq splits it at commas
    "decoder_layers_to_keep": (Optional[str], None),
    **dict.fromkeys(_OF_THE_MODEL, (Optional[int], None)),
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
            described = {"help": name.replace("_", " "), **option.metadata}
            flat.append((name, kind, field(default=default, metadata=described)))
    return flat


#: All options of fairseq's transformer, under the names they have on the command line.
TransformerOptions = make_dataclass(
    "TransformerOptions", _flat_fields(TransformerConfig), bases=(FairseqDataclass,)
)


def option(
    default: Any, help: str, choices: tuple[str, ...] = (), needs: str = "", of_model: bool = False
) -> Any:
    """Make a field of an options' dataclass.

    Args:
        choices: allowed words; ``sweep`` checks them.
        needs: another option that the option needs, for the message if it has no effect.
        of_model: whether the model reads the option, and not its attentions.
    """
    metadata = {"help": help, "choices": choices, "needs": needs, "of_model": of_model}
    return field(default=default, metadata=metadata)


def preset(base: type, name: str, **defaults: Any) -> type:
    """Copy the option class ``base`` with other defaults."""
    option_fields = {option.name: option for option in fields(base)}
    changed = [copied(option_fields[key], value) for key, value in defaults.items()]
    # Inherited methods are not generated anew: there are a hundred of these at every start.
    doc = {"__doc__": base.__doc__}
    return make_dataclass(name, changed, bases=(base,), namespace=doc, repr=False, eq=False)


def copied(option: Field[Any], default: Any = MISSING) -> tuple[str, Any, Any]:
    """Copy an option for another class, with another default if one is given."""
    value = option.default if default is MISSING else default
    return option.name, option.type, field(default=value, metadata=dict(option.metadata))


def fairseq_values(arch: str, options: type) -> dict[str, Any]:
    """Return the values of fairseq's preset ``arch`` that differ from the defaults of ``options``.

    Repetitions of the model's dimension and options of the task are left out.
    """
    ARCH_CONFIG_REGISTRY[arch](namespace := Namespace())
    values, changed = vars(namespace), {}
    for option in fields(options):
        value = values.get(option.name, option.default)
        of_the_task = str(option.default).startswith("${")
        if value == option.default or of_the_task or option.name in _OF_THE_MODEL:
            continue
        is_number = option.type in (int, Optional[int])  # some are False there
        changed[option.name] = int(value) if is_number else value
    return changed


#: Sizes of the presets of all variants.  The first four are fairseq's own.
PRESET_SIZES: dict[str, dict[str, Any]] = {
    ending: fairseq_values(f"transformer{ending}", TransformerOptions)
    for ending in ("", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")
}
_MULTI30K = {"embed_dim": 256, "ffn_embed_dim": 512, "attention_heads": 4, "layers": 3}
PRESET_SIZES["_multi30k"] = {
    "dropout": 0.3,
    **{f"{side}_{k}": size for side in ("encoder", "decoder") for k, size in _MULTI30K.items()},
}


def plain_options(cfg: DictConfig) -> dict[str, Any]:
    """Return the options as plain values, interpolations resolved."""
    values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}


# ---- options of single attention types ----------------------------------------------------------


class Site(NamedTuple):
    """Where an attention is in a model, and the sizes there.

    Attributes:
        layer: counted from 0.
        embed_dim: size of the queries and the output.
        kdim: size of the input of keys and values.
        num_heads: fairseq's ``--encoder-attention-heads`` or ``--decoder-attention-heads``.
    """

    type: AttentionType
    layer: int
    embed_dim: int
    kdim: int
    num_heads: int


def site_of(cfg: TransformerConfig, type_: AttentionType, layer: int) -> Site:
    """Return the site of an attention, with the sizes that ``cfg`` says."""
    queries = cfg.encoder if type_ == "encoder" else cfg.decoder
    keys = cfg.decoder if type_ == "decoder" else cfg.encoder
    return Site(type_, layer, queries.embed_dim, keys.embed_dim, queries.attention_heads)


#: Names of the attention types in help texts.
_CALLED = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


def in_types(
    name: str, meaning: str, zero: str = "", types: Any = ATTENTION_TYPES
) -> Callable[[type], type]:
    """Add to a dataclass the options ``--NAME-in-TYPE``: a value for one attention type, or a list.

    Args:
        meaning: meaning of the value, for the help text.
        zero: meaning of 0, if 0 is allowed.
        types: attention types that have the option.
    """

    def help_of(type_: AttentionType) -> str:
        usual = f"--{name.replace('_', '-')}" if name != "heads" else "the model's heads"
        values = f"one number, or one per layer, joined by commas{zero}"
        return f"{meaning} in {_CALLED[type_]}: {values} (default: {usual})"

    def add(options: type) -> type:
        added = [
            (f"{name}_in_{type_}", Optional[str], option(None, help_of(type_))) for type_ in types
        ]
        names = {"__doc__": options.__doc__, "__module__": options.__module__}
        return make_dataclass(options.__name__, added, bases=(options,), namespace=names)

    return add


def named_types(option: str, text: str) -> tuple[AttentionType, ...]:
    """Parse names of :data:`ATTENTION_TYPES` joined by commas.

    Raises:
        ValueError: the text is anything else.
    """
    names = text.split(",")
    if set(names) - set(ATTENTION_TYPES):
        expected = ", ".join(ATTENTION_TYPES)
        raise ValueError(f"{option} is {text!r}; it must name some of {expected}, joined by commas")
    return tuple(type_ for type_ in ATTENTION_TYPES if type_ in names)


def listed_values(option: str, text: str, layers: int, allowed: int | tuple[str, ...]) -> list[Any]:
    """Parse one value for all layers, or one value per layer, joined by commas.

    Args:
        option: name of the option, for messages.
        allowed: the smallest number, or the allowed words.

    Raises:
        ValueError: a value is not allowed, or there is neither one value nor one per layer.
    """
    words = str(text).split(",")
    if isinstance(allowed, tuple):
        values: list[Any] = [word for word in words if word in allowed]
        expected = f"one of {', '.join(allowed)}"
    else:
        values = [int(word) for word in words if word.isdecimal() and int(word) >= allowed]
        expected = f"a number from {allowed} up"
    if len(values) < len(words) or len(values) not in (1, layers):
        raise ValueError(
            f"{option} is {text!r}; it must be {expected}, or {layers} of them "
            "(one for each layer) joined by commas"
        )
    return values * layers if len(values) == 1 else values


def at_layer(
    cfg: TransformerConfig,
    name: str,
    site: Site,
    allowed: int | tuple[str, ...],
    default: Any = None,
) -> Any:
    """Return the value of ``--NAME-in-TYPE`` at ``site``, or else of ``--NAME``.

    Args:
        name: name of the option, as in ``cfg``: ``key_dim`` for ``key_dim_in_encoder``.
        allowed: the smallest number, or the allowed words.
        default: value if none of the options is given.

    Raises:
        ValueError: see :func:`listed_values`.
    """
    text = getattr(cfg, f"{name}_in_{site.type}")
    if text is None:
        usual = getattr(cfg, name, None)  # read only here: see :mod:`.unused`
        return default if usual is None else usual
    option = f"--{name.replace('_', '-')}-in-{site.type}"
    layers = (cfg.encoder if site.type == "encoder" else cfg.decoder).layers
    return listed_values(option, text, layers, allowed)[site.layer]


#: Bits of a number in the KV cache, as options; 0 without rounding.
CACHE_BITS = ("0", *map(str, BITS))


# ---- options of all variants --------------------------------------------------------------------


@in_types("cache_bits", "bits per number in the KV cache", types=("decoder", "cross"))
@dataclass
class CacheOptions(FairseqDataclass):
    """Rounding of the KV cache, also in training: options of all variants, not in signatures."""

    cache_bits: str = option(
        "0",
        "bits per number in the KV cache, also in training: 8, 4, or 0 for no rounding",
        CACHE_BITS,
    )


def _ffn_dims(side: str) -> Any:
    values = "one number, or one per layer, joined by commas; 0 for a constant output"
    usual = f"--{side}-ffn-embed-dim"
    return option(None, f"width of the {side}'s feed-forward blocks: {values} (default: {usual})")


@dataclass
class FeedForwardOptions(FairseqDataclass):
    """Widths of feed-forward blocks by layer: options of all variants."""

    ffn_dims_in_encoder: Optional[str] = _ffn_dims("encoder")
    ffn_dims_in_decoder: Optional[str] = _ffn_dims("decoder")


def feed_forward_width(cfg: TransformerConfig, side: str, layer: int) -> int:
    """Return the width of a feed-forward block by ``--ffn-dims-in-SIDE``.

    Args:
        side: encoder or decoder.
        layer: counted from 0.

    Raises:
        ValueError: see :func:`listed_values`; or the widths of layers cannot differ.
    """
    text, stack = getattr(cfg, f"ffn_dims_in_{side}", None), getattr(cfg, side)
    if text is None:
        return int(stack.ffn_embed_dim)
    name = f"--ffn-dims-in-{side}"
    if getattr(cfg, "scale_fc", False):
        raise ValueError(f"--scale-fc normalises {side}-ffn-embed-dim numbers: leave {name} out")
    return int(listed_values(name, text, stack.layers, 0)[layer])


#: Options of all variants.
COMMON = (CacheOptions, FeedForwardOptions)
