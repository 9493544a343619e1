"""The refit: against one pass of both models for every map, in double precision; what it saves."""

from __future__ import annotations

import copy
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_checkpoints
import toy_heads
import toy_massive
from parity.test_prune_parity import HEADSIZE, KEPT, LM, inputs, trained
from torch import Tensor

from collab_common import ATTENTION_TYPES
from collab_lab import convert, open_model, prune, validation_loss
from collab_lab.cli.main import main
from collab_lab.heads import votes
from collab_lab.metrics.loss import mean_bits
from collab_lab.refitting import rise
from collab_lab.refitting.refit import Block, refit, refit_if_better
from collab_lab.refitting.refit import _refit_block as refit_block
from collab_lab.refitting.rise import largest_activations, measured_rise
from collab_lab.shrinking.gates import open_heads
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.trained.attentions import hooked
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.identity import hash_of
from collab_lab.trained.sentences import samples

Capture = pytest.CaptureFixture[str]
PRE_NORM = {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "pre-norm": ("transformer", PRE_NORM),
    "norm of embeddings, GELU": (HEADSIZE, {"layernorm_embedding": True, "activation_fn": "gelu"}),
    "no cross-attention": ("transformer", {"no_cross_attention": True}),
    "language model": (LM, {}),
    "language model, pre-norm": (LM, {"decoder_normalize_before": True}),
}


def batches(source: Trained) -> list[dict[str, Any]]:
    """Two batches with padding."""
    whole = inputs(source)
    return [{"net_input": whole}, {"net_input": {n: x[1:] for n, x in whole.items()}}]


def without_heads(source: Trained) -> Trained:
    """The model with fewer heads; the last layer's attentions have none."""
    kept = {type_: [layers[0], []] for type_, layers in KEPT.items()}
    heads = source.heads.items()
    return pruned(source, {type_: kept[type_] if counts else [] for type_, counts in heads})


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("source", SOURCES)
def test_two_passes_are_a_pass_for_every_map(source: str) -> None:
    arch, options = SOURCES[source]
    whole = trained(arch, **options)
    changed = without_heads(whole)
    expected = changed.with_model(copy.deepcopy(changed.model))
    calls: list[Any] = []
    with hooked(whole.model, lambda one: one.module.register_forward_hook(
        lambda module, *_: calls.append(module)
    )):  # fmt: skip
        refit(changed, whole, batches(whole))
    assert len(calls) == 2 * len({*calls})  # two batches
    refit_naively(expected, whole, batches(whole))
    for (name, weight), of_expected in zip(
        changed.model.named_parameters(), expected.model.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, of_expected, rtol=1e-7, atol=1e-9, msg=name)
    moved = [not weight.equal(before) for weight, before in zip(
        changed.model.parameters(), without_heads(whole).model.parameters(), strict=True
    )]  # fmt: skip
    # Weight and bias of fc2 and of out_proj, which has no weight in the last layer.
    blocks = 8 if "no cross" in source else 4 if "language model" in source else 10
    assert sum(moved) == 2 * blocks - len([layers for layers in whole.heads.values() if layers])


def sites(model: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Of each map, in the order of data: its layer, the block, the map, and the block's norm."""
    found = []
    for side in (part for part in ("encoder", "decoder") if hasattr(model, part)):
        for layer in getattr(model, side).layers:
            found.append(
                (layer, layer.self_attn, layer.self_attn.out_proj, layer.self_attn_layer_norm)
            )
            cross = getattr(layer, "encoder_attn", None)
            if cross is not None:
                found.append((layer, cross, cross.out_proj, layer.encoder_attn_layer_norm))
            found.append((layer, layer.fc2, layer.fc2, layer.final_layer_norm))
    return found


def seen(model: Any, site: Any, batch: dict[str, Any], pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of what a map reads, of its block's output and of the residual, in a whole pass."""
    layer, block, last, norm = site
    calls: dict[str, Tensor] = {}

    def output(module: Any, args: Any, kwargs: Any, result: Any) -> None:
        calls["o"] = result[0] if isinstance(result, tuple) else result
        calls["x"] = args[0] if args else kwargs["query"]

    hooks = [
        block.register_forward_hook(output, with_kwargs=True),
        last.register_forward_pre_hook(lambda _, args: calls.update(h=args[0])),
        norm.register_forward_pre_hook(lambda _, args: calls.update(norm=args[0])),
        layer.fc1.register_forward_pre_hook(lambda _, args: calls.update(fc1=args[0])),
    ]
    model(**batch["net_input"])
    for hook in hooks:
        hook.remove()
    is_encoder = not hasattr(layer, "encoder_attn")
    net_input = batch["net_input"]
    tokens = (
        net_input["src_tokens"]
        if is_encoder
        else net_input.get("prev_output_tokens", net_input["src_tokens"])
    )
    x = calls["norm"] if layer.normalize_before else calls["fc1" if block is last else "x"]
    h, words = calls.get("h", calls["o"][..., :0]), tokens.ne(pad).T
    return h[words], calls["o"][words], x[words]


@torch.no_grad()
def refit_naively(changed: Trained, whole: Trained, batches: list[dict[str, Any]]) -> None:
    """Weighted least squares, the ridge as further rows, a pass of both models for each map."""
    pad = whole.task.source_dictionary.pad()
    for of_whole, of_changed in zip(sites(whole.model), sites(changed.model), strict=True):
        parts = [
            (seen(whole.model, of_whole, b, pad), seen(changed.model, of_changed, b, pad))
            for b in batches
        ]
        h = torch.cat([ours[0] for _, ours in parts])
        target = torch.cat([theirs[1] for theirs, _ in parts])
        target = target + torch.cat([theirs[2] - ours[2] for theirs, ours in parts])
        last, size = of_changed[2], h.size(1)
        streams = torch.cat([theirs[1] + theirs[2] for theirs, _ in parts])
        # The next norm divides by it: a third of a deviation is nine times a weight.
        roots = (streams.var(1, correction=0, keepdim=True) + 1e-5) ** -0.5
        pull = (roots * h).square().sum(1).mean().sqrt()
        pulls = torch.cat([pull.repeat(size), 1e-3**0.5 * pull[None]]).diag()
        old = torch.cat([last.weight.T, last.bias[None]])
        rows = torch.cat([roots * torch.cat([h, torch.ones(len(h), 1)], 1), pulls])
        new = torch.linalg.lstsq(rows, torch.cat([roots * target, pulls @ old])).solution
        last.weight.copy_(new[:-1].T)
        last.bias.copy_(new[-1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_keeps_it(dtype: torch.dtype) -> None:
    whole = trained("transformer")
    expected = without_heads(whole.with_model(copy.deepcopy(whole.model).float()))
    single = whole.with_model(copy.deepcopy(whole.model).float())
    refit(expected, single, batches(whole))
    half = whole.with_model(copy.deepcopy(whole.model).to(dtype))
    changed = without_heads(half)
    refit(changed, half, batches(whole))
    for weight, of_expected in zip(
        changed.model.parameters(), expected.model.parameters(), strict=True
    ):
        assert weight.dtype == dtype
        torch.testing.assert_close(weight.float(), of_expected, rtol=0.1, atol=0.1)


CHANGES = {
    "price": ("transformer", lambda model, **read: prune(model, 8, **read)),
    "gated": ("transformer_gated_heads", lambda model, **read: prune(model, 20, **read)),
    "language model": ("transformer_lm", lambda model, **read: prune(model, 4, **read)),
    "retained": ("transformer", lambda model, **read: prune(model, retained=KEPT, **read)),
    "converted": ("transformer", lambda model, **read: convert(model, "latent", 4, **read)),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_pruned_and_converted_models_are_refitted(change: str, tmp_path: Path) -> None:
    """By ``prune`` and by ``convert``: trained ones lose less, untrained ones no more."""
    arch, make = CHANGES[change]
    model = toy_massive.massive("pre")
    if arch != "transformer":
        options = {"use_plasma_view": False, "sample_break_mode": "eos"} if "_lm" in arch else {}
        for path in toy_checkpoints.COPY.iterdir():  # of two tasks
            shutil.copy(path, tmp_path / path.name)
            shutil.copy(path, tmp_path / path.name.replace(".en-de.de", ""))
        model = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch), tmp_path, **options)
    text = samples(model, "train", 50)
    fitted, plain = (make(model, sentences=50, refit=fit) for fit in (True, False))
    before = mean_bits(model.model, text)
    for changed in (fitted, plain):
        assert changed.rise == pytest.approx(mean_bits(changed.model.model, text) - before)
    assert fitted.rise < plain.rise + 1e-4 * (arch != "transformer")


# ---- words with a hundred times the activations of others ----------------------------------------


@pytest.mark.parametrize("name", toy_massive.MODELS)
def test_a_model_with_massive_activations_loses_less(name: str, capfd: Capture) -> None:
    """With equal weights of words, ``post`` loses three times as much as without a refit.

    And ``pre`` nearly twice as much as here.
    """
    model = toy_massive.massive(name)
    assert largest_activations(model, samples(model, "train", 300)) > 90
    fitted, plain = (prune(model, 8, sentences=300, refit=fit) for fit in (True, False))
    assert 0 < fitted.rise < plain.rise / 4
    validation = [validation_loss(one) for one in (model, fitted.model, plain.model)]
    assert validation[0] < validation[1] < validation[0] + (validation[2] - validation[0]) / 2
    said = capfd.readouterr().err
    assert "times the activations" in said
    assert "taken back" not in said


def test_the_unit_of_the_weights_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    model, weights = toy_massive.massive("post"), Block.weights
    rise = prune(model, 8, sentences=99).rise
    monkeypatch.setattr(Block, "weights", lambda *of: 1000 * weights(*of))
    assert prune(model, 8, sentences=99).rise == pytest.approx(rise, abs=1e-4)


# ---- never worse ---------------------------------------------------------------------------------


def test_a_block_keeps_its_map_where_the_fit_is_worse(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    model = toy_massive.massive("post")
    monkeypatch.setattr(Block, "weights", lambda _, stream: torch.ones_like(stream[:, :1]))
    fitted, plain = (prune(model, 8, sentences=300, refit=fit) for fit in (True, False))
    assert "encoder layer 0" in capfd.readouterr().err
    assert fitted.model.model.encoder.layers[0].fc2.weight.equal(
        model.model.encoder.layers[0].fc2.weight
    )
    assert fitted.rise < plain.rise


def is_refitted(
    last: torch.nn.Linear, x: Tensor, hidden: Tensor, outputs: Tensor, norm_first: bool
) -> bool:
    """Refit a block of nothing but ``last``, which starts at 0, to the outputs; of 9 words."""
    norm = torch.nn.LayerNorm(6)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    whole = Block(lambda *_: outputs, torch.nn.Linear(1, 6), norm, norm_first)
    changed = Block(lambda *_: last(hidden), last, norm, norm_first)
    target, own = (SimpleNamespace(streams=[x], calls=[{}]) for _ in range(2))
    with torch.no_grad():
        return refit_block(whole, changed, target, own, [torch.ones(1, 9, dtype=torch.bool)])


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_fit_is_accepted_by_what_the_next_block_reads(norm_first: bool) -> None:
    """Which is normalised: eight words of size 1 get nearer, one of size 10,000 farther away."""
    torch.manual_seed(4)
    x, signs = torch.randn(1, 9, 6), torch.tensor([1.0, -1.0] * 4)
    x[:, 0] *= 10_000
    hidden = torch.cat([torch.tensor([300.0]), signs]).view(1, 9, 1)
    outputs = torch.cat([torch.tensor([0.0]), signs]).view(1, 9, 1) * torch.randn(6)
    last = torch.nn.Linear(1, 6)
    before = outputs.square().sum()
    with torch.no_grad():
        assert is_refitted(last, x, hidden, outputs, norm_first)
        assert (outputs - last(hidden)).square().sum() > 9 * before


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_fit_that_loses_a_little_of_what_is_read_is_refused(
    norm_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight words lose a 10,000th of their squares; one of size 10,000 is fitted, of no account."""
    monkeypatch.setattr(Block, "weights", lambda _, stream: torch.ones_like(stream[:, :1]))
    torch.manual_seed(4)
    x, hidden = torch.randn(1, 9, 6), torch.ones(1, 9, 1)
    x[:, 0] *= 10_000
    hidden[:, 0] = 300
    outputs = torch.zeros(1, 9, 6)
    outputs[:, 0] = 3 * torch.randn(6)
    last = torch.nn.Linear(1, 6)
    assert not is_refitted(last, x, hidden, outputs, norm_first)
    assert not last.weight.any()


def test_hidden_numbers_that_are_always_zero_get_no_weights() -> None:
    """The bias alone makes up for what is missing."""
    last, x, missing = torch.nn.Linear(3, 6), torch.randn(1, 9, 6), torch.randn(6)
    assert is_refitted(last, x, torch.zeros(1, 9, 3), missing.expand(1, 9, 6), norm_first=True)
    assert not last.weight.any()
    torch.testing.assert_close(last.bias.detach(), missing)


def test_a_refit_that_raises_the_loss_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def ruin(changed: Trained, *_: object) -> None:
        for layer in changed.model.decoder.layers:
            layer.fc2.weight.data.mul_(9)

    model = toy_massive.massive("pre")
    plain = prune(model, 4, sentences=50, refit=False)
    monkeypatch.setattr("collab_lab.refitting.refit.refit", ruin)
    result = prune(model, 4, sentences=50)
    assert "taken back" in capfd.readouterr().err
    assert result.rise == plain.rise
    check_equal(result.model, plain.model)


def check_equal(one: Trained, other: Trained) -> None:
    for name, weights in one.model.state_dict().items():
        assert weights.equal(other.model.state_dict()[name]), name


# ---- without a refit; rises far above prices -----------------------------------------------------


def test_a_refit_that_changes_nothing_is_no_loss(capfd: Capture) -> None:
    """Losses of equal models differ in the last digits."""
    model = toy_massive.massive("pre")
    text = samples(model, "train", 9)
    after = refit_if_better(pruned(model, all_heads(model)), model, text)
    assert after == pytest.approx(mean_bits(model.model, text), abs=1e-4)
    assert "taken back" not in capfd.readouterr().err


#: Of one group in each of two layers, for four heads.
VOTES = [[[9, 0, 0, 0]], [[0, 9, 0, 0]]]


@pytest.mark.parametrize(
    "how",
    ["price", "random", "gates", "retained", pytest.param("converted", marks=pytest.mark.slow)],
)
def test_no_refit(how: str, tmp_path: Path) -> None:
    """Feed-forward maps stay, and so do the columns of the heads that stay."""
    arch = "transformer_gated_heads" if how == "gates" else "transformer"
    path = toy_checkpoints.write(tmp_path / "c.pt", arch)
    if how == "gates":
        model = open_model(path, toy_checkpoints.COPY)
        for attention in model.attentions["decoder"]:
            attention.module.theta.data[:] = torch.tensor([9.0, 9.0, -9.0, -9.0])
        model.save(path)
        assert open_heads(model)["decoder"] == [[0, 1], [0, 1]]
    model = open_model(path, toy_checkpoints.COPY)
    cast = {"model": hash_of(model.model), "votes": dict.fromkeys(ATTENTION_TYPES, VOTES)}
    votes.write(tmp_path / "votes.json", cast)
    chosen = {
        "price": ["--keep=2"],
        "random": ["--keep=2", "--random=1"],
        "gates": ["--gates"],
        "retained": ["--votes", tmp_path / "votes.json"],
        "converted": ["--to=latent", "--latent-dim=4"],
    }[how]
    command = "reparametrize" if how == "converted" else "prune"
    made = []
    for options in (["--no-refit"], []):
        out = tmp_path / f"{len(made)}.pt"
        words = [command, path, toy_checkpoints.COPY, *chosen, *options, "--sentences=9", "--cpu"]
        assert main([*map(str, words), "--out", str(out)]) == 0
        made.append(open_model(out, toy_checkpoints.COPY).model.decoder.layers[1].fc2)
    before = open_model(path, toy_checkpoints.COPY).model.decoder.layers[1].fc2
    assert made[0].weight.equal(before.weight)
    assert made[0].bias.equal(before.bias)


def test_a_rise_far_above_its_price_has_causes(capfd: Capture) -> None:
    model = toy_massive.massive("post")
    for sentences, types, cause in ((9, None, "are few"), (50, ["encoder"], "no head of encoder")):
        prune(model, 8, sentences=sentences, types=types, refit=False)
        said = capfd.readouterr().err
        for word in ("warning", cause, "times the activations"):
            assert word in said


def test_a_rise_without_a_price_is_compared_with_none(capfd: Capture) -> None:
    model = toy_massive.massive("post")
    assert prune(model, 8, random=1, sentences=9, refit=False).rise > 0.01
    assert "the price" not in capfd.readouterr().err


def test_a_rise_near_its_price_or_hardly_any_is_no_warning(capfd: Capture) -> None:
    """Up to three times the price, or up to 0.01 bits."""
    model = toy_massive.massive("post")
    text = samples(model, "train", 9)
    bits = mean_bits(model.model, text)
    for price, rise_, is_told in (
        (1e-6, 0.009, False),
        (1e-6, 0.011, True),
        (0.05, 0.14, False),
        (0.05, 0.16, True),
    ):
        found = measured_rise(model, model, text, price, before=bits - rise_)
        assert found == pytest.approx(rise_)
        assert ("warning" in capfd.readouterr().err) == is_told
    assert math.isnan(measured_rise(model, model, text, 9.0, before=math.nan))
    assert "warning" in capfd.readouterr().err  # no number is above no number


@pytest.mark.parametrize("sentences", [9, 20, 50])
def test_words_are_few_for_a_width(sentences: int) -> None:
    """Below ten for each number of the model's width."""
    model = toy_massive.massive("post")
    text = samples(model, "train", sentences)
    padding, width = model.task.target_dictionary.pad(), model.model.decoder.embed_dim
    tokens = sum(int(batch["target"].ne(padding).sum()) for batch in text)
    said = [cause for cause in rise.causes(model, model, text) if "are few" in cause]
    assert len(said) == (tokens < 10 * width)


def test_a_model_without_an_encoder_has_lost_no_heads_of_it() -> None:
    model = trained(LM)
    causes = rise.causes(model, model, [toy_heads.sample(lm=True)])
    assert not any("no head" in cause for cause in causes)


def test_activations_are_root_mean_squares_of_words() -> None:
    """The largest by the median one, at the norm where that is most."""
    model = toy_massive.massive("pre")
    text, padding = samples(model, "train", 20), model.task.source_dictionary.pad()
    norms: dict[Any, list[Tensor]] = {}
    sides = {"encoder": "src_tokens", "decoder": "prev_output_tokens"}
    for batch in text:
        for side, tokens in sides.items():
            words = batch["net_input"][tokens].ne(padding).T
            layers = getattr(model.model, side).layers
            every = [m for m in layers.modules() if isinstance(m, torch.nn.LayerNorm)]
            read = dict[Any, Tensor]()
            handles = [
                norm.register_forward_pre_hook(lambda m, args, read=read: read.update({m: args[0]}))
                for norm in every
            ]
            with torch.no_grad():
                model.model.eval()(**batch["net_input"])
            for handle in handles:
                handle.remove()
            for norm, x in read.items():
                norms.setdefault(norm, []).append((x**2).mean(-1)[words] ** 0.5)
    ratios = [torch.cat(of).max() / torch.cat(of).median() for of in norms.values()]
    assert largest_activations(model, text) == pytest.approx(float(max(ratios)), rel=1e-4)


def test_padding_has_no_activations() -> None:
    """Words do not see it: what a model makes of it is in no ratio."""
    model = toy_massive.massive("pre")
    text = samples(model, "train", 20)
    padding = model.task.target_dictionary.pad()
    assert any(batch["net_input"]["prev_output_tokens"].eq(padding).any() for batch in text)
    before = largest_activations(model, text)
    model.model.decoder.embed_tokens.weight.data[padding] = 1e6
    assert largest_activations(model, text) == before


def test_a_large_rise_is_named(capfd: Capture) -> None:
    """Whatever its price: nobody has to know how much a bit is."""
    model = toy_massive.massive("post")
    text = samples(model, "train", 9)
    bits = mean_bits(model.model, text)
    for price, large, is_named in ((None, 0.31, True), (None, 0.29, False), (9.0, 0.31, True)):
        measured_rise(model, model, text, price, before=bits - large)
        assert ("BLEU" in capfd.readouterr().err) == is_named


@pytest.mark.slow
def test_the_command_prints_the_measured_rise(tmp_path: Path, capsys: Capture) -> None:
    """README's, on the model that it once ruined: next to the price, and of what is written."""
    model, out = toy_massive.massive("post"), tmp_path / "small.pt"
    words = ["prune", toy_massive.FOLDER / "post.pt", toy_checkpoints.COPY, "--remove=8"]
    assert main([*map(str, words), "--same-on-each-side", f"--out={out}", "--cpu"]) == 0
    said = capsys.readouterr().out
    printed = re.search(r"^price: ([\d.]+).*\nmeasured[^:]*: \+([\d.]+)", said, re.M)
    price, found = map(float, printed.groups())
    text = samples(model, "train", 1000)
    smaller = open_model(out, toy_checkpoints.COPY).model
    assert found == pytest.approx(mean_bits(smaller, text) - mean_bits(model.model, text), abs=1e-4)
    assert found > 3 * price
