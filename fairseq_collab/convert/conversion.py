"""Convert a trained model: checked before anything is computed, its sizes from options, rebuilt.

Accepted are fairseq's own ``transformer`` and ``transformer_lm``; ``transformer_headsize_n`` and
its language model, if values have size ``d/H`` and all layers of a side have equally many heads;
and ``transformer_collab``, whose heads can share fewer dimensions.
"""

from __future__ import annotations

import functools
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from collab_common import AttentionType
from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.attention import ConcatenatedAttention
from fairseq_collab.convert import calibrate
from fairseq_collab.convert.base import Converted, Part, Target
from fairseq_collab.convert.kinds import TARGETS
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.options import listed_values
from fairseq_collab.models.variants import COLLABORATIVE, CONCATENATED, family_of
from fairseq_collab.prune.surgery import options_for, rebuilt, weights_of
from fairseq_collab.trained import opener
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained


def load(path: Path, target: Target, data: Path | None = None) -> Trained:
    """Open a checkpoint; UserError if it cannot be converted."""
    trained = opener.load(path, data, to_save=True)
    check(trained, target)
    return trained


def check(trained: Trained, target: Target) -> None:
    """Raise UserError for a model or an attention without a counterpart in ``target``."""
    target_arch(trained, target)
    first: dict[bool, Attention] = {}  # of the encoder, and of the decoder
    for one in attentions(trained.model):
        check_attention(one, trained.path, target)
        other = first.setdefault(one.type == "encoder", one)
        heads, expected = one.module.num_heads, other.module.num_heads
        if heads != expected:
            what = f"{one} has {heads} heads and {other} has {expected}"
            todo = "models with pruned heads cannot be converted"
            raise UserError(what, trained.path, todo)


def target_arch(trained: Trained, target: Target) -> str:
    """The architecture with heads of ``target`` that goes with a model."""
    model, path = trained.model, trained.path
    family = family_of(type(model))
    known = (CONCATENATED, COLLABORATIVE) if target.variant is COLLABORATIVE else (CONCATENATED,)
    if family is None or (isinstance(model, HeadModel) and model.variant not in known):
        raise UserError(
            f"a {type(model).__name__} cannot be converted to {target.heads}",
            path,
            "give a transformer, transformer_lm, transformer_headsize_n or, for narrower shared "
            "keys, transformer_collab",
        )
    return f"{family.prefix}{target.variant.name}"


def check_attention(one: Attention, path: Path, target: Target) -> None:
    """Separate keys, which alone may be resized, must have the sizes of ``target``."""
    module = one.module
    if isinstance(module, ConcatenatedAttention):
        sizes = {"keys": module.qk_head_size, "values": module.v_head_size}
        for part in target.even:
            if sizes[part] * module.num_heads != module.embed_dim:
                found = f"{module.num_heads} heads have {part} of size {sizes[part]}"
                what = f"{one}: {found}; {target.heads} have size {module.embed_dim}/H"
                todo = "heads that were pruned or resized cannot be converted"
                raise UserError(what, path, todo)


def with_heads(
    trained: Trained,
    target: Target,
    weights: Mapping[Attention, dict[str, Tensor]],
    sizes: Mapping[Attention, int],
) -> Trained:
    """The checkpoint with heads of ``target`` in place of the attentions in ``weights``.

    All others keep the heads that they have.

    Args:
        weights: state dicts of the new attentions, without signatures.
        sizes: of these attentions.
    """
    gone = tuple(f"{place.name}." for place in weights)
    state = {name: it for name, it in weights_of(trained).items() if not name.startswith(gone)}
    for place, own in weights.items():
        state |= {f"{place.name}.{name}": weight for name, weight in own.items()}
    # The options of the source's own attention; fairseq has none of these.
    not_kept = {option.name for option in fields(target.variant.options)} - {*target.inherited}
    arch, shape = target_arch(trained, target), shape_options(trained, target, sizes)
    return rebuilt(trained, options_for(trained, arch, shape, not_kept), state)


def shape_options(
    trained: Trained, target: Target, sizes: Mapping[Attention, int]
) -> dict[str, Any]:
    """Numbers of layers and heads, and the options of ``target``: sizes, scale, bias."""
    options = dict(target.options)
    found, common = trained.attentions, set(sizes.values())
    everywhere = len(common) == 1 and len(sizes) == sum(map(len, found.values()))
    if everywhere:
        options[target.size] = common.pop()
    for type_, places in found.items():
        if not places:
            continue
        if not everywhere:
            each = [sizes.get(place, target.kept(place.module)) for place in places]
            options[f"{target.size}_in_{type_}"] = ",".join(map(str, each))
        side = "encoder" if type_ == "encoder" else "decoder"
        options[f"{side}_attention_heads"] = places[0].module.num_heads
        # The loaded model has the layers that were kept, and no others.
        options |= {f"{side}_layers": len(places), f"{side}_layers_to_keep": None}
    return options


# ---- sizes ---------------------------------------------------------------------------------------


def chosen_sizes(args: Namespace, trained: Trained, target: Target) -> dict[Attention, int]:
    """The size of every attention as the options give them, without those left alone.

    Raises:
        UserError: one is out of range, or fits no layer.
    """
    option, whole = _option(target), getattr(args, target.size)
    lists = {
        type_: _listed(type_, args, target, len(found))
        for type_, found in trained.attentions.items()
    }
    sizes = {}
    for place in attentions(trained.model):
        listed = lists[place.type]
        given = listed[place.layer] if listed else whole
        if given is None:
            todo = f"give {option}-in-{place.type} or {option}"
            raise UserError(f"no {target.what} for {place}", trained.path, todo)
        if listed and given == 0:
            continue
        if within := target.out_of_range(place.module, given):
            what = f"{place}: {target.what} {given} is out of range"
            raise UserError(what, trained.path, within)
        sizes[place] = given
    if not sizes:
        raise UserError("no attention is left to convert", trained.path, "choose some")
    for place in attentions(trained.model):
        if place in sizes or target.converts(place.module):
            continue
        size = place.module.q_proj.out_features
        if size != place.module.embed_dim:  # the only size that fits there
            size //= place.module.num_heads
            what = f"{place}: heads of size {size} cannot be left as they are"
            raise UserError(what, trained.path, f"give a {target.what} for them, too")
    return sizes


def _option(target: Target) -> str:
    return f"--{target.size.replace('_', '-')}"


def _listed(type_: AttentionType, args: Namespace, target: Target, layers: int) -> list[int] | None:
    option, text = f"{_option(target)}-in-{type_}", getattr(args, f"{target.size}_in_{type_}")
    if text is not None and not layers:
        raise UserError("the model lacks this attention", option, "leave the option out")
    try:
        return None if text is None else listed_values(option, text, layers, 0)
    except ValueError as error:
        raise UserError(str(error)) from error


# ---- work ----------------------------------------------------------------------------------------


class Reparametrizer:
    """Converts attentions of one model, with the options of the command."""

    def __init__(self, trained: Trained, args: Namespace, places: Sequence[Attention]):
        self.trained = trained
        self.target = target = TARGETS[args.to](args)
        for place in places:
            target.check(place, trained.path)
        #: Sizes of the attentions that are converted although they keep their size.
        self.kept = {
            place: target.kept(place.module)
            for place in attentions(trained.model)
            if target.converts(place.module)
        }
        places = [*dict.fromkeys([*places, *self.kept])]
        moments: Mapping[Attention, calibrate.Moments] = {}
        if args.calibration:
            batches = calibrate.batches(trained, args.subset, args.calibration)
            inputs = [batch["net_input"] for batch in batches]
            moments = calibrate.moments(trained, inputs, places)
        self.parts = {place: Part(place.module, moments.get(place)) for place in places}
        # A caller that tries many sizes repeats some.
        self.converted = functools.cache(self._convert)

    def model(self, sizes: Mapping[Attention, int]) -> tuple[Trained, list[dict[str, Any]]]:
        """The converted model, and the errors of each attention: see :meth:`.Target.convert`."""
        weights, fits, target = {}, [], self.target
        for place, size in bar("attentions", list(sizes.items())):
            began = time.perf_counter()
            weights[place], fit = self.converted(place, size)
            seconds = round(time.perf_counter() - began, 3)
            here = {"type": place.type, "layer": place.layer, target.size: size}
            fits.append({**here, **fit, "seconds": seconds})
        for place, size in self.kept.items():
            if place not in sizes:
                weights[place], _ = self.converted(place, size)
        return with_heads(self.trained, target, weights, sizes), fits

    def _convert(self, place: Attention, size: int) -> Converted:
        return self.target.convert(self.parts[place], size)
