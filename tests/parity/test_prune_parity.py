"""A model without heads equals the model with these heads' outputs at zero.

In double precision.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_language_models as toy_lm
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf
from refusals import refusing
from torch import Tensor, nn

from collab_lab.shrinking.cut import reject
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.retained import all_heads, heads_by_attention, pruned
from collab_lab.trained.attentions import Retained
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward, feed_forwards

pytestmark = pytest.mark.usefixtures("float64")

HEADSIZE, GROUPED = "transformer_headsize_n", "transformer_grouped_heads"
LM, LM_HEADSIZE = "transformer_lm", "transformer_lm_headsize_n"
LM_GROUPED = "transformer_lm_grouped_heads"
ADAPTIVE = {
    **{"adaptive_input": True, "tie_adaptive_weights": True, "tie_adaptive_proj": True},
    **{"adaptive_input_cutoff": "8,16", "adaptive_softmax_cutoff": "8,16"},
}
SCALED = {"scale_attn": True, "scale_fc": True, "scale_resids": True}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "pre-norm": ("transformer", {f"{s}_normalize_before": True for s in ("encoder", "decoder")}),
    "other sizes": (HEADSIZE, {"qk_head_size": 3, "v_head_size": 6}),
    "scale of the model size": (HEADSIZE, {"head_size": 5, "attention_scale": "embed"}),
    "other counts": (HEADSIZE, {"head_size": 4, "heads_in_encoder": "4,5"}),
    "grouped": (GROUPED, {"head_groups": 2}),
    "language model": (LM, {"share_decoder_input_output_embed": True}),
    "language model, other input size": (LM, {"decoder_input_dim": 8, "decoder_output_dim": 12}),
    "language model, options that it ignores": (LM, SCALED),
    "language model, grouped": (LM_GROUPED, {"head_groups": 2, **ADAPTIVE}),
}
#: Fewer heads in every attention, another number in each.
KEPT: Retained = {
    "encoder": [[0, 2], [3]],
    "decoder": [[1, 2, 3], [0, 3]],
    "cross": [[2], [3, 1, 0]],
}


def check_heads(found: Trained) -> None:
    """Reject a model whose heads cannot be removed."""
    reject(found, [Heads()], "its heads cannot be removed")


def trained(arch: str, separate: bool = True, **options: Any) -> Trained:
    """A model as it comes from a checkpoint, weights random, biases too.

    Args:
        separate: heads can be taken out of it one by one.
    """
    torch.manual_seed(5)
    symbols, chosen = toy_lm.task(), {"dropout": 0.0, "attention_dropout": 0.0, **options}
    sizes = {**toy.SIZES, **chosen}
    if "_lm" in arch:
        sizes = toy_lm.language_model_options(arch, **chosen)
    model = toy.build(arch, symbols, sizes).double()  # adaptive inputs have a single buffer
    given: Any = Namespace(**sizes, _name=arch)
    if arch != "transformer":
        defaults = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
        given = OmegaConf.merge(defaults, {**sizes, "_name": arch})
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    parts = {"model": None, "task": {"_name": "translation"}}
    cfg = OmegaConf.create(parts, flags={"allow_objects": True})
    cfg.model = given
    task = Namespace(**vars(symbols), build_model=lambda chosen: build_model(chosen, symbols))
    state = {"cfg": cfg, "last_optimizer_state": {}, "extra_state": {"ema": 1, "epoch": 2}}
    found = Trained(Path("checkpoint.pt"), state, model.eval(), task)
    if separate:
        check_heads(found)
    return found


def built(result: Trained) -> nn.Module:
    """The model of the checkpoint that is saved, as fairseq loads it."""
    state = result.content()
    model = build_model(OmegaConf.create(state["cfg"]["model"]), toy_lm.task())
    model.load_state_dict(state["model"], strict=True)
    return model.double().eval()


def masked(source: Trained, kept: Retained) -> nn.Module:
    """The whole model; all values of the other heads are zero."""
    for one, heads in heads_by_attention(source, kept):
        if not one.module.num_heads:
            continue
        project, split = one.module.v_proj, (one.module.num_heads, -1)
        weight, bias = (part.data.unflatten(0, split) for part in (project.weight, project.bias))
        for head in {*range(one.module.num_heads)} - {*heads}:
            weight[head], bias[head] = 0, 0
    return source.model


def inputs(source: Trained) -> dict[str, Tensor]:
    """A batch with padding; of a language model, sentences padded right as the task pads them."""
    batch = toy.batch()
    if not source.is_language_model:
        return batch
    tokens = batch["prev_output_tokens"]
    lengths = tokens.ne(toy.dictionary().pad()).sum(1)
    return {"src_tokens": tokens, "src_lengths": lengths}


def translations(model: nn.Module) -> list[Tensor]:
    """What beam search makes of a batch; of two prefixes, if it is a language model."""
    symbols = toy.task()
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=3, max_len_b=8)
    if hasattr(model, "encoder"):
        found = generator.generate([model], {"net_input": toy.batch(symbols)})
    else:
        prefix = torch.tensor([[5, 6], [9, 11]])
        sample = {"net_input": {"src_tokens": prefix}}
        found = generator.generate([model], sample, prefix_tokens=prefix)
    return [hypothesis["tokens"] for sentence in found for hypothesis in sentence]


def check_same(model: nn.Module, expected: nn.Module, source: Trained) -> None:
    batch = inputs(source)
    torch.testing.assert_close(model(**batch)[0], expected(**batch)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("case", ["some heads", "all heads", "a layer without heads"])
def test_pruned_equals_masked(source: str, case: str) -> None:
    """Logits, and translations token for token."""
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    kept = {
        "some heads": KEPT,
        "all heads": all_heads(whole),
        "a layer without heads": {type_: [*layers[:-1], []] for type_, layers in KEPT.items()},
    }[case]
    kept = {type_: kept[type_] if heads else [] for type_, heads in whole.heads.items()}
    result = pruned(whole, kept)
    assert result.arch == (LM_HEADSIZE if whole.is_language_model else HEADSIZE)
    assert result.heads == {type_: [*map(len, layers)] for type_, layers in kept.items()}
    smaller, expected = built(result), masked(whole, kept)
    check_same(smaller, expected, whole)
    assert all(map(torch.equal, translations(smaller), translations(expected)))


def without_units(source: Trained, kept: Mapping[FeedForward, Sequence[int]]) -> nn.Module:
    """The whole model; all other units have no effect."""
    for block in feed_forwards(source.model):
        for unit in {*range(block.width)} - {*kept.get(block, range(block.width))}:
            block.module.fc2.weight.data[:, unit] = 0
    return source.model


@pytest.mark.parametrize("source", ["stock", "pre-norm", "grouped", "language model"])
def test_fewer_units_equal_masked_ones(source: str) -> None:
    """In some blocks, next to fewer heads: logits, and translations token for token."""
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    first, *_, last = feed_forwards(whole.model)
    units = {first: [0, 5, 6], last: [*range(3, 24)]}
    kept = {type_: KEPT[type_] if heads else [] for type_, heads in whole.heads.items()}
    result = pruned(whole, kept, units)
    widths = {str(block): block.width for block in feed_forwards(result.model)}
    assert (widths[str(first)], widths[str(last)]) == (3, 21)
    smaller = built(result)
    masked(whole, kept)
    expected = without_units(whole, units)
    check_same(smaller, expected, whole)
    assert all(map(torch.equal, translations(smaller), translations(expected)))


@pytest.mark.parametrize("units", [[0, 0], [24], [-1]])
def test_units_that_do_not_fit(units: list[int]) -> None:
    whole = trained("transformer")
    with refusing("encoder 0"):
        pruned(whole, KEPT, {feed_forwards(whole.model)[0]: units})
    deeper = trained("transformer", encoder_layers=3)
    with refusing("encoder 2"):
        pruned(whole, KEPT, {feed_forwards(deeper.model)[2]: []})


def test_a_layer_without_heads_is_the_bias_of_its_output() -> None:
    """Its heads have no size; elsewhere they have size 4, and may go later."""
    result = pruned(trained("transformer"), {**KEPT, "encoder": [[], [3]]})
    attention = built(result).encoder.layers[0].self_attn
    assert [name for name, _ in attention.named_parameters()] == ["out_proj.bias"]
    assert attention.cached_floats_per_token() == (0, 0)
    again = pruned(result, {"encoder": [[], []], "decoder": [[], []], "cross": [[0], []]})
    assert [*again.heads.values()] == [[0, 0], [0, 0], [1, 0]]


def test_shared_weights_stay_shared_and_training_is_left_out() -> None:
    content = pruned(trained("transformer", share_all_embeddings=True), KEPT).content()
    names = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({content["model"][name].data_ptr() for name in names}) == 1
    assert "last_optimizer_state" not in content
    assert content["extra_state"] == {"epoch": 2}


# ---- what is refused -----------------------------------------------------------------------------


def changed(**types: Any) -> Retained:
    return {**KEPT, **types}


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (changed(cross=[[0]]), "cross"),
        (
            changed(encoder=[[0, 0], [1]]),
            "[0, 0]",
        ),
        (changed(decoder=[[1], [4]]), "layer 1: [4]"),
        (changed(decoder=[[-1, 2], [0]]), "layer 0: [-1, 2]"),
    ],
)
def test_choices_that_do_not_fit(kept: Retained, message: str) -> None:
    with refusing(message):
        pruned(trained("transformer"), kept)


def test_heads_that_cannot_be_removed() -> None:
    with refusing("(3, 6)"):
        trained(HEADSIZE, key_dim=12, heads_in_cross="4,2", v_head_size=4)
    with refusing("normalised"):
        trained("transformer_latent", latent_dim=6, latent_norm=True)
