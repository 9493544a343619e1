"""A trained model whose heads can be taken out, and models like it with other weights.

Accepted are fairseq's own transformer and ours with concatenated heads (``transformer_headsize_n``,
``transformer_grouped_heads``, ``transformer_gated_heads``), and the language models of the same
kinds (``transformer_lm``, ``transformer_lm_headsize_n``, ``transformer_lm_grouped_heads``): every
head has projections of its own, and so can go alone.  A language model has no encoder: in its
``encoder`` and ``cross`` attention there are no layers.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY, FairseqLanguageModel
from fairseq.modules import MultiheadAttention
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.checkpoints.opener import loaded, read_checkpoint
from fairseq_collab.models.layers import SITES, Site, is_copy

HEADSIZE, GROUPED = "transformer_headsize_n", "transformer_grouped_heads"
#: The architectures of language models with the same heads.
LANGUAGE_MODELS = {
    HEADSIZE: "transformer_lm_headsize_n",
    GROUPED: "transformer_lm_grouped_heads",
}
#: The decoder, or encoder, and the attribute of its layers, that is a site.
_PLACES: dict[Site, tuple[str, str]] = {
    "encoder": ("encoder", "self_attn"),
    "decoder": ("decoder", "self_attn"),
    "cross": ("decoder", "encoder_attn"),
}


@dataclass(frozen=True)
class Trained:
    """A trained model in eval mode on the CPU, with what is needed to write another like it.

    Attributes:
        state: the checkpoint, ``cfg`` included.
        attentions: by site; name in the state dict and module of each layer.
    """

    path: Path
    state: dict[str, Any]
    model: Any
    task: Any
    attentions: dict[Site, dict[str, Any]]

    @property
    def cfg(self) -> DictConfig:
        return self.state["cfg"]

    @property
    def is_language_model(self) -> bool:
        """Whether it is a decoder alone."""
        return isinstance(self.model, FairseqLanguageModel)

    @property
    def heads(self) -> dict[Site, list[int]]:
        """How many heads each layer has, by site."""
        return {
            site: [attention.num_heads for attention in layers.values()]
            for site, layers in self.attentions.items()
        }

    def head_size(self, projection: str) -> int:
        """Size of a head's vector in ``q_proj`` or ``v_proj``, the same in all layers.

        Raises:
            UserError: it differs.
        """
        sizes = {
            getattr(attention, projection).out_features // attention.num_heads
            for layers in self.attentions.values()
            for attention in layers.values()
        }
        if len(sizes) > 1:
            raise UserError(
                f"its heads have different sizes ({', '.join(map(str, sorted(sizes)))} in "
                f"{projection}), which {HEADSIZE} has no options for",
                where=self.path,
                todo="give a model that was trained with --head-size",
            )
        return sizes.pop()


def load(path: Path, data: Path | None = None) -> Trained:
    """Load a checkpoint; its data folder is the one it was trained on, unless another is given.

    Raises:
        UserError: it cannot be read, its data folder is gone, or its heads cannot go alone.
    """
    state = read_checkpoint(path, data)
    model, _, task = loaded(path, state)
    return Trained(path, state, model, task, find_attentions(model, path))


def find_attentions(model: Any, path: Path) -> dict[Site, dict[str, Any]]:
    """The attentions of an encoder-decoder transformer or a language model, by site and name.

    Raises:
        UserError: the model is neither, or has heads that share something.
    """
    sides = ["decoder"] if isinstance(model, FairseqLanguageModel) else ["encoder", "decoder"]
    found: dict[Site, dict[str, Any]] = {site: {} for site in SITES}
    for site, (side, attribute) in _PLACES.items():
        if side not in sides:
            continue
        for number, layer in enumerate(transformer_layers(model, side, path)):
            attention = getattr(layer, attribute)
            if attention is None:
                continue
            if not isinstance(attention, (MultiheadAttention, ConcatenatedAttention)):
                raise UserError(
                    f"has heads of the kind {type(attention).__name__}, of which none can be "
                    "taken out alone",
                    where=path,
                    todo="give a transformer, transformer_headsize_n, transformer_grouped_heads or "
                    "transformer_gated_heads, or a language model of these kinds",
                )
            found[site][f"{side}.layers.{number}.{attribute}"] = attention
    return found


def transformer_layers(model: Any, side: str, path: Path) -> Any:
    """The layers of a model's encoder or decoder, which must have self-attention.

    Raises:
        UserError: it has no such layers.
    """
    layers = getattr(getattr(model, side, None), "layers", None)
    if layers is None or not all(hasattr(layer, "self_attn") for layer in layers):
        raise UserError(
            "neither an encoder-decoder transformer nor a transformer language model",
            where=path,
            todo="give a checkpoint of a translation model or a language model",
        )
    return layers


def weights_of(trained: Trained) -> dict[str, Tensor]:
    """The weights by name, without what is said anew of every model: signatures and groups."""
    return {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not name.endswith(("signature", ".membership")) and not is_copy(name)
    }


def options_of(trained: Trained, arch: str, **changed: Any) -> DictConfig:
    """The model's options, as those of ``arch``, with some of them ``changed``.

    Args:
        arch: the architecture, of an encoder-decoder model or a language model as this one is.
    """
    given = trained.cfg.model
    values: Any = vars(given) if isinstance(given, Namespace) else OmegaConf.to_container(given)
    defaults = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch])
    kept = {name: value for name, value in values.items() if name in defaults}
    chosen: dict[Any, Any] = {**kept, **changed, "_name": arch}
    merged = OmegaConf.merge(defaults, chosen)
    assert isinstance(merged, DictConfig)
    return merged


def sized_options(trained: Trained, arch: str, heads: dict[Site, list[int]]) -> DictConfig:
    """Options of ``arch`` with the sizes of the trained heads, and as many heads as given.

    ``arch`` is the name for an encoder-decoder model; of a language model the twin is taken.

    Scores are scaled by the size of the heads alone: in a model that has lost some, the model size
    per head would be another one.
    """
    lm = trained.is_language_model
    sites = ("decoder",) if lm else SITES  # those that the architecture has options for
    counts = {f"heads_in_{site}": ",".join(map(str, heads[site])) or None for site in sites}
    return options_of(
        trained,
        LANGUAGE_MODELS[arch] if lm else arch,
        head_size=None,
        qk_head_size=trained.head_size("q_proj"),
        v_head_size=trained.head_size("v_proj"),
        key_dim=None,
        attention_scale="key",
        **counts,
    )


def build(trained: Trained, options: DictConfig, weights: Mapping[str, Tensor]) -> Any:
    """A model with these options and ``weights``, in eval mode.

    Raises:
        UserError: the weights do not fit.
    """
    model = trained.task.build_model(options)
    own = {
        name: value
        for name, value in model.state_dict().items()
        if name.endswith(("signature", ".membership"))
    }
    model.load_state_dict({**own, **weights}, strict=True)
    return model.eval()
