"""Heads, and units of the feed-forward layers, taken out of a trained model.

An attention's output is a sum over its heads, ``sum_i head_i Wo_i^T + bo``, so that a head is gone,
exactly, with its rows of ``q_proj``, ``k_proj``, ``v_proj`` and its columns of ``out_proj``.  What
is left computes what the whole model computes with these heads' outputs set to zero.  A unit of a
feed-forward layer goes likewise, with its row of ``fc1`` and its column of ``fc2``.

Heads go of fairseq's own transformer and ours with concatenated heads (``transformer_headsize_n``,
``transformer_grouped_heads``, ``transformer_gated_heads``), and the language models of the same
kinds: every head has projections of its own, and so can go alone.  The result is a
``transformer_headsize_n`` (of a language model, ``transformer_lm_headsize_n``) whose heads are
counted by layer.  Votes, gates, importances or chance say which stay, as :data:`Kept`.  A layer
may lose all of them: its attention is then gone but for the constant ``bo``.  Units go of every
model.

Shapes: ``H`` heads of sizes ``h_qk`` and ``h_v``; ``Wq, Wk (H h_qk, d)``, ``Wv (H h_v, d)``,
``Wo (d, H h_v)``; ``W1 (ff, d)``, ``W2 (d, ff)``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.modules import MultiheadAttention
from omegaconf import OmegaConf, ValidationError
from torch import Tensor

from collab_common.errors import UserError, first_line
from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.models.layers import SITES, Site, is_copy
from fairseq_collab.models.variants import family_of
from fairseq_collab.trained import opener
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

HEADSIZE, GROUPED = "transformer_headsize_n", "transformer_grouped_heads"
#: The architectures of language models with the same heads.
LANGUAGE_MODELS = {HEADSIZE: "transformer_lm_headsize_n", GROUPED: "transformer_lm_grouped_heads"}
#: What every model has of its own: signatures and groups.
_OWN = ("signature", ".membership")

#: The heads that stay, counted from 0, for each site and layer.
Kept = Mapping[Site, Sequence[Sequence[int]]]


def load(path: Path, data: Path | None = None, to_save: bool = True) -> Trained:
    """Open a checkpoint whose heads can go, or raise UserError; see :func:`.opener.load`."""
    trained = opener.load(path, data, to_save)
    check_heads(trained)
    return trained


def check_heads(trained: Trained) -> None:
    """Every head must have projections of its own."""
    opener.check_transformer(trained.model, trained.path)
    if kinds := kinds_of_shared_heads(trained):
        raise UserError(
            f"has heads of the kind {kinds[0]}, of which none can be taken out alone",
            where=trained.path,
            todo="give a transformer, transformer_headsize_n, transformer_grouped_heads or "
            "transformer_gated_heads, or a language model of these kinds",
        )


def kinds_of_shared_heads(trained: Trained) -> list[str]:
    """The attentions of the model, by name, whose heads have no projections of their own."""
    modules = [one.module for one in attentions(trained.model)]
    own = MultiheadAttention | ConcatenatedAttention
    return sorted({type(module).__name__ for module in modules if not isinstance(module, own)})


def pruned(trained: Trained, kept: Kept, ffn_dim: int | None = None) -> Trained:
    """The model with the ``kept`` heads only.

    Args:
        ffn_dim: units to keep in each feed-forward layer, those with the largest weights; all of
            them unless given.
    """
    check_kept(trained, kept)
    left = keep_heads(trained, kept)
    counts = {site: [*map(len, layers)] for site, layers in kept.items()}
    options = sized_options(trained, HEADSIZE, counts)
    if ffn_dim is not None:
        left = keep_units(trained, left, ffn_dim)
        for name in _units(options):
            options[name] = ffn_dim
    return rebuilt(trained, options, left)


def narrowed(trained: Trained, ffn_dim: int) -> Trained:
    """The model with ``ffn_dim`` units in each feed-forward layer, and all of its heads.

    Heads that share are left as they are, whatever their kind.
    """
    opener.check_transformer(trained.model, trained.path)
    if not kinds_of_shared_heads(trained):
        heads = trained.heads.items()
        return pruned(trained, {s: [range(n) for n in each] for s, each in heads}, ffn_dim)
    options = {**trained.options, **dict.fromkeys(_units(trained.options), ffn_dim)}
    return rebuilt(trained, options, keep_units(trained, weights_of(trained), ffn_dim))


def _units(options: Iterable[Any]) -> list[str]:
    """Which options say how many units there are; a language model has no encoder."""
    names = (f"{side}_ffn_embed_dim" for side in ("encoder", "decoder"))
    return [name for name in names if name in options]


def check_kept(trained: Trained, kept: Kept) -> None:
    """Refuse a choice of heads or layers that the model does not have; raises UserError."""
    for site, counts in trained.heads.items():
        layers = kept[site]
        if len(layers) != len(counts):
            what = f"heads are given for {len(layers)} layers, but it has {len(counts)}"
            raise UserError(f"{site} attention: {what}", where=trained.path)
        for layer, (heads, count) in enumerate(zip(layers, counts, strict=True)):
            unknown = [head for head in heads if not 0 <= head < count]
            if len(set(heads)) < len(heads):
                what = "a head is given twice"
            elif unknown:
                what = f"there is no head {unknown[0]}; it has heads 0 to {count - 1}"
            else:
                continue
            raise UserError(f"{site} attention, layer {layer}: {what}", where=trained.path)


def keep_heads(trained: Trained, kept: Kept) -> dict[str, Tensor]:
    """The model's weights with the rows and columns of the ``kept`` heads only, in their order."""
    result = weights_of(trained)
    for one, heads in heads_by_attention(trained, kept):
        if not heads:
            left = f"{one.name}.out_proj.bias"
            own = f"{one.name}."
            result = {n: w for n, w in result.items() if n == left or not n.startswith(own)}
            continue
        # sized_options scales scores by the heads' own size, whatever the model did.
        scale = one.module.scaling / head_size(one, "q_proj") ** -0.5
        for projection, factor in (("q_proj", scale), ("k_proj", 1.0), ("v_proj", 1.0)):
            for kind in ("weight", "bias"):
                full = f"{one.name}.{projection}.{kind}"
                if full in result:  # ours may have no biases
                    result[full] = factor * rows(result[full], one.module.num_heads, heads)
        full = f"{one.name}.out_proj.weight"
        result[full] = rows(result[full].T, one.module.num_heads, heads).T.contiguous()
    return result


def heads_by_attention(trained: Trained, kept: Kept) -> list[tuple[Attention, Sequence[int]]]:
    """Each attention with its heads that stay."""
    found = trained.attentions
    return [pair for site in SITES for pair in zip(found[site], kept[site], strict=True)]


def rows(weight: Tensor, num_heads: int, heads: Sequence[int]) -> Tensor:
    """The blocks of rows that belong to ``heads``: ``(H h, ...) -> (len(heads) h, ...)``."""
    blocks = weight.unflatten(0, (num_heads, -1))  # (H, h, ...)
    return blocks[sorted(heads)].flatten(0, 1)


def keep_units(trained: Trained, weights: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """``weights`` with the ``count`` units of each feed-forward layer that weigh most.

    A unit weighs the product of the lengths of its row of ``fc1`` and its column of ``fc2``.
    """
    result = dict(weights)
    for name in [name for name in weights if name.endswith(".fc1.weight")]:
        layer = name.removesuffix(".fc1.weight")
        first, second = weights[name], weights[f"{layer}.fc2.weight"]  # (ff, d), (d, ff)
        if f"{layer}.ffn_layernorm.weight" in weights:
            what = f"{layer} normalises its feed-forward units (--scale-fc): none can go alone"
            raise UserError(what, trained.path, "leave --ffn-dim out")
        if count > len(first):
            what = f"{layer} has {len(first)} feed-forward units, not {count}"
            raise UserError(what, trained.path, "give a smaller --ffn-dim")
        importance = first.norm(dim=1) * second.norm(dim=0)
        units = importance.topk(count).indices.sort().values
        for full, axis in ((name, 0), (f"{layer}.fc1.bias", 0), (f"{layer}.fc2.weight", 1)):
            result[full] = weights[full].index_select(axis, units)
    return result


# ---- models like a trained one -------------------------------------------------------------------


def weights_of(trained: Trained) -> dict[str, Tensor]:
    """The weights by name, without what every model has of its own: signatures and groups."""
    return {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not name.endswith(_OWN) and not is_copy(name)
    }


def options_for(
    trained: Trained, arch: str, chosen: Mapping[str, Any], left_out: Collection[str] = ()
) -> dict[str, Any]:
    """All options of ``arch``: what is ``chosen``, or else given in the trained model.

    Args:
        left_out: have their defaults, whatever is given.
    """
    known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch])
    family = family_of(type(trained.model))
    if family and type(trained.model) in family.stock:
        left_out = {*left_out, *family.ignored}  # one of ours would not ignore them
    own = trained.options.items()
    given = {name: value for name, value in own if name in known and name not in left_out}
    try:
        values = OmegaConf.to_container(OmegaConf.merge(known, given, chosen), enum_to_str=True)
    except ValidationError as error:
        what = f"its option {error.full_key} is of another kind than {arch}'s: {first_line(error)}"
        raise UserError(what, trained.path) from error
    assert isinstance(values, dict)
    return {**{str(name): value for name, value in values.items()}, "_name": arch}


def sized_options(trained: Trained, arch: str, heads: Mapping[Site, list[int]]) -> dict[str, Any]:
    """Options of ``arch`` with the sizes of the trained heads, and as many heads as given.

    ``arch`` is the name for an encoder-decoder model; of a language model the twin is taken.

    Scores are scaled by the size of the heads alone: in a model that has lost some, the model size
    per head would be another one.
    """
    lm = trained.is_language_model
    arch = LANGUAGE_MODELS[arch] if lm else arch
    sites = ("decoder",) if lm else SITES  # those that the architecture has options for
    chosen = {
        **{f"heads_in_{site}": ",".join(map(str, heads[site])) or None for site in sites},
        "head_size": None,
        "qk_head_size": common_head_size(trained, "q_proj"),
        "v_head_size": common_head_size(trained, "v_proj"),
        "key_dim": None,
        "attention_scale": "key",
    }
    return options_for(trained, arch, chosen)


def head_size(one: Attention, projection: str) -> int:
    """Size of a head's vector in ``q_proj`` or ``v_proj``."""
    if isinstance(one.module, ConcatenatedAttention):
        return one.module.v_head_size if projection == "v_proj" else one.module.qk_head_size
    return one.module.head_dim


def common_head_size(trained: Trained, projection: str) -> int | None:
    """Size of a head's vector in ``q_proj`` or ``v_proj``, the same in all layers that have heads.

    None without any.
    """
    places = [one for one in attentions(trained.model) if one.module.num_heads]
    found = {head_size(one, projection) for one in places}
    if len(found) > 1:
        raise UserError(
            f"its heads have different sizes ({', '.join(map(str, sorted(found)))} in "
            f"{projection}), which {HEADSIZE} has no options for",
            where=trained.path,
            todo="give a model that was trained with --head-size",
        )
    return found.pop() if found else None


def rebuilt(trained: Trained, options: Any, weights: Mapping[str, Tensor]) -> Trained:
    """The checkpoint with a model of these options and ``weights``, as of :func:`weights_of`.

    It is on the device of the trained model.
    """
    result = trained.with_model(trained.model, options)
    like = next(trained.model.parameters())
    model = trained.task.build_model(result.cfg.model).to(like.dtype)
    own = {name: value for name, value in model.state_dict().items() if name.endswith(_OWN)}
    model.load_state_dict({**own, **weights}, strict=True)
    return result.with_model(model.eval().to(like.device))
