"""What is not shrunk, pruned or priced; what is said of results; limits of memory and time."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from fairseq.models.transformer import TransformerModel
from fairseq.modules import MultiheadAttention
from refusals import refusing
from scipy.optimize import milp
from torch import Tensor, nn
from torch.nn import functional
from toy_checkpoints import COPY

from collab_lab import convert, open_model, prices, prune, time_parts, validation_loss
from collab_lab.cli.main import main
from collab_lab.cli.shrink import summary
from collab_lab.export import ct2, onnx
from collab_lab.export.plain import plain
from collab_lab.heads.importance import importance
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking import apply, front, knapsack, planner
from collab_lab.shrinking.cut import ANY_BITS
from collab_lab.shrinking.cuts.grouped_query import GroupedQuery
from collab_lab.shrinking.engine import ENGINES
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.knapsack import cheapest
from collab_lab.shrinking.plan import Allowed, Plan
from collab_lab.shrinking.planner import OutOfReachError, propose
from collab_lab.shrinking.price_list import Point
from collab_lab.shrinking.shape import model_costs
from collab_lab.shrinking.shrink import CUT_BY, cheapest_model, shrink
from collab_lab.statistics import moments as statistics
from collab_lab.statistics.moments import Statistics
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import without_checkpointing
from collab_lab.trained.rebuilt import model_problems
from collab_lab.trained.sentences import samples


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return opened(tmp_path_factory.mktemp("limits"))


@pytest.fixture(scope="module")
def found(model: Trained) -> Evidence:
    return Evidence.of(model, sentences=20)


def opened(folder: Path, arch: str = "transformer", **options: Any) -> Trained:
    return open_model(toy_checkpoints.write(folder / "c.pt", arch, **options), COPY)


# ---- models that would not be the trained one ----------------------------------------------------

#: What changes a model, with the least work.
CHANGES = {
    "shrink": lambda model: shrink(model, heads=0.5, sentences=9),
    "shrink the cache": lambda model: shrink(model, cache=0.5, kinds=["unchanged"], sentences=9),
    "prune": lambda model: prune(model, 3, random=1, sentences=9),
    "convert": lambda model: convert(model, "latent", 8, sentences=9),
    "time": lambda model: time_parts(model, "fairseq", length=3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_of_a_plug_in_is_not_built_anew_as_another(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may compute something else, though it has the weights of the class it is derived from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = opened(tmp_path, "transformer_headsize_n")
    model.model.__class__ = type("Scaled", (type(model.model),), {})
    with refusing("Scaled", "c.pt"):
        CHANGES[change](model)


def _halved(function: Any) -> Any:
    """As a plug-in's decorator, which keeps the name and the module of what it wraps."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        x, *rest = function(*args, **kwargs)
        return (x / 2, *rest)

    return wrapped


def _half_of_output(module: nn.Module, args: Any, output: Any) -> Any:
    return (output[0] / 2, *output[1:])


@pytest.mark.parametrize("place", ["class", "module", "hook", "attribute"])
@pytest.mark.parametrize(
    "use",
    [lambda model: prune(model, 3, random=1, sentences=9), plain, ct2.check, onnx.check],
    ids=["prune", "fairseq", "ct2", "onnx"],
)
def test_what_a_plug_in_puts_into_fairseqs_own_classes(
    place: str, use: Callable[[Trained], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuilt model would lack it, or have it twice, and no other engine has it."""
    model = opened(tmp_path)
    layer = model.model.decoder.layers[1]
    if place == "class":
        monkeypatch.setattr(type(layer), "forward", _halved(type(layer).forward))
    elif place == "module":
        layer.forward = _halved(layer.forward)
    elif place == "hook":
        layer.register_forward_hook(_half_of_output)
    else:
        layer.activation_fn = torch.tanh
    expected = {
        "class": ("TransformerDecoderLayerBase.forward", __name__),
        "attribute": ("something else than a transformer",),
    }.get(place, ("decoder.layers.1", __name__))
    with refusing(*expected):
        use(model)


@pytest.mark.parametrize("change", CHANGES)
def test_layers_that_are_one_module_are_not_two(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = opened(tmp_path)
    layers = model.model.decoder.layers
    layers[1] = layers[0]
    with refusing("decoder.layers.0 and decoder.layers.1", "c.pt"):
        CHANGES[change](model)


def test_a_model_that_misses_a_target_is_not_written(
    tmp_path: Path, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the plan promised."""
    monkeypatch.setattr(apply, "apply_cuts", lambda evidence, plan: (evidence.trained, plan))
    monkeypatch.setattr(apply, "refit_if_better", lambda *_: 0.0)
    words = [str(model.path), str(COPY), "--parameters=0.7", "--cpu", "--sentences=9"]
    assert main(["shrink", *words, f"--out={tmp_path / 'o.pt'}"]) == 1
    assert not (tmp_path / "o.pt").exists()


class Pointer(TransformerModel):
    """It returns probabilities, as a pointer-generator does."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        logits, extra = super().forward(*args, **kwargs)
        return logits.softmax(-1), extra

    def get_normalized_probs(self, output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        return output[0].log() if log_probs else output[0]


def test_a_model_without_logits_has_no_prices(tmp_path: Path) -> None:
    model = opened(tmp_path)
    expected = validation_loss(model)
    model.model.__class__ = Pointer
    assert validation_loss(model) == pytest.approx(expected)
    with refusing("Pointer", "softmax"):
        prices(model, sentences=9)
    with refusing("Pointer", "softmax"):
        importance(model.model, samples(model, "train", 9))


def test_a_decoder_that_reads_each_target_twice_has_no_prices(tmp_path: Path) -> None:
    """The second time is for alignments, and has no effect on the loss: all prices were 0."""
    options = {"alignment_layer": 1, "full_context_alignment": True}
    model = opened(tmp_path, "transformer_align", **options)
    with refusing("decoder 0", "several times"):
        prices(model, sentences=9)
    with refusing("decoder 0", "several times"):
        importance(model.model, samples(model, "train", 9))


def test_a_feed_forward_block_of_two_layers_has_no_prices(tmp_path: Path) -> None:
    model = opened(tmp_path)
    first, second = model.model.encoder.layers
    second.fc1, second.fc2 = first.fc1, first.fc2
    with refusing("encoder 0 feed-forward", "several times"):
        prices(model, sentences=9)


class Passing(MultiheadAttention):
    """It names only some of its arguments: the masks are among the others."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **others: Any) -> Any:
        return super().forward(query, key, value, **others)


def test_prices_of_an_attention_that_passes_its_masks_on(tmp_path: Path) -> None:
    model = opened(tmp_path)
    attention = attentions(model.model)[2]
    assert attention.type == "decoder"
    expected = prices(model, sentences=9).heads(attention)
    attention.module.__class__ = Passing
    assert prices(model, sentences=9).heads(attention) == pytest.approx(expected)


def test_units_of_a_gated_block_are_those_that_its_output_reads(tmp_path: Path) -> None:
    """Half of what ``fc1`` computes are gates: a share of the units would be another share."""
    model = opened(tmp_path)
    layer = model.model.encoder.layers[0]
    width = layer.fc2.in_features
    layer.fc1, layer.activation_fn = nn.Linear(layer.fc1.in_features, 2 * width), functional.glu
    priced = prices(model, sentences=9)
    block = next(iter(priced.units))
    found = priced.narrower(block, (1, 0.75, 0))
    every = priced.evidence.removals(block).prices
    assert found == [0, every[width // 4], every[-1]]


@pytest.mark.parametrize("change", ["shrink", "prune", "convert"])
def test_what_is_changed_is_refitted(
    change: str, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless an argument says otherwise."""
    refitted = list[Trained]()

    def noted(changed: Trained, *_: Any) -> float:
        refitted.append(changed)
        return 0.0

    monkeypatch.setattr(apply, "refit_if_better", noted)
    CHANGES[change](model)
    assert len(refitted) == 1


def test_scores_of_another_scale_are_not_left_to_new_heads(tmp_path: Path) -> None:
    """Of attentions that the plan leaves as they are."""
    options = {"qk_head_size": 6, "attention_scale": "embed"}
    evidence = Evidence(opened(tmp_path, "transformer_headsize_n", **options))
    allowed = Allowed(("cache",), ("grouped-query",), (0,))
    with refusing("encoder 0", "scale"):
        apply.apply_cuts(evidence, propose(evidence, {"cache": 0.5}, allowed))


# ---- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["shrink", "prune", "convert"])
def test_half_precision_stays(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the file, whose loss is the one that is measured; embeddings that are one stay one."""
    path = toy_checkpoints.write(tmp_path / "c.pt", share_decoder_input_output_embed=True)
    state = torch.load(path, weights_only=False)
    state["model"] = {name: weight.half() for name, weight in state["model"].items()}
    torch.save(state, path)
    model = open_model(path, COPY)
    assert next(model.model.parameters()).dtype == torch.float32
    result = CHANGES[change](model).model
    result.save(tmp_path / "o.pt")
    saved = torch.load(tmp_path / "o.pt", weights_only=True)["model"]
    assert {w.dtype for w in saved.values() if w.is_floating_point()} == {torch.float16}
    tied = (saved[f"decoder.{name}.weight"] for name in ("embed_tokens", "output_projection"))
    assert len({weight.data_ptr() for weight in tied}) == 1
    assert validation_loss(open_model(tmp_path / "o.pt", COPY)) == validation_loss(result)
    assert "single precision" not in capsys.readouterr().err
    model.save(tmp_path / "unchanged.pt")
    assert "single precision" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["shrink", "prune", "convert"])
def test_each_weight_keeps_its_own_precision(change: str, tmp_path: Path) -> None:
    """Norms in single precision, say; a new weight has the widest of its attention."""
    path = toy_checkpoints.write(tmp_path / "c.pt", share_decoder_input_output_embed=True)
    state = torch.load(path, weights_only=False)
    in_single = ("layer_norm", "decoder.layers.1.encoder_attn.k_proj.weight")
    state["model"] = {
        name: weight if any(part in name for part in in_single) else weight.bfloat16()
        for name, weight in state["model"].items()
    }
    torch.save(state, path)
    model = open_model(path, COPY)
    smaller = CHANGES[change](model)
    result = smaller.model
    result.save(tmp_path / "o.pt")
    saved = torch.load(tmp_path / "o.pt", weights_only=True)["model"]
    for name, weight in saved.items():
        if name in state["model"]:
            assert weight.dtype == state["model"][name].dtype, name
    norm = "encoder.layers.0.final_layer_norm.weight"
    assert torch.equal(saved[norm], state["model"][norm])
    new = {name: saved[name].dtype for name in saved.keys() - state["model"].keys()
           if saved[name].is_floating_point()}  # fmt: skip
    assert all(
        dtype == (torch.float32 if "layers.1.encoder_attn" in name else torch.bfloat16)
        for name, dtype in new.items()
    ), new
    assert new or change != "convert"
    again = open_model(tmp_path / "o.pt", COPY)
    assert validation_loss(again) == validation_loss(result)
    read = samples(model, "train", 9)
    rise = mean_bits(again.model, read) - mean_bits(model.model, read)
    assert smaller.rise == pytest.approx(rise, abs=1e-5)


def test_a_weight_that_half_precision_cannot_hold_is_an_error(tmp_path: Path) -> None:
    model = opened(tmp_path)
    model = replace(model, precisions=dict.fromkeys(model.precisions, torch.float16))
    model.model.decoder.layers[0].fc1.bias.data[0] = 1e6
    with refusing("decoder.layers.0.fc1.bias", "half precision"):
        prune(model, 3, random=1, sentences=9, refit=False)


# ---- what is least -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["fairseq", "ct2"])
@pytest.mark.parametrize("name", ["parameters", "cache", "heads"])
def test_the_least_that_is_named_is_possible(
    name: str, engine: str, model: Trained, found: Evidence
) -> None:
    """And a thousandth less is not: the error names the same."""
    bits = ANY_BITS if ENGINES[engine].rounds else (0,)
    allowed = Allowed(CUT_BY[name], engine=engine, bits=bits)

    def of_share(share: float) -> Plan:
        return propose(found, {name: share}, allowed)

    with pytest.raises(OutOfReachError) as raised:
        of_share(0.0001)
    [(resource, share)] = raised.value.least.items()
    assert resource == name
    assert f"{name}={share:g}" in str(raised.value)
    assert of_share(share).costs[name] > 0
    with refusing(f"{name}={share:g}"):
        of_share(share - 0.001)


@pytest.mark.parametrize("name", ["parameters", "heads"])
def test_the_least_of_a_language_model_has_a_head(name: str, tmp_path: Path) -> None:
    """A model without any head cannot be built."""
    path = toy_checkpoints.write(tmp_path / "lm.pt", "transformer_lm")
    evidence = Evidence.of(open_model(path, toy_checkpoints.blocks(tmp_path / "lm")), "valid", 9)
    allowed = Allowed(CUT_BY[name])
    with pytest.raises(OutOfReachError) as raised:
        propose(evidence, {name: 0.01}, allowed)
    model, _ = apply.apply_cuts(evidence, propose(evidence, raised.value.least, allowed))
    assert sum(model.heads["decoder"]) == 1


def test_the_least_is_of_the_parts_that_may_be_cut(found: Evidence) -> None:
    """A target that asks for nothing allows more cuts, and so a smaller least."""
    with pytest.raises(OutOfReachError, match="with only units and heads cut") as some:
        propose(found, {"parameters": 0.01}, Allowed(CUT_BY["parameters"]))
    with pytest.raises(OutOfReachError) as every:
        propose(found, {"parameters": 0.01, "cache": 1.0})
    assert "with only" not in str(every.value)
    assert every.value.least["parameters"] < some.value.least["parameters"]


def test_heads_of_two_sizes_are_not_rounded_alone(tmp_path: Path) -> None:
    """Stock fairseq may have them, and options of a model with a rounded cache describe one."""
    model = opened(tmp_path, decoder_attention_heads=2)
    with refusing("unchanged", "different sizes of queries"):
        shrink(model, cache=0.5, kinds=["unchanged"], sentences=9)
    assert "unchanged" in prices(model, sentences=9).impossible


def test_a_price_in_the_table_is_the_one_of_the_model(
    found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads that go change the price of a cache."""
    monkeypatch.setattr(front, "FRONT", ({"cache": 0.25, "parameters": 0.7},))
    [one] = front.front(found, ["collab"])
    assert one.plan is not None
    _, plan = apply.apply_cuts(found, propose(found, one.shares, Allowed(kinds=("collab",))))
    assert one.plan.price == plan.price


def test_the_least_of_each_target_is_one_of_each(model: Trained, found: Evidence) -> None:
    shares = {"cache": 0.0001, "parameters": 0.0001}
    with refusing("of each") as raised:
        propose(found, shares)
    assert str(raised.value).count("no smaller model reaches") == 1
    with refusing("'layers'", "parameters"):
        propose(found, {"cache": 0.5, "layers": 0.5})


@pytest.mark.parametrize("kinds", [["collab"], ["grouped-query", "unchanged"]])
def test_a_figure_has_the_kinds_that_were_asked_for(
    kinds: list[str], model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FRONT", ({"cache": 0.53125},))
    assert [*front.series(found, kinds)["cache"]] == kinds
    assert {*front.series(found)["cache"]} == {*front.SERIES["cache"]}
    [one] = front.front(found, kinds)
    assert one.plan is not None
    assert one.plan.kind in kinds


def test_a_curve_that_is_not_possible_is_said(
    found: Evidence, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(front, "FRONT", ({"cache": 0.53125},))
    monkeypatch.setattr(GroupedQuery, "refuses", lambda self, trained: ["heads of many sizes"])
    assert [*front.series(found, ["unchanged", "grouped-query"])["cache"]] == ["unchanged"]
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "heads of many" in line)
    assert "grouped-query" in line


def test_a_curve_is_of_what_its_name_says(found: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "FRONT", ({"parameters": 0.9}, {"cache": 0.53125}))
    drawn = front.series(found)
    for resource, share, name, allowed in (
        ("parameters", 0.9, "heads and units", Allowed(("heads", "units"))),
        ("parameters", 0.9, "only heads removed", Allowed(("heads",))),
        ("parameters", 0.9, "only units removed", Allowed(("units",))),
        ("cache", 0.53125, "latent, widths and bits", Allowed(("cache",), ("latent",))),
        ("cache", 0.53125, "grouped query", Allowed(("cache",), ("grouped-query",), (0,))),
        ("cache", 0.53125, "standard heads, only bits", Allowed(("cache",), ("unchanged",))),
    ):
        expected = front.priced(found, {resource: share}, allowed).price
        assert drawn[resource][name] == {share: [pytest.approx(expected)]}, name


def test_a_front_has_plans_and_reasons(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "FRONT", ({"parameters": 0.8}, {"parameters": 0.0}))
    some, none = front.front(found)
    cheapest_plan = propose(found, {"parameters": 0.8}, Allowed(("heads", "units")))
    assert some.plan is not None
    assert (some.plan.price, some.lost) == (cheapest_plan.price, None)
    assert none.plan is None
    assert none.reason
    valid = samples(model, "valid", 9)
    measured = next(front.front(found, valid=valid))
    made = cheapest_model(found, {"parameters": 0.8}, Allowed(("heads", "units")))
    lost = validation_loss(made.model, valid) - validation_loss(model, valid)
    assert measured.lost == pytest.approx(lost)


# ---- dead ends -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("to", ["latent", "grouped-query", "collab"])
def test_a_layer_without_heads_is_left_alone(to: str, tmp_path: Path) -> None:
    """Whether its size and bits are those of all, or are listed."""
    counts = {"heads_in_encoder": "0,4", "heads_in_decoder": "4,0", "head_size": 4}
    model = opened(tmp_path, "transformer_headsize_n", **counts)
    size = {"latent": 8, "grouped-query": 2, "collab": 8}[to]
    listed = dict.fromkeys(("encoder", "decoder", "cross"), f"{size},{size}")
    for how in ({"size": size}, {"by_type": listed}):
        result = convert(model, to, **how, cache_bits=8, sentences=9)
        assert result.model.heads == model.heads
        assert len(result.plan.sizes) == len(
            [a for a in attentions(model.model) if a.module.num_heads]
        )
        assert len(result.plan.bits) == 3
    with refusing("encoder 0"):
        convert(model, "separate", 8, sentences=9)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["transformer_gated_heads", "transformer_grouped_heads"])
def test_prices_of_gates_and_groups_serve_every_command(arch: str, tmp_path: Path) -> None:
    path = toy_checkpoints.write(tmp_path / "c.pt", arch)
    read = [str(path), str(COPY), "--cpu", "--sentences=9"]
    assert main(["prices", *read, "--out", str(tmp_path / "p")]) == 0
    used = [*read, f"--prices={tmp_path / 'p'}"]
    assert main(["shrink", *used, "--heads=0.5", "--out", str(tmp_path / "s.pt")]) == 0
    assert main(["prune", *used, "--remove=3", "--out", str(tmp_path / "r.pt")]) == 0


@pytest.mark.slow
def test_nothing_to_time_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shared keys have no grouped query, and CTranslate2 rounds no cache."""
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_collab", key_dim=6)
    words = ["shrink", str(path), str(COPY), "--cache=0.5", "--time=0.9", "--only=cache"]
    words += [
        "--for=ct2",
        "--time-in=ct2-int8",
        "--length=3",
        f"--out={tmp_path / 'o.pt'}",
        "--cpu",
    ]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "grouped-query heads" in said
    assert "Traceback" not in said


def test_a_calibration_of_other_cuts_is_one_line(model: Trained) -> None:
    only_cache = Evidence.of(model, sentences=9, parts=("cache",))
    with refusing("encoder 0 feed-forward"):
        shrink(model, parameters=0.7, evidence=only_cache)
    only_units = Evidence.of(model, sentences=9, parts=("units",))
    with refusing("cache"):
        shrink(model, cache=0.5, evidence=only_units)


def test_advice_for_groups_can_be_followed(tmp_path: Path) -> None:
    model = opened(tmp_path, "transformer_grouped_query", key_value_heads=2)
    with refusing("together"):
        prune(model, 1, sentences=9)
    assert shrink(model, heads=23 / 24, sentences=9).shares["heads"] < 1


def test_options_come_back_after_an_error() -> None:
    chosen = Namespace(checkpoint_activations=True)
    with pytest.raises(KeyError), without_checkpointing(chosen):
        raise KeyError
    assert chosen.checkpoint_activations


# ---- what is said --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_is_shrunk_twice_has_shares_of_the_first(
    model: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of two bases, and nowhere of the original."""
    files = [model.path, tmp_path / "1.pt", tmp_path / "2.pt"]
    for before, after in pairwise(files):
        words = [str(before), str(COPY), "--parameters=0.8", "--cpu", "--sentences=9"]
        assert main(["shrink", *words, f"--out={after}"]) == 0
    said = capsys.readouterr().out
    last = open_model(files[2], COPY)
    share = model_costs(last).parameters / model_costs(model).parameters
    assert share < 0.65
    assert f"{share:.1%} of the layers' parameters" in str(last.shrunk)
    assert str(last.shrunk) in said
    assert f"of {model_costs(model).heads} heads" in str(last.shrunk)


def test_more_than_was_asked_for_is_said() -> None:
    plan = Plan("unchanged", {}, prices={"cache": 0.0})
    left = {"cache": 0.375, "parameters": 1.048, "heads": 1.0}
    lines = summary(plan, 0.0, left, {"cache": 0.5})
    assert [line for line in lines if "50.0%" in line and "cache" in line]
    assert [line for line in lines if "--parameters 1" in line]
    assert len(summary(plan, 0.0, {"cache": 0.498, "heads": 1.0}, {"cache": 0.5})) == 2


# ---- memory and time -----------------------------------------------------------------------------


def test_too_little_memory_is_an_error_before_the_work(
    model: Trained, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(statistics, "free_memory", lambda device: 1e5)
    monkeypatch.setattr(statistics, "sampled_loss", lambda *_: pytest.fail("the work has begun"))
    with refusing("GB"):
        prices(model, sentences=9)
    monkeypatch.undo()
    Evidence.of(model, sentences=9)
    assert "GB" not in capfd.readouterr().err
    monkeypatch.setattr(statistics, "MUCH", 1e5)
    Evidence.of(model, sentences=9)
    assert "GB of memory" in capfd.readouterr().err


def test_kinds_of_heads_share_their_statistics(
    model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies with a ridge, several times the statistics, are made once."""
    found = prices(model, sentences=9)
    ridged, made = Statistics.ridged, list[Statistics]()

    def noted(statistics: Statistics) -> Statistics:
        made.append(statistics)
        return ridged(statistics)

    monkeypatch.setattr(Statistics, "ridged", noted)
    for attention in found.statistics:
        assert len(found.sizes(attention, 8)) == 4
    assert len(made) == len(found.statistics)


def test_the_search_for_a_plan_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the best so far, and a line; without one, an error that is not of targets."""
    curves = {name: [Point(1, 8, 8, 0.5, 0), Point(2, 16, 16, 0.25, 0)] for name in "ab"}
    assert cheapest(curves, {"cache": 24}, seconds=10)
    assert not capfd.readouterr().err

    def out_of_time(*args: Any, options: dict[str, Any], **more: Any) -> Any:
        assert options["time_limit"] == 3
        solution = milp(*args, options={**options, "time_limit": 60}, **more)
        solution.status, solution.mip_gap = knapsack.OUT_OF_TIME, 0.25
        return solution

    monkeypatch.setattr(knapsack, "milp", out_of_time)
    assert cheapest(curves, {"cache": 24}, seconds=3)
    assert "25.0%" in capfd.readouterr().err
    with refusing("3 seconds"):
        cheapest(curves, {"cache": 1}, seconds=3)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, found: shrink(model, lose=0.1, evidence=found),
        lambda model, found: prune(model, 2, sentences=9),
        lambda model, found: [*front.front(found)],
        lambda model, found: front.series(found),
    ],
)
def test_out_of_time_is_not_out_of_reach(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch, ask: Any
) -> None:
    """A search that has found nothing yet does not say that there is nothing."""

    def out_of_time(*args: Any, **more: Any) -> Any:
        raise knapsack.OutOfTimeError("the search found no plan within 60 seconds")

    monkeypatch.setattr(planner, "cheapest", out_of_time)
    with pytest.raises(knapsack.OutOfTimeError):
        ask(model, found)


def test_an_engine_with_equal_numbers_of_heads_is_one_search(
    model: Trained, found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each number of the encoder with each of the decoder."""
    calls = list[Any]()

    def noted(*given: Any, **more: Any) -> Any:
        calls.append(given)
        return cheapest(*given, **more)

    monkeypatch.setattr(planner, "cheapest", noted)
    result = propose(found, {"heads": 0.5}, Allowed(("heads",), engine="ct2"))
    assert len(calls) == 1
    assert len({*map(len, result.retained["encoder"])}) == 1


def test_projections_that_are_one_weight_are_refused(tmp_path: Path) -> None:
    """A new model would have them twice."""
    trained = open_model(toy_checkpoints.write(tmp_path / "c.pt"), COPY)
    attention = trained.model.decoder.layers[0].self_attn
    attention.v_proj.weight = attention.k_proj.weight
    assert any("decoder.layers.0.self_attn" in reason for reason in model_problems(trained))
