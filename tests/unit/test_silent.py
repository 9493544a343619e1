"""What would give a wrong model or number silently: orders of calls, other models, options."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
from fairseq.data import Dictionary
from fairseq.models import MODEL_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerEncoderBase, TransformerModel
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayer
from parity.test_prune_parity import trained as in_memory
from refusals import refusing
from torch import Tensor, nn
from torch.nn import functional
from toy_heads import sample
from toy_reparametrize import Conversions

from collab_common.errors import UserError
from collab_lab import convert, open_model, prices, prune, shrink, validation_loss
from collab_lab.cli.options import import_models, loss_warnings, names_of
from collab_lab.export import onnx
from collab_lab.export.plain import plain, write_plain
from collab_lab.mathematics.head_prices import head_prices
from collab_lab.metrics import loss
from collab_lab.metrics.loss import mean_bits, say_if_guessing, say_if_guessing_valid
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.shared_key import SharedKey
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.gates import without_gates
from collab_lab.statistics.moments import _equal_weights, collect
from collab_lab.trained.attentions import attentions, linear_maps
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples
from fairseq_collab.attention.gates import gated_attentions, rounded
from fairseq_collab.attention.separate import SeparateAttention
from fairseq_collab.models.checks import check_steps
from fairseq_collab.models.families import TRANSLATION
from fairseq_collab.models.layers import build_attention
from fairseq_collab.models.options import Site
from fairseq_compat import checkpoints

USES: dict[str, Callable[[Trained, Any], float | None]] = {
    "convert": lambda model, found: convert(model, size=8, statistics=found).price,
    "prune": lambda model, found: prune(model, 3, statistics=found).price,
}


def model_of(path: Path, arch: str = "transformer", **options: Any) -> Trained:
    return open_model(toy_checkpoints.write(path, arch, **options), toy_checkpoints.COPY)


# ---- statistics ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_statistics_of_the_same_file_opened_again(tmp_path: Path) -> None:
    model = model_of(tmp_path / "c.pt")
    again, halves = (open_model(tmp_path / "c.pt", toy_checkpoints.COPY) for _ in range(2))
    found, of_again = prices(model, sentences=9), prices(again, sentences=9)
    halves.model.bfloat16()
    for use in USES.values():
        expected = use(model, found.statistics)
        assert use(again, found.statistics) == pytest.approx(expected, rel=1e-4) != 0
        assert use(again, of_again.statistics) == pytest.approx(expected)
        assert use(halves, found.statistics) == pytest.approx(expected, rel=0.2)
    for attention in attentions(again.model):  # so do all that attentions are keys of
        assert found.heads(attention)
        assert found.sizes(attention)


@pytest.mark.slow
def test_statistics_of_another_model(tmp_path: Path) -> None:
    model = model_of(tmp_path / "c.pt")
    found = prices(model, sentences=9).statistics
    one = next(iter(found))
    other_weights = open_model(tmp_path / "c.pt", toy_checkpoints.COPY)
    toy.randomised(other_weights.model)
    shallow = prices(model_of(tmp_path / "s.pt", decoder_layers=1), sentences=9).statistics
    other_heads = prices(model_of(tmp_path / "h.pt", decoder_attention_heads=2), sentences=9)
    wide = model_of(tmp_path / "w.pt", encoder_embed_dim=8)
    for foreign in (
        {},
        {a: statistics for a, statistics in found.items() if a != one},
        shallow,
        other_heads.statistics,
        prices(other_weights, sentences=9).statistics,
        prices(wide, sentences=9).statistics,
    ):
        for use in USES.values():
            with pytest.raises(UserError):
                use(model, foreign)


def test_weights_of_an_earlier_checkpoint_are_others() -> None:
    """Those in bfloat16 are the same ones."""
    trained = nn.Linear(9, 9)
    other = copy.deepcopy(trained)
    other.weight.data *= 1.01
    assert _equal_weights(trained, copy.deepcopy(trained).bfloat16())
    assert not _equal_weights(trained, other)


def test_evidence_of_another_model(tmp_path: Path) -> None:
    """The result would be a smaller one of the model that the evidence is of."""
    model = model_of(tmp_path / "c.pt")
    evidence = Evidence.of(model, sentences=9, parts=("heads",))
    again = open_model(tmp_path / "c.pt", toy_checkpoints.COPY)
    found, expected = (shrink(one, heads=0.5, evidence=evidence) for one in (again, model))
    assert found.model.heads == expected.model.heads
    other = open_model(tmp_path / "c.pt", toy_checkpoints.COPY)
    toy.randomised(other.model)
    with refusing("evidence", "another model"):
        shrink(other, heads=0.5, evidence=evidence)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"layernorm_embedding": True}])
def test_inputs_that_hardly_vary(options: dict[str, Any], tmp_path: Path) -> None:
    """As those of one sentence: single precision gives the covariances of double precision."""
    model = model_of(tmp_path / "c.pt", **options)
    exact = Trained(model.path, model.state, copy.deepcopy(model.model).double(), model.task)
    batches = samples(model, "train", 1)
    found, expected = collect(model, batches), collect(exact, batches)
    for attention, statistics in found.items():
        for name in ("value_covariance", "value_mean", "head_covariance"):
            value, right = (getattr(x, name) for x in (statistics, expected[attention]))
            near = max(1e-3 * float(right.abs().max()), 1e-9)
            torch.testing.assert_close(value, right, rtol=0, atol=near)
        assert min(head_prices(attention.module, statistics)) >= 0
    assert convert(model, "grouped-query", 2, statistics=found, sentences=1).model


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["transformer", "transformer_lm", "transformer_headsize_n"])
def test_statistics_of_half_precision(arch: str, tmp_path: Path) -> None:
    dtype = torch.float16
    if "_lm" in arch:
        whole, batches = in_memory(arch), [sample(lm=True)]
    else:
        whole = model_of(tmp_path / "c.pt", arch)
        batches = samples(whole, "train", 9)
    whole.model.to(dtype).float()
    half = Trained(whole.path, whole.state, copy.deepcopy(whole.model).to(dtype), whole.task)
    found, expected = collect(half, batches), collect(whole, batches)
    assert {x.dtype for x in half.model.state_dict().values() if x.is_floating_point()} == {dtype}
    for attention, statistics in found.items():
        for name, value in vars(statistics).items():
            assert value.dtype == torch.float64
            torch.testing.assert_close(
                value, getattr(expected[attention], name), rtol=1e-4, atol=1e-9
            )
    if "_lm" in arch:  # in memory, without the sentences that convert reads
        return
    made = convert(half, size=8, statistics=found).model.model
    assert all(torch.isfinite(x).all() for x in made.state_dict().values())


@pytest.mark.parametrize("arch", ["transformer", "transformer_collab"])
def test_any_order_of_calls(arch: str, tmp_path: Path) -> None:
    """A loss leaves nothing in a model that a gradient cannot pass; sentences grow longer."""
    model = model_of(tmp_path / "c.pt", arch)
    net_input = sample()["net_input"]
    equal = {"src_tokens": torch.full((2, 6), 5), "src_lengths": torch.tensor([6, 6])}
    equal["prev_output_tokens"] = torch.full((2, 6), 5)
    batches: Any = [{"net_input": x, "target": x["prev_output_tokens"]} for x in (net_input, equal)]
    assert validation_loss(model, batches[1:]) > 0
    assert collect(model, batches[1:])
    assert validation_loss(model) > 0
    assert prices(model, sentences=9).statistics


@pytest.mark.parametrize(
    "use",
    [
        lambda model, path: prices(model, sentences=9),
        lambda model, path: plain(model),
        lambda model, path: linear_maps(attentions(model.model)[-1].module),
    ],
    ids=["prices", "export", "maps"],
)
def test_normalised_latents_are_no_linear_maps(
    use: Callable[[Trained, Path], Any], tmp_path: Path
) -> None:
    options = {"latent_dim": 6, "latent_dim_in_encoder": "0", "latent_norm": True}
    model = model_of(tmp_path / "c.pt", "transformer_latent", **options)
    assert validation_loss(model) > 0
    with refusing():
        use(model, tmp_path / "out")


class Normalised(SeparateAttention):
    """Heads of a plug-in without weights of their own: keys have the length 5."""

    def project_key(self, y: Tensor) -> Tensor:
        return 5 * functional.normalize(super().project_key(y), dim=-1)


class Even(SeparateAttention):
    """Heads of a plug-in that attend without a softmax."""

    def _attend(self, q: Tensor, context: Any, *more: Any) -> tuple[Tensor, Tensor | None]:
        heads, weights = super()._attend(q, context, *more)
        return 1.5 * heads, weights


class Stock(MultiheadAttention):
    """fairseq's attention, changed by a plug-in."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output, weights = super().forward(*args, **kwargs)
        return 1.5 * output, weights


@pytest.mark.parametrize("kind", [Normalised, Even, Stock])
def test_heads_of_a_plug_in_that_are_derived_from_known_ones(kind: type, tmp_path: Path) -> None:
    """A smaller or an exported model would have the heads that they are derived from."""
    arch = "transformer" if kind is Stock else "transformer_headsize_n"
    model = model_of(tmp_path / "c.pt", arch)
    for attention in attentions(model.model):
        attention.module.__class__ = kind
    assert validation_loss(model) > 0
    with refusing(kind.__name__, "c.pt"):
        prices(model, sentences=9)
    with refusing(kind.__name__):
        prune(model, 1, random=1, sentences=9)
    with refusing(kind.__name__):
        plain(model)


BUILT = "transformer_built_by_a_plug_in"


@register_model(BUILT)
class Builder(TransformerModel):
    """It builds fairseq's own model, and changes what no weight and no option shows."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> TransformerModel:
        model = TransformerModel.build_model(args, task)
        for layer in (*model.encoder.layers, *model.decoder.layers):
            layer.activation_fn = lambda x: functional.relu(x).square()
        return model


@register_model_architecture(BUILT, BUILT)
def built(args: Namespace) -> None:
    """All options as they are by default."""


#: What would make another model of one that a plug-in has changed.
MAKES: dict[str, Callable[[Trained], Any]] = {
    "shrink": lambda model: shrink(model, parameters=0.8, sentences=9),
    "prune": lambda model: prune(model, 1, sentences=9),
    "convert": lambda model: convert(model, size=8, sentences=9),
    "fairseq": plain,
    "onnx": onnx.check,
}


@pytest.mark.parametrize("use", MAKES)
def test_a_known_model_that_a_plug_in_has_changed(use: str, tmp_path: Path) -> None:
    model = model_of(tmp_path / "c.pt", BUILT)
    assert type(model.model) is TransformerModel
    with refusing("Builder"):
        MAKES[use](model)


class Scaled(TransformerEncoderLayer):
    """A layer of a plug-in, without weights of its own."""

    def residual_connection(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + 1.5 * x


@pytest.mark.parametrize("use", MAKES)
def test_a_known_model_with_a_layer_of_a_plug_in(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which puts it in place of fairseq's when it is imported."""
    with monkeypatch.context() as plug_in:
        plug_in.setattr(
            TransformerEncoderBase, "build_encoder_layer", lambda self, cfg: Scaled(cfg)
        )
        model = model_of(tmp_path / "c.pt")
    assert validation_loss(model) > 0
    with refusing("Scaled"):
        MAKES[use](model)


def test_one_module_at_two_places(tmp_path: Path) -> None:
    """Both layers would have the numbers of the second one."""
    model = model_of(tmp_path / "c.pt")
    for stack in (model.model.encoder, model.model.decoder):
        stack.layers[1] = stack.layers[0]
    assert validation_loss(model) > 0
    with refusing("encoder.layers.0.self_attn", "encoder.layers.1.self_attn"):
        prices(model, sentences=9)


@pytest.mark.parametrize("part", ["encoder_attn", "k_proj", "norm"])
def test_parts_of_a_layer_that_share_weights(part: str, tmp_path: Path) -> None:
    """A smaller model would have them twice."""
    model = model_of(tmp_path / "c.pt")
    for layer in model.model.decoder.layers:
        if part == "encoder_attn":
            layer.encoder_attn = layer.self_attn
        elif part == "k_proj":
            layer.encoder_attn.k_proj = layer.self_attn.k_proj
        else:
            layer.final_layer_norm = layer.self_attn_layer_norm
    assert validation_loss(model) > 0
    for use in (
        lambda: prune(model, 3, random=1, sentences=9),
        lambda: shrink(model, parameters=0.66, sentences=9),
    ):
        with refusing("decoder.layers.0.self_attn"):
            use()


def test_folders_of_shards(tmp_path: Path) -> None:
    path, copy_ = toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY
    import_models(Namespace(checkpoint=path, data=Path(f"{copy_}:{copy_}")))
    with refusing(str(tmp_path / "none")):
        import_models(Namespace(checkpoint=path, data=Path(f"{copy_}:{tmp_path / 'none'}")))


def test_prices_of_few_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(tmp_path / "c.pt")
    for sentences, is_few in ((9, True), (100, False)):
        prices(model, sentences=sentences)
        assert ("width 16" in capsys.readouterr().err) == is_few


def test_an_export_leaves_the_model(tmp_path: Path) -> None:
    model = model_of(tmp_path / "c.pt")
    model.cfg.common.user_dir = "mine"
    write_plain(model, tmp_path)
    assert model.cfg.common.user_dir == "mine"


@pytest.mark.slow
def test_a_model_that_its_caller_trains(tmp_path: Path) -> None:
    """Dropout is off in every function, and on again after it."""
    calm, model = (model_of(tmp_path / "c.pt", dropout=0.5) for _ in range(2))
    model.model.train().encoder.eval()
    for use in (
        validation_loss,
        lambda it: validation_loss(convert(it, "latent", 8, sentences=9).model),
        lambda it: validation_loss(prune(it, 8, sentences=9).model),
        lambda it: sum(prices(it, sentences=9).heads(attentions(it.model)[0])),
    ):
        assert use(model) == use(calm)
        assert model.model.training
        assert model.model.decoder.layers[0].training
        assert not model.model.encoder.layers[0].training


@pytest.mark.slow
def test_activation_checkpointing(tmp_path: Path) -> None:
    expected, model = model_of(tmp_path / "c.pt"), model_of(
        tmp_path / "d.pt", checkpoint_activations=True
    )  # fmt: skip
    for make in (
        lambda it: convert(it, "latent", 8, sentences=9).model,
        lambda it: prune(it, 8, sentences=9).model,
    ):
        result = make(model)
        assert validation_loss(result) == validation_loss(make(expected))
        assert result.options["checkpoint_activations"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"size": 8}, [8, 4, 4, 0]),
        ({"by_type": {"encoder": 8, "decoder": 0, "cross": 0}}, [8, 4, 4, 0]),
        ({"size": 8, "cache_bits": None}, [0, 0, 0, 0]),
        ({"size": 8, "cache_bits": 8}, [8, 8, 8, 8]),
        ({"by_type": {"encoder": 0, "decoder": 0, "cross": 0}, "cache_bits": 8}, [8, 8, 8, 8]),
    ],
)
def test_a_conversion_leaves_the_rounding(
    arguments: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    options = {"cache_bits_in_decoder": "8,4", "cache_bits_in_cross": "4,0"}
    model = model_of(tmp_path / "c.pt", "transformer_headsize_n", **options)
    found = convert(model, "collab", sentences=9, **arguments)
    found.model.save(tmp_path / "out.pt")
    again = open_model(tmp_path / "out.pt", toy_checkpoints.COPY)
    assert [a.module.cache_bits for a in attentions(again.model)[2:]] == expected
    assert [found.plan.bits.get(a, 0) for a in attentions(again.model)[2:]] == expected
    with pytest.raises(UserError):  # nothing to convert
        convert(model, "collab", by_type=dict.fromkeys(("encoder", "decoder", "cross"), 0))


def test_the_callers_gates_stay(tmp_path: Path) -> None:
    model = model_of(tmp_path / "c.pt", "transformer_gated_heads")
    for attention in gated_attentions(model.model):
        attention.theta.data[::2] = -9.0
    before = {name: weight.clone() for name, weight in model.model.state_dict().items()}
    closed = [rounded(attention.log_alpha) for attention in gated_attentions(model.model)]
    assert not all(gates.all() for gates in closed)
    without_gates(model)
    prune(model, 1, sentences=9)
    assert all(torch.equal(x, before[name]) for name, x in model.model.state_dict().items())


# ---- what a command says -------------------------------------------------------------------------


def test_losses_to_doubt() -> None:
    def said(subset: str, price: float | None, measured: float) -> int:
        return len(loss_warnings(SimpleNamespace(subset=subset), [("it", price, measured)]))  # type: ignore[arg-type]

    for price, measured in ((0.031, 0.111), (0.0, 0.011), (0.01, 0.021)):
        assert said("train", price, measured) == 1
    # A hundredth of a bit is a tenth of BLEU: less does not matter, whatever was predicted.
    for price, measured in ((0.068, 0.021), (0.0, 1e-4), (0.0, 0.009), (0.05, 0.09), (None, 1.0)):
        assert said("train", price, measured) == 0
        assert said("valid", price, measured) == 1


def test_words_in_another_order(caplog: pytest.LogCaptureFixture) -> None:
    """A trained model, and one whose target dictionary has another order."""
    folder = toy_checkpoints.STORED / "transformer_collab_1"
    words = Dictionary.load(str(folder / "dict.en.txt"))
    with refusing(str(folder), "languages"):
        open_model(folder / "checkpoint.pt", folder)
    languages = {"source_lang": "en", "target_lang": "de"}
    stock = plain(open_model(folder / "checkpoint.pt", folder, **languages))
    order = torch.arange(len(words))
    order[words.nspecial :] = order[words.nspecial :].flip(0)
    torch.manual_seed(1)
    end = torch.tensor([words.eos()])
    copied = [torch.cat([torch.randint(words.nspecial, len(words), (5,)), end]) for _ in range(40)]
    for numbers, expected in ((torch.arange(len(words)), 0), (order, 1)):
        batches = []
        for tokens in copied:
            source, target = tokens[None], numbers[tokens][None]
            net_input = {"src_tokens": source, "src_lengths": torch.tensor([6])}
            net_input["prev_output_tokens"] = target.roll(1, 1)
            batches.append({"net_input": net_input, "target": target})
        caplog.clear()
        say_if_guessing(stock, batches)
        assert caplog.text.count("no better than chance") == expected


def test_a_model_that_guesses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As untrained ones do: said by prices and export, of stock models."""
    model = model_of(tmp_path / "c.pt")
    toy.randomised(model.model, 2.0)
    model.save(tmp_path / "c.pt")
    prices(model, sentences=9)
    assert caplog.text.count("no better than chance") == 1
    say_if_guessing_valid(model)
    assert caplog.text.count("no better than chance") == 2
    monkeypatch.setattr(loss, "samples", lambda *_: [{"target": None}])
    say_if_guessing_valid(model)  # of one language
    assert caplog.text.count("no better than chance") == 2


class Counting(nn.Module):
    """It gives the next of four words, in turn, a probability of 2 to the power of -``bits``."""

    def __init__(self, bits: float):
        super().__init__()
        self.bits = bits
        self.decoder = SimpleNamespace(padding_idx=1, dictionary=SimpleNamespace(bos=lambda: 0))

    def forward(self, prev_output_tokens: Tensor, **_: object) -> tuple[Tensor, None]:
        following = functional.one_hot(4 + (prev_output_tokens - 3) % 4, 8).double()
        return following * 2**-self.bits + (1 - following) * (1 - 2**-self.bits) / 7, None

    def get_normalized_probs(self, output: Any, log_probs: bool, sample: Any) -> Tensor:
        return output[0].log()


@pytest.mark.parametrize(("bits", "expected"), [(1.5, 0), (1.9, 0), (2.1, 1)])
def test_a_model_is_compared_with_word_frequencies_in_bits(
    bits: float, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Four words that are equally frequent take two bits each."""
    target = torch.tensor([[4, 5, 6, 7]])
    batch = {"net_input": {"prev_output_tokens": target.roll(1, 1)}, "target": target}
    model = Counting(bits)
    assert mean_bits(model, [batch]) == pytest.approx(bits)
    say_if_guessing(SimpleNamespace(model=model, path="c.pt"), [batch])  # type: ignore[arg-type]
    assert caplog.text.count("no better than chance") == expected


@pytest.mark.parametrize("arch", ["transformer", "transformer_collab", "transformer_lm"])
def test_a_data_folder_with_fewer_words(arch: str, tmp_path: Path) -> None:
    path = toy_checkpoints.write(tmp_path / "c.pt", arch)
    data = tmp_path / "data"
    shutil.copytree(toy_checkpoints.COPY, data)
    for file in data.glob("dict.*"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-2]))
    with refusing("symbols", str(path)):
        open_model(path, data)


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["transformer_collab", "transformer_headsize_n"])
def test_weights_of_a_model_without_positions(arch: str) -> None:
    """fairseq takes them for those of a model with sinusoidal positions."""
    without = toy.model(arch, no_token_positional_embeddings=True)
    with refusing("encoder has no positions", "decoder has no positions"):
        toy.model(arch).load_state_dict(without.state_dict())
    again = toy.model(arch, no_token_positional_embeddings=True)
    again.load_state_dict(without.state_dict())


def test_two_cuts_of_one_class_with_one_evidence(tmp_path: Path) -> None:
    """Each has its own offers; those of an equal cut are computed once."""

    class Capped(Latent):
        name = "capped"

        def __init__(self, most: Any) -> None:
            self.most = most

        def grid(self, module: Any) -> list[int]:
            return [size for size in super().grid(module) if size <= max(self.most)]

    model = model_of(tmp_path / "c.pt")
    evidence = Evidence.of(model, sentences=9, parts=("cache",))
    site = model.attentions["cross"][0]
    first, second, third = (Capped((most,)).offers(site, evidence) for most in (4, 16, 4))
    assert [max(one.shape.size for one in of) for of in (first, second, third)] == [4, 16, 4]
    assert first is third
    assert max(one.shape.size for one in Capped([8]).offers(site, evidence)) == 8


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_attention_heads": 2, "decoder_attention_heads": 8},
        {"encoder_embed_dim": 24, "decoder_embed_dim": 16},
    ],
)
def test_heads_of_several_sizes_have_latents(options: dict[str, int], tmp_path: Path) -> None:
    """Heads that cannot be pruned can be converted."""
    model = model_of(tmp_path / "c.pt", **options)
    assert shrink(model, cache=0.5, sentences=9).plan.sizes
    with pytest.raises(UserError, match="sizes"):
        shrink(model, parameters=0.9, sentences=9)
    with pytest.raises(UserError):  # before the pass
        prune(model, 1, subset="there is none")


@pytest.mark.parametrize(
    "options",
    [{"quant_noise_pq": 0.1}, {"cross_self_attention": True}, {"quant_noise_scalar": 0.1}],
)
@pytest.mark.parametrize(
    ("function", "arguments"), [(prune, {"number": 4}), (convert, {"size": 4})]
)
def test_options_of_the_training(
    function: Any, arguments: dict[str, int], options: dict[str, Any]
) -> None:
    """Nobody can leave out an option of a model that is trained."""
    model = in_memory("transformer", separate=False, **options)
    with refusing(f"--{next(iter(options)).replace('_', '-')}"):
        function(model, **arguments)


@pytest.mark.parametrize("option", ["scale_attn", "scale_fc", "scale_resids"])
def test_blocks_that_no_refit_knows(option: str) -> None:
    with refusing(f"--{option.replace('_', '-')}"):
        in_memory("transformer_lm_headsize_n", **{option: True})


def test_a_language_model_whose_option_fairseq_ignores() -> None:
    model = in_memory("transformer_lm", scale_heads=True, max_target_positions=40)
    converter = Conversions(model, SharedKey(), collect(model, [sample(lm=True)]))
    assert converter.convert(dict.fromkeys(attentions(model.model), 16))


def test_layers_to_keep_of_a_checkpoint(tmp_path: Path) -> None:
    """fairseq loads some layers of one; the rest is not read."""
    state, path = checkpoints.read(toy_checkpoints.write(tmp_path / "c.pt")), tmp_path / "edited.pt"
    names = ("encoder_layers_to_keep", "decoder_layers_to_keep")
    vars(state["cfg"]["model"]).update(dict.fromkeys(names, "1"))
    torch.save(state, path)
    model = open_model(path, toy_checkpoints.COPY)
    exported = plain(model)
    net_input = samples(model, "valid", 4)[0]["net_input"]
    expected = model.model(**net_input)[0]
    torch.testing.assert_close(exported.model.eval()(**net_input)[0], expected)
    exported.save(tmp_path / "e.pt")
    for again in (
        open_model(tmp_path / "e.pt", toy_checkpoints.COPY),
        convert(model, size=16, sentences=9).model,
        prune(model, 0, sentences=9).model,
    ):
        assert len(again.model.encoder.layers) == 1
        torch.testing.assert_close(again.model(**net_input)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("missing", ["signature", "encoder.dictionary_signature",
                                     "encoder.layers.0.self_attn.signature"])  # fmt: skip
def test_a_checkpoint_without_a_signature(missing: str, tmp_path: Path) -> None:
    state = checkpoints.read(toy_checkpoints.write(tmp_path / "c.pt", "transformer_collab"))
    path = tmp_path / "edited.pt"
    del state["model"][missing]
    torch.save(state, path)
    with refusing(missing):
        open_model(path, toy_checkpoints.COPY)


# ---- own heads -----------------------------------------------------------------------------------

OWN = (Path(toy.__file__).parent / "examples" / "tied_heads" / "__init__.py").read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("kind = 100", f"kind = {kind}") for kind in (0, 1, 6, 50, None)),
        *((f"def {name}(", f"def no_{name}(") for name in
          ("cached_floats_per_token", "project_query")),
        ("signature_type = TiedSignature", ""),
        ("project_value = project_key", ""),
        # `from __future__ import annotations` makes the type text, which fairseq cannot read.
        ('attention, families', 'attention, TiedSignature, families'),
    ],
)  # fmt: skip
def test_own_heads_are_checked_when_they_register(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = OWN.replace(before, after).replace('"tied_heads"', f'"{before}{after}"')
    module = SimpleNamespace(__name__="own_heads")
    monkeypatch.setitem(__import__("sys").modules, "own_heads", module)
    with pytest.raises(UserError):
        exec(code, vars(module))
    assert TRANSLATION.stock


# ---- heads of a plug-in that read more than their token ------------------------------------------


class InTheMiddle(nn.Module):
    """A layer norm that computes something else."""

    def __init__(self, norm: nn.LayerNorm):
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


def turned(x: Tensor) -> Tensor:
    """Queries or keys ``(B, H, T, e)`` with rotary positions."""
    angle = torch.arange(x.size(2), dtype=x.dtype)[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() - second * angle.sin(),
                      first * angle.sin() + second * angle.cos()], dim=-1)  # fmt: skip


class Own(SeparateAttention):
    """A plug-in's heads, which keep to their tokens."""


class Rotary(Own):
    def project_query(self, x: Tensor) -> Tensor:
        return turned(super().project_query(x))

    def project_key(self, y: Tensor) -> Tensor:
        return turned(super().project_key(y))


class Relative(Own):
    """A bias for each distance, which starts at 0, as many do."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.bias = nn.Parameter(torch.zeros(9))

    def _attend(self, q: Tensor, context: Any, attn_mask: Tensor | None, weigh: bool) -> Any:
        places = torch.arange(context.keys.size(2))
        far = self.bias[(places[: q.size(2), None] - places).clamp(-4, 4) + 4]
        return super()._attend(q, context, far if attn_mask is None else attn_mask + far, weigh)


@pytest.mark.parametrize("kind", [Rotary, Relative])
def test_heads_that_would_translate_by_another_function(kind: type[Own]) -> None:
    """In a step of decoding, the places of a tensor are beams, not tokens of a sentence."""
    random = torch.get_rng_state()
    for type_ in ("decoder", "cross"):
        with refusing(kind.__name__, type_, "steps"):
            check_steps(kind(16, 4), type_)  # type: ignore[arg-type]
        check_steps(Own(16, 4), type_)  # type: ignore[arg-type]
    check_steps(kind(16, 4), "encoder")  # which has no steps
    torch.set_rng_state(random)
    attention = Own(16, 4)
    weights = copy.deepcopy(attention.state_dict())
    after = torch.get_rng_state()
    check_steps(attention, "decoder")
    assert torch.equal(torch.get_rng_state(), after)  # a training is the same with the check
    assert all(torch.equal(w, weights[name]) for name, w in attention.state_dict().items())


def test_steps_are_checked_when_a_model_is_built() -> None:
    cfg: Any = SimpleNamespace(
        attention_factory=lambda cfg, site: Rotary(16, 4), attention_dropout=0, cache_bits="0"
    )
    cfg.cache_bits_in_decoder = None
    with refusing("Rotary"):
        build_attention(cfg, Site("decoder", 0, 16, 16, 4))


def test_a_plug_in_that_changes_more_than_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and shapes of the weights stay, so another model would take them."""

    def finish(model: nn.Module, options: dict[str, Any]) -> None:
        for layer in model.encoder.layers:
            layer.final_layer_norm = InTheMiddle(layer.final_layer_norm)

    kind = MODEL_REGISTRY["transformer_headsize_n"]
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", head_size=3)
    monkeypatch.setattr(kind, "variant", dataclasses.replace(kind.variant, finish=finish))
    model = open_model(path, toy_checkpoints.COPY)
    for change in (
        lambda: prune(model, 1, refit=False, sentences=9),
        lambda: shrink(model, heads=0.9, sentences=9),
        lambda: plain(model),
    ):
        with refusing("c.pt", "`finish`"):
            change()


def test_results_name_every_folder_that_was_read() -> None:
    assert names_of(Path("a/one")) == "one"
    assert names_of(Path("a/one:two")) == "one:two"
