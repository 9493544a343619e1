"""A model without heads equals the model with these heads' outputs at zero, in double precision."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from fairseq.models import build_model
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.prune.choices import all_heads
from fairseq_collab.checkpoints.prune.surgery import (
    Kept,
    check_heads,
    heads_by_attention,
    pruned,
)
from fairseq_collab.metrics.cost import cost

pytestmark = pytest.mark.usefixtures("float64")

HEADSIZE, GROUPED = "transformer_headsize_n", "transformer_grouped_heads"
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "stock, shared": ("transformer", {"share_all_embeddings": True}),
    "stock, pre-norm": (
        "transformer",
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
    ),
    "head size": (HEADSIZE, {"head_size": 5}),
    "other key size": (HEADSIZE, {"qk_head_size": 3, "v_head_size": 6}),
    "scale of the model size": (HEADSIZE, {"head_size": 5, "attention_scale": "embed"}),
    "other counts": (HEADSIZE, {"head_size": 4, "heads_in_encoder": "4,5"}),
    "grouped": (GROUPED, {"head_groups": "2"}),
}
#: Fewer heads in every attention, another number in each.
KEPT: Kept = {"encoder": [[0, 2], [3]], "decoder": [[1, 2, 3], [0, 3]], "cross": [[2], [3, 1, 0]]}


def trained(arch: str, **options: Any) -> Trained:
    """A model as it comes from a checkpoint, weights random, biases too."""
    torch.manual_seed(5)
    symbols = toy.task()
    model = toy.model(arch, symbols, dropout=0.0, **options)
    given: Any = Namespace(**{**toy.SIZES, "dropout": 0.0, **options})
    if arch != "transformer":
        given = OmegaConf.create(vars(given))
    return as_trained(model, given, symbols)


def as_trained(model: nn.Module, given: Any, symbols: Namespace) -> Trained:
    """``model``, its biases random, with the options ``given`` in its checkpoint."""
    model.eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    cfg = OmegaConf.create({"model": None}, flags={"allow_objects": True})
    cfg.model = given
    task = Namespace(**vars(symbols), build_model=lambda chosen: build_model(chosen, symbols))
    state = {"cfg": cfg, "last_optimizer_state": {}, "extra_state": {"ema": 1, "epoch": 2}}
    found = Trained(Path("checkpoint.pt"), state, model, task)
    check_heads(found)
    return found


def built(result: Trained) -> nn.Module:
    """The model of the checkpoint that is saved, as fairseq loads it."""
    state = result.content()
    model = build_model(OmegaConf.create(state["cfg"]["model"]), toy.task())
    model.load_state_dict(state["model"], strict=True)
    return model.eval()


def masked(source: Trained, kept: Kept) -> nn.Module:
    """The whole model, with zeros where the outputs of the other heads go to."""
    for one, heads in heads_by_attention(source, kept):
        weight = one.module.out_proj.weight.data.unflatten(1, (one.module.num_heads, -1))
        weight[:, [head for head in range(one.module.num_heads) if head not in heads]] = 0
    return source.model


def translations(model: nn.Module) -> list[Tensor]:
    symbols = toy.task()
    generator = SequenceGenerator([model], symbols.target_dictionary, beam_size=3, max_len_b=10)
    found = generator.generate([model], {"net_input": toy.batch(symbols)})
    return [hypothesis["tokens"] for sentence in found for hypothesis in sentence]


@pytest.mark.parametrize("source", SOURCES)
def test_pruned_equals_masked(source: str) -> None:
    """Logits, and translations token for token."""
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    smaller = built(pruned(whole, KEPT))
    expected = masked(whole, KEPT)
    torch.testing.assert_close(
        smaller(**toy.batch())[0], expected(**toy.batch())[0], rtol=0, atol=1e-10
    )
    assert all(map(torch.equal, translations(smaller), translations(expected)))


@pytest.mark.parametrize("source", SOURCES)
def test_with_all_heads_nothing_changes(source: str) -> None:
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    result = pruned(whole, all_heads(whole.heads))
    torch.testing.assert_close(
        built(result)(**toy.batch())[0], whole.model(**toy.batch())[0], rtol=0, atol=1e-10
    )
    for name, weight in whole.model.named_parameters():
        if "scale of the model" not in source and name in result.model.state_dict():
            assert torch.equal(weight, result.model.state_dict()[name])


def test_parameters_are_really_gone() -> None:
    """An attention of d = 16 with heads of size 4: 3 (16 + 1) 4 + 16 * 4 for each of them."""
    whole = trained("transformer")
    smaller = built(pruned(whole, KEPT))
    gone = 4 * 6 - sum(len(heads) for layers in KEPT.values() for heads in layers)
    assert gone == 12
    assert cost(whole.model).parameters - cost(smaller).parameters == gone * (3 * 17 * 4 + 64)
    assert [layer.self_attn.num_heads for layer in smaller.encoder.layers] == [2, 1]


def test_shared_weights_stay_shared() -> None:
    whole = trained("transformer", share_all_embeddings=True)
    weights = pruned(whole, KEPT).content()["model"]
    names = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")
    assert len({weights[name].data_ptr() for name in names}) == 1


def test_what_belongs_to_the_training_is_left_out() -> None:
    state = pruned(trained(HEADSIZE), KEPT).content()
    assert "last_optimizer_state" not in state
    assert state["extra_state"] == {"epoch": 2}
    assert state["cfg"]["model"]["_name"] == HEADSIZE


# ---- feed-forward units --------------------------------------------------------------------------


def test_fewer_units_equal_masked_ones() -> None:
    whole = trained("transformer")
    for layer in [*whole.model.encoder.layers, *whole.model.decoder.layers]:
        gone = torch.randperm(24)[:10]
        layer.fc2.weight.data[:, gone] = 0  # and so they are the least important
    smaller = built(pruned(whole, all_heads(whole.heads), ffn_dim=14))
    assert smaller.encoder.layers[0].fc1.weight.shape == (14, 16)
    torch.testing.assert_close(
        smaller(**toy.batch())[0], whole.model(**toy.batch())[0], rtol=0, atol=1e-10
    )


# ---- what is refused -----------------------------------------------------------------------------


def changed(**sites: Any) -> Kept:
    return {**KEPT, **sites}


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (changed(cross=[[0]]), "cross attention: heads are given for 1 layers, but it has 2"),
        (changed(encoder=[[0], []]), "encoder attention, layer 1: no head would be left"),
        (changed(encoder=[[0, 0], [1]]), "encoder attention, layer 0: a head is given twice"),
        (changed(decoder=[[1], [4]]), "layer 1: there is no head 4; it has heads 0 to 3"),
        (changed(decoder=[[-1, 2], [0]]), "layer 0: there is no head -1; it has heads 0 to 3"),
    ],
)
def test_choices_that_do_not_fit(kept: Kept, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        pruned(trained("transformer"), kept)
    assert message in str(refusal.value)


def test_more_units_than_there_are() -> None:
    whole = trained("transformer")
    with pytest.raises(UserError, match=r"layers\.0 has 24 feed-forward units, not 25"):
        pruned(whole, all_heads(whole.heads), ffn_dim=25)


def test_heads_of_different_sizes() -> None:
    whole = trained(HEADSIZE, key_dim=12, heads_in_cross="4,2", v_head_size=4)
    with pytest.raises(UserError, match=r"heads have different sizes \(3, 6 in q_proj\)"):
        pruned(whole, all_heads(whole.heads))


def test_heads_that_share_their_keys() -> None:
    with pytest.raises(UserError, match=r"CollaborativeAttention, of which none can be taken"):
        trained("transformer_collab", key_dim=8)


def test_models_that_are_no_transformers() -> None:
    with pytest.raises(UserError, match=r"c\.pt: neither an encoder-decoder transformer nor"):
        check_heads(Trained(Path("c.pt"), {}, nn.Linear(1, 1), None))
