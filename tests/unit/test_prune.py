"""Which heads ``prune`` keeps, and the options of pruned and converted models."""

from __future__ import annotations

import itertools
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
from commands import REPOSITORY
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from parity.test_prune_parity import trained
from refusals import refusing
from toy_checkpoints import COPY

import collab_lab
from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab import convert, prune, shrink
from collab_lab.cli.prune import build_parser, choice
from collab_lab.heads import stages
from collab_lab.mathematics.head_prices import head_removals
from collab_lab.shrinking.by_hand import (
    check_number,
    chosen_bits,
    chosen_sizes,
    fewer,
    named_types,
    random_order,
)
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence, in_order
from collab_lab.shrinking.gates import open_heads, without_gates
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.statistics.moments import Statistics
from collab_lab.trained import fine_tuning
from collab_lab.trained.attentions import HeadMaps, attentions
from collab_lab.trained.checkpoint import Trained, open_model
from fairseq_collab.attention import gates

STORED = REPOSITORY / "tests" / "stored"


# ---- by price ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 5, 9])
def test_the_heads_that_go_are_the_cheapest_of_all(number: int) -> None:
    """Of all numbers for each attention, whose heads go in the order of their prices."""
    source = trained("transformer_headsize_n", heads_in_encoder="4,1", v_head_size=3, head_size=3)
    evidence = Evidence(source, attentions=some_statistics(source))
    rises = {
        a: [rise for rise, _ in head_removals(a.module, of)]
        for a, of in evidence.attentions.items()
    }
    plan = fewer(evidence, Heads(counted=True), number)
    kept = {a: len(shape.heads) for a, shape in plan.attentions.items()}
    assert sum(a.module.num_heads - heads for a, heads in kept.items()) == number
    assert all(kept[a] for a in kept if a.type == "cross")
    order = sorted(
        rise for a, of in rises.items() for rise in (of[:-1] if a.type == "cross" else of)
    )
    assert plan.price <= sum(order[:number]) + 1e-9
    for a, heads in kept.items():
        gone = [head for _, [head] in head_removals(a.module, evidence.attentions[a])]
        assert sorted(plan.shapes[a].heads) == sorted(gone[len(gone) - heads :])


def some_statistics(source: Trained) -> dict[Any, Statistics]:
    """Statistics whose heads have different prices."""
    found = {}
    for one in attentions(source.model):
        plain = Statistics.unweighted(HeadMaps.of(one.module))
        h = torch.randn(40, len(plain.head_covariance)).double()
        found[one] = replace(plain, head_covariance=h.T.cov() + h.T @ h / 400)
    return found


@pytest.mark.parametrize(
    ("arch", "options", "number"),
    [
        ("transformer", {}, 7),
        ("transformer_grouped_query", {"key_value_heads": 2}, 8),
        ("transformer_latent", {"latent_dim": 6}, 5),
    ],
)
def test_prune_and_shrink_remove_the_same_heads(
    arch: str, options: dict[str, Any], number: int, tmp_path: Path
) -> None:
    """Those that share a key or a value go together."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch, **options))
    evidence = Evidence.of(model, sentences=20)
    heads = sum(map(sum, model.heads.values()))
    shrunk = shrink(model, heads=(heads - number) / heads, evidence=evidence)
    pruned_ = prune(model, number, statistics=evidence.attentions, sentences=20)
    assert pruned_.plan.retained == shrunk.plan.retained
    assert pruned_.price == shrunk.price
    assert sum(map(sum, pruned_.model.heads.values())) == heads - number


def test_a_language_model_keeps_a_head() -> None:
    evidence = Evidence(trained("transformer_lm"))
    random_order(evidence, 1)
    number = sum(evidence.trained.heads["decoder"])
    with refusing("checkpoint.pt", f"remove at most {number - 1}: a model keeps a head"):
        fewer(evidence, Heads(counted=True), number)
    none: Any = {"encoder": [], "decoder": [[]] * 2, "cross": []}
    with refusing("checkpoint.pt", "no head"):
        pruned(evidence.trained, none)


def test_a_part_of_a_group_has_no_price() -> None:
    found = in_order(iter([(0.5, [2, 3]), (0.25, [0, 1])]))
    assert found.order == [2, 3, 0, 1]
    assert found.prices == [0, math.inf, 0.5, math.inf, 0.75]
    assert found.retained(2) == [0, 1]


@pytest.mark.parametrize("random", [None, 1])
def test_a_number_to_keep_is_one_of_whole_groups(random: int | None, tmp_path: Path) -> None:
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_grouped_query", key_value_heads=2)
    model = open_model(path)
    for keep in (1, 3):
        with refusing("c.pt", f"keep {keep} heads"):
            prune(model, keep=keep, random=random, sentences=9)
    kept = prune(model, keep=2, random=random, sentences=9, refit=False).model.heads
    assert {number for layers in kept.values() for number in layers} == {2}
    groups = {"key_value_heads": 4, "key_value_heads_in_encoder": "2,2"}
    in_encoder = trained("transformer_grouped_query", **groups)
    check_number(in_encoder, None, 3, ["decoder", "cross"])
    with refusing("keep 3 heads"):
        check_number(in_encoder, None, 3, ["encoder"])


def test_as_many_heads_as_another_model_has() -> None:
    other = STORED / "checkpoints" / "transformer_headsize_n.pt"  # 6 heads, 3 and 6
    args = build_parser().parse_args(["c.pt", "--out=o.pt", f"--as-many-as={other}", "--random=1"])
    args.data = STORED / "copy"
    assert choice(args, trained("transformer"))["number"] == 24 - 15
    smaller = pruned(trained("transformer"), {type_: [[0], [0]] for type_ in ATTENTION_TYPES})
    with refusing("checkpoint.pt", "-9"):
        prune(smaller, **choice(args, smaller))


def test_a_layer_without_heads_is_not_analysed() -> None:
    kept: Any = {"encoder": [[0], [1]], "decoder": [[0], [0, 1]], "cross": [[2], []]}
    smaller = pruned(trained("transformer"), kept)
    with pytest.raises(UserError, match="cross 1"):
        stages.check(smaller)


# ---- by gates ------------------------------------------------------------------------------------


def test_heads_with_open_gates_or_none_stay() -> None:
    source = trained("transformer_gated_heads", gated_types="encoder")
    source.model.encoder.layers[0].self_attn.theta.data[2:] = torch.tensor([-0.1, -9.0])
    assert open_heads(source) == {
        "encoder": [[0, 1], [0, 1, 2, 3]],
        **{type_: [[0, 1, 2, 3]] * 2 for type_ in ("decoder", "cross")},
    }


def test_models_without_gates() -> None:
    source = trained("transformer")
    with refusing("checkpoint.pt", "gates"):
        open_heads(source)
    assert without_gates(source) is source


@pytest.mark.parametrize("arch", ["transformer", "transformer_lm"])
@pytest.mark.parametrize("number", [0, 1, 4, 7, 12])
def test_equal_numbers_on_each_side_are_the_cheapest(arch: str, number: int) -> None:
    """Of all pairs of numbers, with the cheapest heads of each attention."""
    source = trained(arch)
    number = number if arch == "transformer" else number // 2
    evidence = Evidence(source)
    random_order(evidence, 3)
    plan = fewer(evidence, Heads(even=True, counted=True), number)
    numbers = {t: {*map(len, layers)} for t, layers in plan.retained.items() if layers}
    kept = {len(numbers["decoder"] | numbers.get("cross", set())), len(numbers["decoder"])}
    assert kept == {1}
    costs = []
    for encoder, decoder in itertools.product(range(1, 5), repeat=2):
        stay = {a: encoder if a.type == "encoder" else decoder for a in attentions(source.model)}
        if sum(4 - heads for heads in stay.values()) >= number:
            costs.append(sum(evidence.removals(a).prices[4 - n] for a, n in stay.items()))
    assert plan.price == pytest.approx(min(costs), abs=1e-6)


def test_types_that_the_model_lacks_are_refused() -> None:
    with refusing("no cross"):
        named_types(trained("transformer_lm"), ["decoder", "cross"])


def test_equal_numbers_that_are_impossible_or_have_no_effect() -> None:
    source = trained("transformer")
    evidence = Evidence(source)
    random_order(evidence, 3)
    with refusing("20 heads", "18"):
        fewer(evidence, Heads(even=True, counted=True), 20)
    for given in ({"keep": 2}, {"number": 4, "types": ["decoder"]}):
        with refusing("same_on_each_side"):
            prune(source, **given, random=3, same_on_each_side=True)


def test_the_most_that_leaves_equal_numbers_is_named() -> None:
    """Where one layer of the encoder loses pairs of heads, and the other single ones."""
    source = trained(
        "transformer_grouped_query", key_value_heads=4, key_value_heads_in_encoder="2,4"
    )
    evidence = Evidence(source)
    random_order(evidence, 3)
    cut = Heads(even=True, counted=True)
    with refusing("17 heads", "at most 16"):
        fewer(evidence, cut, 17)
    kept = fewer(evidence, cut, 16).retained
    assert {t: [*map(len, of)] for t, of in kept.items()} == {
        "encoder": [2, 2], "decoder": [1, 1], "cross": [1, 1],
    }  # fmt: skip


# ---- configurations ------------------------------------------------------------------------------

#: Options that do not show in the weights, and how they are printed.
OPTIONS = {
    "encoder_normalize_before": (True, "--encoder-normalize-before"),
    "no_scale_embedding": (True, "--no-scale-embedding"),
    "activation_fn": ("gelu", "--activation-fn gelu"),
    "share_decoder_input_output_embed": (True, "--share-decoder-input-output-embed"),
}


def changed(source: Trained, change: str) -> Trained:
    """The pruned or converted model."""
    if change == "prune":
        return pruned(source, {type_: [[0, 2], [3]] for type_ in ATTENTION_TYPES})
    by_type = dict.fromkeys(ATTENTION_TYPES, "8,6")
    return collab_lab.convert(source, "latent", by_type=by_type, sentences=9).model


@pytest.mark.parametrize("change", ["prune", "convert"])
def test_what_is_printed_builds_the_same_model(tmp_path: Path, change: str) -> None:
    """Through fairseq's parser."""
    options = {name: value for name, (value, _) in OPTIONS.items()}
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt", **options), toy_checkpoints.COPY)
    result = changed(source, change)
    small = tmp_path / "small.pt"
    printed = fine_tuning.command(result, small, tmp_path / "small", updates=9)
    assert all(words in printed for _, words in OPTIONS.values())
    parser, (_, *words) = fairseq_options.get_training_parser(), shlex.split(printed)
    args = fairseq_options.parse_args_and_arch(parser, words)
    assert args.finetune_from_model == str(small)
    model: Any = source.task.build_model(convert_namespace_to_omegaconf(args).model).eval()
    assert toy.num_parameters(model) == toy.num_parameters(result.model)
    model.load_state_dict(result.model.state_dict())
    batch = toy.batch(source.task)
    ours, expected = (
        one.get_normalized_probs(one(**batch), log_probs=True) for one in (model, result.model)
    )
    assert torch.equal(ours, expected)


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    source = open_model(toy_checkpoints.write(tmp_path / "c.pt"))
    source.cfg.model.quant_noise_pq_block_size = "many"  # which no model without such noise reads
    kept: Any = {type_: [[0]] * 2 for type_ in ATTENTION_TYPES}
    with refusing(str(tmp_path / "c.pt"), "quant_noise_pq_block_size"):
        pruned(source, kept)


# ---- what is written by hand ---------------------------------------------------------------------


def test_bits_that_are_given_are_those_of_all_caches(tmp_path: Path) -> None:
    """Of converted attentions and of others, whatever the source rounds; 0 is no rounding."""
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", cache_bits=8)
    model = open_model(path, COPY)
    sizes = {"encoder": 0, "decoder": 0, "cross": "4,0"}
    given: dict[str, Any] = {"to": "latent", "by_type": sizes, "sentences": 9}
    for bits, expected in (
        ("0,4,8,0", [0, 4, 8, 0]),
        ("none", [0, 0, 0, 0]),
        ("auto", [8, 8, 8, 8]),
    ):
        made = convert(model, **given, cache_bits=bits, refit=False).model
        cached = made.attentions["decoder"] + made.attentions["cross"]
        assert [attention.module.cache_bits for attention in cached] == expected
        assert [getattr(a.module, "latent_dim", 0) for a in cached] == [0, 0, 4, 0]


def test_a_cache_of_no_heads_is_not_rounded(tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), COPY)
    heads = all_heads(model)
    heads["decoder"][1] = []
    fewer = pruned(model, heads)
    assert [str(a) for a in chosen_bits(8, fewer)] == ["decoder 0", "cross 0", "cross 1"]
    assert chosen_bits("none", fewer) == chosen_bits(None, fewer) == {}
    path = toy_checkpoints.write(tmp_path / "r.pt", "transformer_headsize_n", cache_bits=8)
    rounded = open_model(path, COPY)
    draft, (first, second) = Draft(rounded), rounded.attentions["decoder"]
    draft.keep_heads(second, [])
    draft.round(first, 4)
    assert draft.options()["cache_bits_in_decoder"] == "4,0"


def test_sizes_of_attentions_that_are_not_named() -> None:
    """A default of 0 is no size; one for none is an argument without effect."""
    model, lm = trained("transformer", separate=False), trained("transformer_lm", separate=False)
    sizes = chosen_sizes(5, {"cross": "0,7"}, model, Latent())
    assert {str(a): size for a, size in sizes.items()} == {
        **{f"{type_} {layer}": 5 for type_ in ("encoder", "decoder") for layer in (0, 1)},
        "cross 1": 7,
    }
    with refusing("out of range"):
        chosen_sizes(0, {"cross": 7}, model, Latent())
    with refusing("encoder", "size"):
        chosen_sizes(None, {"cross": 7}, model, Latent())
    with refusing("size", "no effect"):
        chosen_sizes(5, {"decoder": 7}, lm, Latent())
    with refusing("lacks"):
        chosen_sizes(5, {"cross": 7}, lm, Latent())
    assert len(chosen_sizes(None, {"decoder": 7}, lm, Latent())) == 2


def test_a_random_choice_is_that_of_its_seed(tmp_path: Path) -> None:
    """Its price is not predicted; heads that share go together."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), COPY)
    made = [prune(model, 8, random=seed, sentences=9, refit=False) for seed in (1, 1, 2, 3)]
    kept = [one.plan.retained for one in made]
    assert kept[0] == kept[1]
    assert kept[1] != kept[2] != kept[3]
    assert all(one.price is None for one in made)
    path = toy_checkpoints.write(tmp_path / "g.pt", "transformer_grouped_query", key_value_heads=2)
    evidence = Evidence(open_model(path, COPY))
    random_order(evidence, 5)
    for attention in attentions(evidence.trained.model):
        removals = evidence.removals(attention)
        pairs = [{*removals.order[:2]}, {*removals.order[2:]}]
        assert sorted(map(sorted, pairs)) == [[0, 1], [2, 3]]
        assert [math.isfinite(price) for price in removals.prices] == [True, False] * 2 + [True]


def test_any_head_may_go_first_in_a_random_order() -> None:
    model, first = trained("transformer"), set[int]()
    for seed in range(9):
        evidence = Evidence(model)
        random_order(evidence, seed)
        first |= {evidence.removals(attention).order[0] for attention in attentions(model.model)}
    assert first == {0, 1, 2, 3}


def test_as_many_heads_as_the_smallest_layer_has(tmp_path: Path) -> None:
    sizes = {"heads_in_encoder": "4,2", "head_size": 4}
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", **sizes)
    model = open_model(path, COPY)
    made = prune(model, keep=2, sentences=9, refit=False)
    assert made.model.heads == {type_: [2, 2] for type_ in model.heads}
    for keep in (0, 3):
        with refusing(f"keep {keep}"):
            prune(model, keep=keep, sentences=9)
    with refusing("23 heads"):
        prune(model, 23, sentences=9)


@pytest.mark.parametrize("speed", [1, 10])
def test_gates_in_the_weights_are_open(speed: int) -> None:
    """As those of a new model are, at every speed."""
    source = trained("transformer_gated_heads", gate_speed=speed)
    for attention in attentions(source.model):
        attention.module.theta.data[1] = -3
    result = without_gates(source)
    for before, after in zip(attentions(source.model), attentions(result.model), strict=True):
        assert after.module.log_alpha.tolist() == [gates.OPEN] * 4
        factors = torch.tensor([1.0, 0.0, 1.0, 1.0]).repeat_interleave(4)
        weight = before.module.v_proj.weight * factors.unsqueeze(1)
        assert torch.equal(after.module.v_proj.weight, weight)
        assert torch.equal(after.module.v_proj.bias, before.module.v_proj.bias * factors)
