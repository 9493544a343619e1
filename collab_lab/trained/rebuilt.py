"""Building a changed model from options and weights, and the reasons why it cannot be built."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf, ValidationError
from torch import Tensor, nn

from collab_common.errors import UserError, first_line
from collab_lab.trained.attentions import attentions, of_one_model, weight_problems
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.checks import check_finite
from collab_lab.trained.contexts import in_evaluation, without_checkpointing
from collab_lab.trained.from_options import build_from_options, load_weights
from fairseq_collab.models.base import UNSUPPORTED, HeadModel, Variant
from fairseq_collab.models.layers import is_copy
from fairseq_collab.models.variants import family_of

#: What :func:`difference_from_built` found for each model.
_AS_BUILT = WeakKeyDictionary[nn.Module, str | None]()
_IN_LAYER = re.compile(r"(?P<layer>(encoder|decoder)\.layers\.\d+)\.\w+")
#: Options with which no model of ours can be built, or no block fitted, and why.
_UNSUPPORTED = UNSUPPORTED | {
    f"scale_{part}": f"--scale-{part} changes a block in a way that the refit does not support"
    for part in ("attn", "fc", "resids")
}


def weights_of(trained: Trained) -> dict[str, Tensor]:
    """The weights by name, without signatures, groups and (open) gates."""
    return {
        name: weight
        for name, weight in trained.model.state_dict().items()
        if not of_one_model(name) and not is_copy(name)
    }


def reject(trained: Trained, refused: str, problems: Iterable[str], todo: str = "") -> None:
    """Raise UserError with all problems, if there are any.

    Args:
        refused: what cannot be done with the model, for example "cannot be pruned".
        problems: the reasons.
        todo: what the user can do instead.
    """
    if listed := [*problems]:
        raise UserError(f"{refused}: {'; '.join(listed)}", trained.path, todo or None)


def model_problems(trained: Trained) -> Iterator[str]:
    """Reasons why a model rebuilt from options and weights would not compute the same function."""
    model = trained.model
    if (foreign := trained.foreign) is not None:
        yield f"{foreign} may compute something that a rebuilt model does not"
    yield from finish_problems(model)
    yield from option_problems(trained)
    yield from weight_problems(model)
    tied = [*_tied_parts(model)]
    yield from tied
    if trained.foreign is None and not tied:
        yield from function_problems(trained)


def function_problems(trained: Trained) -> Iterator[str]:
    """The reason why weights and options do not say what a model computes, if they do not."""
    if trained.model not in _AS_BUILT:
        _AS_BUILT[trained.model] = difference_from_built(trained)
    if (difference := _AS_BUILT[trained.model]) is not None:
        yield difference


@torch.no_grad()
def difference_from_built(trained: Trained) -> str | None:
    """How a model differs from one that fairseq builds from its options and weights, if it does.

    A plug-in's task or architecture may change a model after it has built it, for example the
    scale of an attention, which no name of a class, function or weight shows.  Both models read
    the same made-up words.
    """
    model, options, task = trained.model, trained.cfg.model, trained.task
    like = next(model.parameters())
    # Its weights are drawn at first, which changes no number that is drawn later.
    with without_checkpointing(options), torch.random.fork_rng(devices=[]):
        built: Any = build_from_options(options, trained.cfg, model.state_dict(), trained.path)
    shapes, expected_shapes = (
        {name: weight.shape for name, weight in one.state_dict().items()} for one in (model, built)
    )
    for name, shape in shapes.items():
        if (expected_shape := expected_shapes.get(name)) != shape:
            other = "no such weight" if expected_shape is None else f"one of {[*expected_shape]}"
            return f"a {trained.arch} of its options has {other} as {name} {[*shape]}"
    # The built model has placeholders for the words of the dictionaries, so signatures of its own.
    signed = {name: of for name, of in built.state_dict().items() if name.endswith("signature")}
    load_weights(built, {**model.state_dict(), **signed}, trained.path)

    def made_up(dictionary: Any) -> Tensor:
        """Two sequences of words; [2, 5]."""
        first = dictionary.nspecial
        numbers = torch.arange(10).view(2, 5) * 7 % max(1, len(dictionary) - first)
        return (numbers + first).to(like.device)

    words, inputs = made_up(task.target_dictionary), dict[str, Tensor]()
    if not trained.is_language_model:
        inputs["prev_output_tokens"] = words
        words = made_up(task.source_dictionary)
        inputs["src_lengths"] = torch.full((2,), words.size(1), device=like.device)
    with in_evaluation(model):
        found = model(src_tokens=words, **inputs)[0].float()
    expected = built.to(like.device, like.dtype).eval()(src_tokens=words, **inputs)[0].float()
    if torch.allclose(found, expected, rtol=1e-3, atol=1e-4 * float(expected.std()) + 1e-6):
        return None
    return f"it computes something else than a {trained.arch} of its options and weights"


def finish_problems(model: nn.Module) -> Iterator[str]:
    """The reason why a model of other heads may differ: a plug-in's variant changed the model.

    Its ``finish`` may have replaced norms or added hooks, which neither options nor weights show.
    """
    variant: Variant | None = getattr(type(model), "variant", None)
    finish = variant and variant.finish
    if variant and finish and finish.__module__.partition(".")[0] != "fairseq_collab":
        yield f"the `finish` of {variant.name} may change more of the model than its heads"


def _tied_parts(model: nn.Module) -> Iterator[str]:
    """Layers, or parts of a layer, that share weights, which a new model would have twice."""
    parts: dict[nn.Parameter, list[re.Match[str]]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if (match := _IN_LAYER.match(name)) and ".latent_proj." not in name:  # of one latent
            parts.setdefault(weight, []).append(match)
    tied = set[tuple[str, ...]]()
    for of_weight in parts.values():
        layers = {match["layer"] for match in of_weight}
        tied.add(tuple(sorted(layers if len(layers) > 1 else {match[0] for match in of_weight})))
    for names in sorted(names for names in tied if len(names) > 1):
        yield f"{' and '.join(names)} have weights in common"
    for attention in attentions(model):
        maps = [getattr(attention.module, f"{name}_proj", attention) for name in "qkv"]
        found = [one.weight for one in maps if hasattr(one, "weight")]
        if len({*map(id, found)}) < len(found):
            yield f"projections of {attention.name} have weights in common"


def option_problems(trained: Trained) -> Iterator[str]:
    """Reasons why options of the training make it impossible to convert or prune the model."""
    for option, reason in _UNSUPPORTED.items():
        if trained.options.get(option) and option not in ignored_options(trained):
            yield reason


def ignored_options(trained: Trained) -> tuple[str, ...]:
    """Options that fairseq's own model ignores although they are set; a model of ours would not."""
    family = family_of(type(trained.model))
    return family.ignored if family and type(trained.model) in family.stock else ()


def arch_of(trained: Trained, variant: Variant) -> str:
    """The architecture that gives the heads of ``variant`` to a model of this family."""
    family = family_of(type(trained.model))
    assert family is not None
    return f"{family.prefix}{variant.name}"


def options_for(
    trained: Trained, arch: str, chosen: Mapping[str, Any], left_out: Collection[str] = ()
) -> dict[str, Any]:
    """All options of ``arch``: first ``chosen``, then the trained model's, then the defaults.

    Args:
        left_out: options that are not copied from the trained model.
    """
    options = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch])
    left_out = {*left_out, *ignored_options(trained)}
    source = trained.options.items()
    taken = {name: value for name, value in source if name in options and name not in left_out}
    try:
        values = OmegaConf.to_container(OmegaConf.merge(options, taken, chosen), enum_to_str=True)
    except ValidationError as error:
        problem = (
            f"its option {error.full_key} has another type than in {arch}: {first_line(error)}"
        )
        raise UserError(problem, trained.path) from error
    assert isinstance(values, dict)
    return {**{str(name): value for name, value in values.items()}, "_name": arch}


def rebuilt(trained: Trained, options: Any, weights: Mapping[str, Tensor]) -> Trained:
    """Build a model from ``options`` and ``weights``, and put it into a copy of the checkpoint."""
    check_finite(weights, trained.path)
    result = trained.with_model(trained.model, options)
    like = next(trained.model.parameters())
    kind = MODEL_REGISTRY.get(result.cfg.model._name)
    if kind is not None and issubclass(kind, HeadModel):
        kind.override(result.cfg.model, {})  # drops options that have no effect in the new model
    with without_checkpointing(result.cfg.model):
        model = trained.task.build_model(result.cfg.model).to(like.dtype)
    state = model.state_dict()
    fixed = {name: value for name, value in state.items() if of_one_model(name)}
    load_weights(model, {**fixed, **weights}, trained.path)
    extra = {k: v for k, v in (result.state.get("extra_state") or {}).items() if k != "plan"}
    result.state["extra_state"] = extra  # a plan describes the former weights
    return result.with_model(model.eval().to(like.device))
