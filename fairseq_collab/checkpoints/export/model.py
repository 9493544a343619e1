"""A checkpoint as a module with its weights, and the same model with fairseq's own attention."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.models import ARCH_MODEL_REGISTRY, build_model
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModel, TransformerModelBase
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)
from fairseq.modules import MultiheadAttention
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.checkpoints.export.attention import NotExactError, plain_weights
from fairseq_collab.checkpoints.opener import check_finite, placeholder
from fairseq_collab.models.config import TransformerOptions
from fairseq_collab.models.language_models import HeadLanguageModel
from fairseq_collab.models.masked_lm import HeadRoberta, MaskedLanguageModelOptions
from fairseq_collab.models.translation import HeadTransformer

#: fairseq's classes, exactly: a class derived from one may compute something else.
STOCK = (TransformerModel, TransformerModelBase, TransformerLanguageModel, RobertaModel)
OURS = (HeadTransformer, HeadLanguageModel, HeadRoberta)
#: Options that fairseq's own ``transformer_lm`` accepts and ignores.
_IGNORED = ("scale_attn", "scale_fc", "scale_resids")
_ELSE = "--format safetensors takes every model, --format ct2 heads of every size"


@dataclass
class Trained:
    """A trained model.

    Attributes:
        state: the checkpoint without the weights, with ``cfg``.
        model: in eval mode; its dictionaries are placeholders of the right size.
    """

    path: Path
    state: dict[str, Any]
    model: Any

    @property
    def options(self) -> dict[str, Any]:
        """The model's options, flat."""
        options = self.state["cfg"].model
        if not isinstance(options, DictConfig):
            return vars(options)
        plain = OmegaConf.to_container(options, resolve=True, enum_to_str=True)
        assert isinstance(plain, dict)
        return {str(name): value for name, value in plain.items()}

    @property
    def architecture(self) -> str:
        return name_of(self.options)


def name_of(options: Mapping[str, Any]) -> str:
    """What a model is registered under."""
    return str(options.get("_name") or options.get("arch"))


def load(path: Path) -> Trained:
    """Read a checkpoint and build its model; no data folder is needed.

    Raises:
        UserError: it cannot be read, holds NaN, or is of a model that is not known here.
    """
    state = load_checkpoint_to_cpu(str(path))
    weights = state.pop("model")
    trained = Trained(path, state, None)
    model = ARCH_MODEL_REGISTRY.get(trained.architecture)
    if model is None or not (model in STOCK or issubclass(model, OURS)):
        raise UserError(
            f"unknown model type {trained.architecture!r}",
            path,
            "give a transformer, transformer_lm or roberta, fairseq's own or one of this project's",
        )
    check_finite(weights, path)
    symbols = dictionary_sizes(weights, path)
    trained.model = build(state["cfg"].model, state["cfg"].task, weights, symbols, path)
    return trained


def build(
    options: Any, task: Any, weights: dict[str, Tensor], symbols: tuple[int, int], path: Path
) -> nn.Module:
    """The model that ``options`` describe, with ``weights``, in eval mode.

    Args:
        symbols: how many the source's and the target's dictionary have.

    Raises:
        UserError: the weights do not fit.
    """
    if "load_checkpoint_heads" in options:
        options.load_checkpoint_heads = True  # RoBERTa drops its classifiers otherwise
    source, target = map(placeholder, symbols)
    setup = SimpleNamespace(source_dictionary=source, target_dictionary=target, cfg=task)
    model = build_model(options, setup, from_checkpoint=True)
    for name, buffer in model.named_buffers():
        if name.endswith("dictionary_signature") and name in weights:
            buffer.copy_(weights[name])  # a placeholder's own would be refused
    try:
        model.load_state_dict(weights, strict=True)
    except UserError as error:
        error.where = error.where or path
        raise
    return model.eval()


def dictionary_sizes(weights: Mapping[str, Tensor], path: Path) -> tuple[int, int]:
    """How many symbols the source's and the target's dictionary have.

    Raises:
        UserError: the checkpoint does not say.
    """
    found: dict[str, int] = {}
    for stack in ("encoder", "encoder.sentence_encoder", "decoder"):
        signature = weights.get(f"{stack}.dictionary_signature")
        embedding = weights.get(f"{stack}.embed_tokens.weight")
        if signature is not None:
            found[stack] = int(signature[1])
        elif embedding is not None:
            found[stack] = embedding.size(0)
    if not found:
        raise UserError(
            "the size of its dictionary cannot be told: it has no plain embeddings",
            path,
            "adaptive inputs and characters are possible in this project's own models only",
        )
    sizes = list(found.values())
    return sizes[0], sizes[-1]


@dataclass
class Plain:
    """A model of fairseq's own, and the options that build it."""

    model: Any
    options: Any


def plain(trained: Trained) -> Plain:
    """The same function as a model of fairseq's own.

    Raises:
        UserError: there is none; says where and why.
    """
    model = trained.model
    if type(model) in STOCK:
        return Plain(model, trained.state["cfg"].model)
    options: Any
    if isinstance(model, HeadTransformer):
        options = translation_options(trained)
    elif isinstance(model, HeadLanguageModel):
        options = language_model_options(trained)
    else:
        options = roberta_options(trained)
    task, symbols = trained.state["cfg"].task, dictionary_sizes(model.state_dict(), trained.path)
    # Built and loaded by fairseq, so that the state dict is what fairseq itself would write.
    return Plain(build(options, task, plain_state(trained), symbols, trained.path), options)


def plain_state(trained: Trained) -> dict[str, Tensor]:
    """The weights of fairseq's own model.

    Raises:
        UserError: an attention that is not one of fairseq's.
    """
    attentions = {n: m for n, m in trained.model.named_modules() if isinstance(m, HeadAttention)}
    replaced = tuple(f"{name}." for name in attentions)
    weights = {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not name.startswith(replaced) and not name.endswith("dictionary_signature")
    }
    for name, module in attentions.items():
        try:
            heads = plain_weights(module, module.embed_dim // module.num_heads)
        except NotExactError as error:
            raise UserError(f"no exact export: {name}: {error}", trained.path, _ELSE) from error
        weights |= {f"{name}.{weight}": value for weight, value in heads.items()}
    return weights


def common_heads(model: nn.Module, stack: str, path: Path) -> int:
    """The number of heads of all attentions in one stack of layers.

    Raises:
        UserError: they differ.
    """
    found = {
        name: module.num_heads
        for name, module in model.named_modules()
        if isinstance(module, HeadAttention | MultiheadAttention) and name.startswith(f"{stack}.")
    }
    first, *_ = found
    for name, heads in found.items():
        if heads != found[first]:
            raise UserError(
                f"no exact export: {name} has {heads} heads, {first} has {found[first]}; elsewhere "
                f"all layers of the {stack} have as many",
                path,
                _ELSE,
            )
    return found[first]


def ordinary_heads(trained: Trained, stack: str, dim: int) -> int:
    """The number of heads of all attentions in one stack, which must divide the model's size.

    Raises:
        UserError: it does not, or there are several.
    """
    heads = common_heads(trained.model, stack, trained.path)
    if dim % heads:
        raise UserError(
            f"no exact export: {heads} heads in the {stack} do not divide the model's size {dim}",
            trained.path,
            _ELSE,
        )
    return heads


def translation_options(trained: Trained) -> Namespace:
    """Options of fairseq's ``transformer``."""
    given = trained.options
    values = {option.name: given.get(option.name) for option in fields(TransformerOptions)}
    for name in ("decoder_input_dim", "decoder_output_dim"):
        values[name] = given[name] or given["decoder_embed_dim"]
    for side in ("encoder", "decoder"):
        heads = ordinary_heads(trained, side, given[f"{side}_embed_dim"])
        values[f"{side}_attention_heads"] = heads
        values[f"{side}_layers_to_keep"] = None  # what it kept is all it has
        values[f"{side}_layers"] = len(getattr(trained.model, side).layers)
    return Namespace(**{**values, "_name": "transformer", "arch": "transformer"})


def language_model_options(trained: Trained) -> DictConfig:
    """Options of fairseq's ``transformer_lm``.

    Raises:
        UserError: the model has parts for which fairseq's has options, but no use.
    """
    given = trained.options
    for name in _IGNORED:
        if given[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                f"no exact export: fairseq's own language model ignores {option}",
                trained.path,
                _ELSE,
            )
    values = {
        option.name: given.get(option.name) for option in fields(TransformerLanguageModelConfig)
    }
    for name in ("decoder_input_dim", "decoder_output_dim"):
        values[name] = given[name] or given["decoder_embed_dim"]
    decoder = trained.model.decoder
    values |= {
        "_name": "transformer_lm",
        "decoder_attention_heads": ordinary_heads(trained, "decoder", given["decoder_embed_dim"]),
        "decoder_layers": len(decoder.layers),
        "decoder_layers_to_keep": None,
        "max_target_positions": decoder.max_target_positions,
    }
    return OmegaConf.create(values)


def roberta_options(trained: Trained) -> Namespace:
    """Options of fairseq's ``roberta``."""
    given = trained.options
    values = {option.name: given.get(option.name) for option in fields(MaskedLanguageModelOptions)}
    values |= {
        "_name": "roberta",
        "arch": "roberta",
        "encoder_attention_heads": ordinary_heads(trained, "encoder", given["encoder_embed_dim"]),
        "encoder_layers": len(trained.model.encoder.sentence_encoder.layers),
        "encoder_layers_to_keep": None,
        "max_positions": trained.model.max_positions(),
    }
    return Namespace(**values)
