"""Common parts of all our models: description, registration, building, loading with checks."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, make_dataclass
from typing import Any, ClassVar

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import MODEL_DATACLASS_REGISTRY, BaseFairseqModel, register_model
from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.packed import use_kernel
from fairseq_collab.attention.signature import Signature
from fairseq_collab.cpu_kernels.dropout import swap_dropout
from fairseq_collab.cpu_kernels.onednn import swap_linear
from fairseq_collab.cpu_kernels.rounded import compiled_heads
from fairseq_collab.models.checks import SINES, ModelSignature, check_weights
from fairseq_collab.models.layers import AttentionFactory
from fairseq_collab.models.options import COMMON, copied, plain_options, preset
from fairseq_collab.models.unused import unused

#: Options of fairseq's transformer that do not work with our attention, and why.
_QUANTISES = "quantises fairseq's own attention modules; this model has its own"
_XFORMERS = "xFormers replaces fairseq's own attention; this model has its own"
_SHORTENS = "leaves layers out, but options of single layers count all layers"
UNSUPPORTED = {
    "quant_noise_pq": f"--quant-noise-pq {_QUANTISES}",
    "quant_noise_scalar": f"--quant-noise-scalar {_QUANTISES}",
    "encoder_xformers_att_config": _XFORMERS,
    "decoder_xformers_att_config": _XFORMERS,
    "character_embeddings": "--character-embeddings are not supported",
    "scale_heads": "--scale-heads needs heads of size (model width/heads)",
    "encoder_layers_to_keep": f"--encoder-layers-to-keep {_SHORTENS}",
    "decoder_layers_to_keep": f"--decoder-layers-to-keep {_SHORTENS}",
    "cross_self_attention": "--cross-self-attention caches the encoder's states once per beam; "
    "here the beams of a sentence share one cache",
}

use_kernel(compiled_heads)  # said here, as attention modules need torch only


class HeadModel(BaseFairseqModel):
    """A model whose attention is one of ours.

    It is built from flat options, and its weights are compared with its signatures before any of
    them is loaded.
    """

    #: The registered kind of heads, and all options, without the values of a preset.
    variant: ClassVar[Variant]
    options: ClassVar[type]
    #: Attention types that the model lacks.
    absent: ClassVar[tuple[AttentionType, ...]] = ()
    #: The options that names and shapes of the weights do not show.
    model_signature: ModelSignature

    @classmethod
    def add_args(cls, parser: Any) -> None:
        # Without the preset's values: fairseq makes a flag whose default is true one that switches
        # it off, and --decoder-normalize-before would do so.
        gen_parser_from_dataclass(parser, cls.options(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: DictConfig, task: Any) -> HeadModel:
        """Build the model that flat options describe.

        Raises:
            UserError: an option makes no sense; the error names it.
        """
        options = plain_options(cfg)
        for option, reason in UNSUPPORTED.items():
            if options.get(option):
                raise UserError(f"{reason}: leave the option out")
        for size in ("decoder_input_dim", "decoder_output_dim"):
            if size in options and options[size] is None:
                options[size] = options["decoder_embed_dim"]
        try:
            model = cls.build(options, task)
            swap_linear(model)
            swap_dropout(model)
            cls.check_used(options)
        except ValueError as error:
            raise UserError(f"cannot build the model: {error}") from error
        model.model_signature = ModelSignature.of(options)
        model.register_buffer("signature", model.model_signature.to_tensor())
        if cls.variant.finish is not None:
            cls.variant.finish(model, options)
        return model

    @classmethod
    def check_used(cls, options: Mapping[str, Any]) -> None:
        """Raise UserError for an option of the heads that no attention of the model reads."""
        for option in unused(cls.nested(options), cls.variant.options, cls.absent):
            needs = option.metadata.get("needs")
            raise UserError(
                "has no effect, because no attention of this model uses it",
                f"--{option.name.replace('_', '-')}",
                f"leave it out{f', or give {needs}' if needs else ''}",
            )

    @classmethod
    def override(cls, options: DictConfig, overrides: Mapping[str, Any]) -> None:
        """Complete the options of a checkpoint, in which ``overrides`` are already, in place.

        An override holds in all attention types that it does not name; without this method, the
        checkpoint's options for single types (``cache_bits_in_cross``) would win.  An option that
        has no effect gets its default, unless it is an override: older checkpoints and changed
        models contain some.
        """
        for name in overrides:
            for part in (f"{name}_in_{type_}" for type_ in ATTENTION_TYPES):
                if part in options and part not in overrides:
                    options[part] = None
        with contextlib.suppress(ValueError):  # of an override; building the model names it
            config = cls.nested(cls.typed(options))
            for option in unused(config, cls.variant.options, cls.absent):
                if option.name in options and option.name not in overrides:
                    options[option.name] = option.default

    @classmethod
    def typed(cls, options: DictConfig) -> dict[str, Any]:
        """Return a checkpoint's options with the types that they are declared with."""
        declared = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[cls.__name__])
        saved = {name: of for name, of in plain_options(options).items() if name in declared}
        declared.update(saved)
        return plain_options(declared)

    @classmethod
    def build(cls, options: dict[str, Any], task: Any) -> HeadModel:
        """Build the model.

        Raises:
            ValueError: an option makes no sense; the error names it.
        """
        raise NotImplementedError

    @classmethod
    def nested(cls, options: Mapping[str, Any]) -> TransformerConfig:
        """Nest flat options in fairseq's configuration, with the factory of the attention.

        Options that fairseq does not know become attributes of the result as they are; those of
        ours that the family leaves out, or an older checkpoint lacks, have their defaults.
        """
        ours = (option for kind in (cls.variant.options, *COMMON) for option in fields(kind))
        defaults = {option.name: option.default for option in ours}
        config = TransformerConfig.from_namespace(Namespace(**{**defaults, **options}))
        config.attention_factory = cls.variant.attention
        return config

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Complete and check weights; fairseq calls this before it loads them."""
        saved = {*state_dict}
        super().upgrade_state_dict_named(state_dict, name)
        for added in {*state_dict} - saved:
            # Else weights that were trained without positions would load into a model with them.
            if added.endswith(SINES):
                del state_dict[added]
        if self.variant.upgrade is not None:
            self.variant.upgrade(self, state_dict)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # torch calls this for the whole model before it copies the first weight.
        check_weights(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


@dataclass(frozen=True)
class Family:
    """One of fairseq's kinds of models, with attention of ours in it.

    Args:
        prefix: beginning of the architectures' names.
        model: class that builds the model.
        options: options of fairseq's own model.
        presets: other defaults of these options, by the ending of the architecture's name.
        stock: fairseq's classes, exactly: one derived from them may compute something else.
        absent: attention types that the model lacks; a variant's options for them are left out.
        ignored: options that fairseq's own model accepts and ignores.
    """

    prefix: str
    model: type[HeadModel]
    options: type
    presets: Mapping[str, Mapping[str, Any]]
    stock: tuple[type, ...]
    absent: tuple[AttentionType, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variant:
    """A kind of heads, and all that models with them need.

    Args:
        name: part of the architectures' names, between a family's prefix and a preset's ending.
        attention: builds the attention of one attention type in one layer.
        options: dataclass of the variant's options, in addition to those of fairseq's models.
        families: the models that have the variant.
        finish: function that is called with a model after it is built, and with its options.
        upgrade: function that is called with a model and a checkpoint's weights before these are
            loaded; it may complete them in place.
    """

    name: str
    attention: AttentionFactory
    options: type = FairseqDataclass
    families: tuple[Family, ...] = ()
    finish: Callable[[nn.Module, dict[str, Any]], None] | None = None
    upgrade: Callable[[nn.Module, dict[str, Tensor]], None] | None = None


#: The signatures of plug-ins, by their numbers.
_OWN_SIGNATURES: dict[Any, str] = {}
#: What every attention defines.
_METHODS = ("project_query", "project_key", "project_value", "cached_floats_per_token")


def check_own(kind: type) -> None:
    """Raise UserError if a plug-in's attention lacks a method, or its signature a number."""
    todo = "see docs/own_heads.md"
    if kind.__module__.startswith("fairseq_collab."):
        return
    for name in (*_METHODS, "signature_type") if issubclass(kind, HeadAttention) else ():
        if getattr(kind, name, None) is getattr(HeadAttention, name, None):
            raise UserError(f"does not define {name}", kind.__name__, todo)
    if issubclass(kind, Signature):
        number, name = vars(kind).get("kind"), kind.__qualname__
        in_range = isinstance(number, int) and number >= 100
        if not in_range or _OWN_SIGNATURES.setdefault(number, name) != name:
            raise UserError(f"its kind {number} is taken or below 100", name, todo)


def register(variant: Variant) -> None:
    """Register a variant's architectures: one for each of its families and their presets.

    The names work for ``--arch`` and as ``model._name``.  A plug-in calls this function when
    ``--user-dir`` imports it.

    Raises:
        ValueError: fairseq's, if an architecture has this name already.
        UserError: an attention of the factory's module lacks a method, or fairseq cannot read the
            type of an option.
    """
    module = sys.modules[variant.attention.__module__]  # of a plug-in, perhaps
    if any(isinstance(option.type, str) for option in fields(variant.options)):
        problem = f"{variant.options.__name__}: fairseq cannot read types of options that are text"
        todo = "leave out `from __future__ import annotations`, and quotes around types"
        raise UserError(problem, module.__name__, todo)
    for kind in [kind for kind in vars(module).values() if isinstance(kind, type)]:
        check_own(kind)
    for family in variant.families:
        endings = tuple(f"_in_{type_}" for type_ in family.absent)
        variant_fields = [
            copied(option)
            for kind in (variant.options, *COMMON)
            for option in fields(kind)
            if option.name != "_name" and not option.name.endswith(endings)
        ]
        name = f"{family.prefix}{variant.name}"
        options = make_dataclass(f"{name}_options", variant_fields, bases=(family.options,))
        members = {
            "variant": variant,
            "options": options,
            "absent": family.absent,
            "__module__": module.__name__,
        }
        for ending, values in family.presets.items():
            arch = f"{name}{ending}"
            dataclass_ = preset(options, f"{arch}_options", **values)
            dataclass_.__module__ = module.__name__
            model = type(arch, (family.model,), members)
            register_model(arch, dataclass=dataclass_)(model)
            for kind in (dataclass_, model):  # pickle looks classes up by their names
                setattr(module, kind.__name__, kind)
