"""Collaborative heads in other libraries' models: at full dimension they compute the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy
from refusals import refusing
from torch import Tensor, nn
from toy import close
from transformers import (
    BertConfig,
    BertLMHeadModel,
    BertModel,
    DeiTConfig,
    DeiTModel,
    DistilBertConfig,
    DistilBertModel,
    MarianConfig,
    MarianMTModel,
)
from transformers.modeling_utils import AttentionInterface

from collab_common.errors import UserError
from collab_lab.hugging_face import adapters, statistics, swap, swap_attention

pytestmark = pytest.mark.usefixtures("float64")

TOLERANCE = 1e-10
D, H = 12, 3
TEXT = {
    "vocab_size": 30,
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "attn_implementation": "eager",
}
IMAGE = {**TEXT, "image_size": 8, "patch_size": 4, "num_channels": 1}
DECODER = BertConfig(**TEXT, is_decoder=True)
MODELS: dict[str, Any] = {
    "bert": lambda: BertModel(BertConfig(**TEXT)),
    "bert, sdpa": lambda: BertModel(BertConfig(**TEXT | {"attn_implementation": "sdpa"})),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(
            vocab_size=30,
            dim=D,
            n_layers=2,
            n_heads=H,
            hidden_dim=20,
            max_position_embeddings=16,
            attn_implementation="eager",
        )
    ),
    "deit": lambda: DeiTModel(DeiTConfig(**IMAGE)),
}


def randomised(model: nn.Module) -> Any:
    return toy.randomised(model, std=0.3).double().eval()


def inputs(name: str) -> dict[str, Tensor]:
    if name == "deit":
        return {"pixel_values": torch.randn(2, 1, 8, 8)}
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return {"input_ids": torch.randint(5, 30, (2, 5)), "attention_mask": mask}


@pytest.mark.parametrize("name", MODELS)
def test_full_dimension_is_exact(name: str) -> None:
    model, batch = randomised(MODELS[name]()), inputs(name)
    # Its softmax is in single precision, whatever the model's.
    tolerance = 1e-6 if name == "deit" else TOLERANCE
    expected = model(**batch, output_attentions="sdpa" not in name)
    swapped = swap_attention(model, key_dim=D)
    assert len(swapped) == 2
    found = model(**batch, output_attentions=True)
    for output in ("last_hidden_state", "pooler_output"):
        if expected.get(output) is not None:
            torch.testing.assert_close(found[output], expected[output], rtol=0, atol=tolerance)
    assert len(found.attentions) == 2
    for weights, wanted in zip(found.attentions, expected.attentions or (), strict=False):
        torch.testing.assert_close(weights, wanted, rtol=0, atol=tolerance)
    found.last_hidden_state.square().sum().backward()
    assert all(w.grad is not None for m in swapped for w in model.get_submodule(m).parameters())


def marian() -> Any:
    return randomised(
        MarianMTModel(
            MarianConfig(
                vocab_size=30, d_model=D, encoder_layers=2, decoder_layers=2, pad_token_id=1,
                encoder_attention_heads=H, decoder_attention_heads=H, encoder_ffn_dim=20,
                decoder_ffn_dim=20, max_position_embeddings=16, decoder_start_token_id=2,
                eos_token_id=2, forced_eos_token_id=2, attn_implementation="eager",
            )
        )
    )  # fmt: skip


@pytest.mark.parametrize("key_dim", [D, 7])
def test_marian_translates_step_by_step_as_at_once(key_dim: int) -> None:
    """With beams: the cache of transformers holds one key for all heads."""
    model, batch = marian(), inputs("marian")
    batch["decoder_input_ids"] = torch.randint(5, 30, (2, 4))
    before = model(**batch, output_attentions=True)
    search = {"num_beams": 3, "max_new_tokens": 6, "do_sample": False}
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    hypotheses = model.generate(**source, **search)
    assert len(swap_attention(model, key_dim)) == 6
    after = model(**batch, output_attentions=True)
    if key_dim == D:
        close(after.logits, before.logits)
        for kind in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
            close(after[kind], before[kind])
        assert torch.equal(model.generate(**source, **search), hypotheses)
    cached = model.generate(**source, **search)
    assert torch.equal(cached, model.generate(**source, **search, use_cache=False))
    with pytest.raises(ValueError, match="static cache"):
        model.generate(**source, **search, cache_implementation="static")
    cache = model(**batch, use_cache=True).past_key_values
    assert cache.self_attention_cache.layers[0].keys.shape == (2, 1, 4, key_dim)
    assert cache.cross_attention_cache.layers[0].keys.shape == (2, 1, 5, key_dim)


# ---- choices and refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bert", torch.float16), ("bert", torch.bfloat16), ("deit", torch.bfloat16)],
)
def test_half_precision_is_priced_in_single(name: str, dtype: torch.dtype) -> None:
    model, batch = randomised(MODELS[name]()).to(dtype), inputs(name)
    batch |= {k: x.to(dtype) for k, x in batch.items() if x.is_floating_point()}
    swap_attention(model, 5, inputs=[batch] * 2)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert all(torch.isfinite(weight).all() for weight in model.state_dict().values())


def not_a_number() -> nn.Module:
    model = MODELS["bert"]()
    model.encoder.layer[1].attention.self.key.bias.data[0] = float("nan")
    return model


def pruned() -> nn.Module:
    model = MODELS["bert"]()
    heads = model.encoder.layer[0].attention.self
    heads.query, heads.key, heads.value = (nn.Linear(D, 8) for _ in range(3))
    heads.num_attention_heads = 2
    return model


@pytest.mark.parametrize(
    ("make", "key_dim", "place"),
    [
        (lambda: nn.TransformerEncoderLayer(D, H), 5, "TransformerEncoderLayer"),
        (MODELS["bert"], 0, "layer.0.attention.self"),
        (MODELS["bert"], 13, "layer.0.attention.self"),
        (not_a_number, 5, "layer.1.attention.self"),
        (pruned, 5, "2 heads"),
        # There is nothing to put other heads into.
        (lambda: MODELS["bert"]().encoder.layer[0].attention.self, 5, "BertSelfAttention"),
    ],
)
def test_models_that_are_rejected_stay_as_they_are(make: Any, key_dim: int, place: str) -> None:
    model = make()
    before = {name: type(module) for name, module in model.named_modules()}
    with refusing(place):
        swap_attention(model, key_dim)
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_other_implementations_are_refused() -> None:
    model = randomised(MODELS["bert"]())
    swap_attention(model, 5)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="sdpa"):
        model(torch.arange(5)[None])


def _capped(model: Any) -> None:
    """With another attention function, which the weights do not show."""

    def capped(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **options: Any) -> Any:
        scores = torch.tanh(q @ k.mT * module.scaling) + (0 if mask is None else mask)
        return (scores.softmax(-1) @ v).transpose(1, 2), None

    AttentionInterface.register("capped", capped)
    model.set_attn_implementation("capped")


def _hooked_query(model: Any) -> None:
    query = model.encoder.layer[0].attention.self.query
    query.register_forward_hook(lambda module, args, output: 2 * output)


def _hooked_before(model: Any) -> None:
    attention = model.encoder.layer[0].attention.self
    attention.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))


class Doubled(nn.Linear):
    """A projection that computes something else than its weights say."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _projected(model: Any) -> None:
    model.encoder.layer[0].attention.self.key.__class__ = Doubled


@pytest.mark.parametrize("change", [_capped, _hooked_query, _hooked_before, _projected])
def test_attentions_that_compute_something_else_are_refused(change: Any) -> None:
    """At full width the result would not be exact."""
    model = randomised(MODELS["bert"]())
    change(model)
    with refusing("layer.0.attention.self"):
        swap_attention(model, D)


def _one_module(model: Any) -> None:
    first, second = model.encoder.layer[:2]
    second.attention.self = first.attention.self


def _one_weight(model: Any) -> None:
    first, second = model.encoder.layer[:2]
    second.attention.self.key.weight = first.attention.self.key.weight


def _queries_are_keys(model: Any) -> None:
    attention = model.encoder.layer[0].attention.self
    attention.query = attention.key


@pytest.mark.parametrize("change", [_one_module, _one_weight, _queries_are_keys])
def test_what_is_in_two_places_is_not_replaced_in_one(change: Any) -> None:
    model = randomised(MODELS["bert"]())
    change(model)
    before = [*model.named_parameters(remove_duplicate=False)]
    with refusing("attention.self", "copy.deepcopy"):
        swap_attention(model, D)
    after = [*model.named_parameters(remove_duplicate=False)]
    assert all(a[1] is b[1] for a, b in zip(before, after, strict=True))


def test_layers_that_are_one_module_stay_one() -> None:
    model = randomised(MODELS["bert"]())
    model.encoder.layer[1] = model.encoder.layer[0]
    expected = model(**(batch := inputs("bert"))).last_hidden_state
    assert len(swap_attention(model, D)) == 1
    real = batch["attention_mask"].bool()
    close(model(**batch).last_hidden_state[real], expected[real])


def test_separate_keys_that_do_not_deal_out() -> None:
    with pytest.raises(UserError, match="3 heads"):
        swap_attention(MODELS["bert"](), 7, query="separate")


@pytest.mark.parametrize("query", ["separate", "diagonal", "full", "own"])
def test_every_query_is_exact_at_full_width_and_better_with_inputs(query: str) -> None:
    """Below it, errors are weighted by their effect on the output, padding left out."""
    torch.manual_seed(3)
    batch, lost = inputs("bert"), {}
    for key_dim, given in ((D, None), (6, None), (6, [batch] * 2)):
        torch.manual_seed(3)
        model = randomised(MODELS["bert"]())
        expected = model(**batch).last_hidden_state
        widths = swap_attention(model, key_dim, query=query, inputs=given)
        real = batch["attention_mask"].bool()
        lost[key_dim, given is None] = (model(**batch).last_hidden_state - expected)[real].norm()
    assert lost[D, True] < 1e-8
    assert lost[6, False] < lost[6, True]
    # The widths build it again.
    swap_attention(again := MODELS["bert"](), widths, query=query)
    again.double().load_state_dict(model.state_dict())


# ---- prices -------------------------------------------------------------------------------------


def trained(model: nn.Module) -> dict[str, Any]:
    known = {name: adapters.attention_parts(module) for name, module in model.named_modules()}
    return {name: swap.trained_heads(name, **one[-1]) for name, one in known.items() if one}


class Compared(nn.Module):
    """How near two sentences are, as in the training of sentence embeddings."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        of_one, of_other = (self.model(x).last_hidden_state.mean(1) for x in (one, other))
        return (of_one * of_other).sum()


def test_all_calls_of_an_attention_count() -> None:
    model = Compared(randomised(MODELS["bert"]()))
    one, other = torch.randint(5, 30, (2, 1, 6))
    pairs = {"one": one, "other": other}, {"one": other, "other": one}
    found, expected = (statistics.collect(model, trained(model), [pair]) for pair in pairs)
    for name, of_it in found.items():
        torch.testing.assert_close(of_it.query_moment, expected[name].query_moment)
        torch.testing.assert_close(of_it.key_fisher, expected[name].key_fisher)


@pytest.mark.parametrize("name", [*MODELS, "marian", "decoder"])
def test_statistics_are_naive_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the gradients that autograd gives for the scores of heads swapped in exactly."""
    makers = {**MODELS, "marian": marian, "decoder": lambda: BertLMHeadModel(DECODER)}
    model, batch = randomised(makers[name]()), inputs(name)
    if name == "marian":
        batch["decoder_input_ids"] = torch.randint(5, 30, (2, 4))
    model.requires_grad_(False)  # a frozen model has prices, too
    found = statistics.collect(model, trained(model), [batch] * 2)

    model.requires_grad_(True)
    calls, scores = {}, list[Tensor]()
    for path in swap_attention(model, D):
        model.get_submodule(path).register_forward_pre_hook(
            lambda module, args, kwargs, path=path: calls.update({path: (args, kwargs)}),
            with_kwargs=True,
        )

    def recorded(q: Tensor, k: Tensor) -> Tensor:
        scores.append(q @ k.mT)
        return scores[-1]

    monkeypatch.setattr(adapters, "head_scores", recorded)
    output, chance = model(**batch), torch.Generator().manual_seed(statistics.SEED)
    losses = [statistics.random_product(output, batch, chance) for _ in range(2)]
    assert list(found) == list(calls) == [*trained(randomised(makers[name]()))]
    for (path, (args, kwargs)), score in zip(calls.items(), scores, strict=True):
        x = args[0] if args else kwargs["hidden_states"]
        y = kwargs.get("key_value_states")
        y = x if y is None else y
        real = torch.ones(x.shape[:2]) if "decoder." in path else batch.get("attention_mask")
        of_real = x if real is None else x[real.bool()]
        queries = nn.functional.pad(of_real.flatten(0, -2), (0, 1), value=1.0)
        keys = torch.zeros(H, D, D)
        for loss in losses:
            (g,) = torch.autograd.grad(loss, score, retain_graph=True)  # (B, H, T, S)
            gamma = g @ y[:, None]  # of each head and query
            keys += torch.einsum("bhti,bhtj->hij", gamma, gamma)
        moment = queries.T @ queries / len(queries)
        # DeiT's softmax is in single precision.
        near: Any = {"rtol": 0, "atol": 1e-5 if name == "deit" else TOLERANCE}
        torch.testing.assert_close(found[path].query_moment, moment, **near)
        torch.testing.assert_close(found[path].key_fisher / keys.norm(), keys / keys.norm(), **near)


def test_a_module_around_the_model_says_what_counts() -> None:
    class Loss(nn.Module):
        def __init__(self, model: nn.Module):
            super().__init__()
            self.model = model

        def forward(self, **batch: Tensor) -> Tensor:
            return (self.model(**batch).last_hidden_state[:, 0] @ torch.arange(D) ** 2.0).sum()

    batches, changes = [inputs("bert") for _ in range(8)], []
    for weighted in (False, True):
        torch.manual_seed(3)
        loss = Loss(randomised(MODELS["bert, sdpa"]()))
        before = [loss(**batch) for batch in batches]
        swap_attention(loss if weighted else loss.model, 4, inputs=batches)
        after = [loss(**batch) for batch in batches]
        changes.append(sum((a - b) ** 2 for a, b in zip(after, before, strict=True)))
    assert changes[1] < changes[0]


def test_hooks_keep_their_arguments() -> None:
    """Of a hook that takes keywords, and of one that is always called."""
    model, batch, called = randomised(MODELS["bert, sdpa"]()), inputs("bert, sdpa"), list[str]()
    module = model.encoder.layer[0].attention.self
    module.register_forward_hook(lambda m, a, kwargs, out: called.append("with"), with_kwargs=True)
    module.register_forward_hook(lambda m, a, out: called.append("always"), always_call=True)
    swap_attention(model, 6, inputs=[batch])
    called.clear()
    model(**batch)
    assert called == ["with", "always"]


def test_inputs_without_an_effect_leave_the_model() -> None:
    model = MODELS["bert, sdpa"]().train()
    with refusing("`inputs`"):
        swap_attention(model, 6, inputs=[])
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert len(trained(model)) == 2


@pytest.mark.parametrize("place", ["", ".query", ".dropout"])
def test_a_weight_that_would_be_lost_is_refused(place: str) -> None:
    """Such as that of an adapter for fine-tuning."""
    model = MODELS["bert"]()
    part = model.get_submodule(f"encoder.layer.1.attention.self{place}")
    part.register_parameter("lora", torch.nn.Parameter(torch.ones(2)))
    with refusing("lora"):
        swap_attention(model, D)
