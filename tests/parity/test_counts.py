"""Parameter counts and cache sizes, against the published ones and against closed forms.

Expected counts: transformer base with joined vocabulary of 32,768 and all embeddings shared; they
round to the column "params" of Cordonnier et al. 2020 (60.9/61.0M, 56.2, 53.8, 52.6/52.7M).
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch
import toy
import toy_checkpoints
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.modules import MultiheadAttention
from toy_language_models import language_model

from collab_lab import open_model
from collab_lab.metrics.cost import cache_share, cost, multiply_adds, searched_bytes, totals
from collab_lab.shrinking.shape import layer_parameters
from fairseq_collab.attention import CollaborativeAttention, HeadAttention, cache
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.cpu_kernels.onednn import OneDnnLinear
from fairseq_collab.decoding.beam_search import ModelDecoding

WORDS = 32_768 - 4  # and fairseq's four special symbols
D, H, LAYERS = 512, 8, 6
ATTENTIONS = 3 * LAYERS
STANDARD = "transformer_headsize_n"
BODY = 44_138_496
SHARED = 32_768 * D


def published(suffix: str, arch: str = "transformer_collab", **options: object) -> int:
    name = f"{arch}{suffix}"
    defaults = MODEL_DATACLASS_REGISTRY[name]()
    sizes = {key: getattr(defaults, key) for key in toy.SIZES}  # the preset's own, not the toy's
    options = {"share_all_embeddings": True, **options}
    with torch.device("meta"):  # shapes without numbers
        return toy.num_parameters(toy.model(name, toy.task(WORDS), **sizes, **options))


@pytest.mark.parametrize(
    ("key_dim", "collaborative", "concatenated"),
    [(512, "61.0", "60.9"), (256, "56.2", "56.2"), (128, "53.8", "53.8"), (64, "52.7", "52.6")],
)
def test_base_matches_the_paper(key_dim: int, collaborative: str, concatenated: str) -> None:
    """Each attention: queries and keys of size K with biases, in place of size d, and the mixing;
    in the column "params, concat": smaller queries and keys alone."""
    saved = 2 * (D + 1) * (D - key_dim)
    found = published("_wmt_en_de", key_dim=key_dim, query_mixing="diagonal")
    assert found == BODY + SHARED - ATTENTIONS * (saved - H * key_dim)
    assert f"{found / 1e6:.1f}" == collaborative
    found = published("_wmt_en_de", "transformer_headsize_n", key_dim=key_dim)
    assert found == BODY + SHARED - ATTENTIONS * saved
    assert f"{found / 1e6:.1f}" == concatenated


@pytest.mark.parametrize(("kept", "body"), [(2, "29.96"), (4, "34.69"), (3, "32.32")])
def test_fewer_heads_of_the_same_size_match_paper_3(kept: int, body: str) -> None:
    """Heads that are gone, not masked: 30M in Ni et al. 2023, table 1, are 2 of 8 heads."""
    heads = {f"heads_in_{type_}": kept for type_ in ("encoder", "decoder", "cross")}
    found = published("_wmt_en_de", "transformer_headsize_n", head_size=64, **heads) - SHARED
    assert f"{found / 1e6:.2f}" == body


#: Size of the output vocabulary that makes 1996M of the vanilla row of Ni et al. 2023, table 1;
#: the paper does not state it, and one number cannot fit the three other rows by chance.
PAPER_3_WORDS = 42_851 - 4
TWO_HEADS = {"head_size": 64, "heads_in_encoder": 2, "heads_in_decoder": 2, "heads_in_cross": 2}

HALF_FFN = {"encoder_ffn_embed_dim": 1024, "decoder_ffn_embed_dim": 1024}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "options", "millions", "published"),
    [
        ("transformer", {}, "1995.99", 1996),
        ("transformer_headsize_n", {}, "1995.99", 1996),
        ("transformer_collab", {"key_dim": 512, "query_mixing": "diagonal"}, "2054.05", 2054),
        # The two last are cut off in the paper, where the others are rounded.
        ("transformer_headsize_n", TWO_HEADS, "1558.87", 1558),
        ("transformer_headsize_n", {**TWO_HEADS, **HALF_FFN}, "1181.38", 1181),
    ],
)
def test_multiply_adds_match_paper_3(
    arch: str, options: dict, millions: str, published: int
) -> None:
    sizes = {"embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8, "layers": 6}
    base = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
    symbols = toy.task(PAPER_3_WORDS)
    model = toy.model(arch, symbols, **{**base, "share_all_embeddings": True, **options})
    assert f"{multiply_adds(model) / 1e6:.2f}" == millions
    assert published in (round(float(millions)), int(float(millions)))


def test_multiply_adds_of_an_opened_checkpoint(tmp_path: Path) -> None:
    """Its encoder layers would run one fused kernel, which nothing counts."""
    opened = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    assert opened.model.encoder.layers[0].load_to_BT
    built = toy.build("transformer", opened.task, toy.SIZES)
    assert multiply_adds(opened) == multiply_adds(built) == multiply_adds(built, 30)


@pytest.mark.parametrize("softmax", [None, "8,16"])
def test_multiply_adds_of_a_language_model_equal_the_formula(softmax: str | None) -> None:
    """A block of T tokens: 4 d H h T + 2 T T H h a layer, feed-forward layers, and all words.

    Words in clusters: 8 words and 2 clusters at size d, 8 of the rest at d / 4, 8 at d / 16.
    """
    length, d, ffn, heads, size = 7, 16, 24, 4, 3
    options = {"head_size": size, "adaptive_softmax_cutoff": softmax}
    model = language_model("transformer_lm_headsize_n", **options)
    layer = 4 * d * heads * size * length + 2 * length * length * heads * size
    words = 20 + 4
    per_token = d * words
    if softmax:
        per_token = d * (8 + 2) + 4 * (d + 8) + 1 * (d + 8)
    expected = 2 * (layer + 2 * d * ffn * length) + per_token * length
    assert multiply_adds(model, length) == expected


@pytest.mark.parametrize(
    ("arch", "options", "target", "source"),
    [
        ("transformer", {}, (64, 64), (64, 64)),
        ("transformer_collab", {}, (16, 64), (16, 64)),  # K = d / 4 unless given
        ("transformer_collab", {"value_heads": 2}, (16, 32), (16, 32)),
        ("transformer_grouped_query", {"key_value_heads_in_cross": "1,4"}, (16, 16), (40, 40)),
        ("transformer_latent", {"latent_dim_in_cross": "3,5"}, (32, 0), (16, 0)),
        ("transformer_latent", {"shared_latent_in_cross": 16}, (32, 0), (32, 0)),  # for both layers
        ("transformer_latent", {"shared_latent_in_cross": 6, "cache_bits": 4}, (16, 0), (7, 0)),
        # A group of at most 64 rounded numbers has 4 bytes for scale and offset.
        ("transformer_headsize_n", {"cache_bits": 8}, (40, 40), (40, 40)),  # 2 (4 + 16)
        ("transformer_headsize_n", {"cache_bits_in_cross": "4,0"}, (64, 64), (44, 44)),
        ("transformer_latent", {"latent_dim": 31, "cache_bits": 4}, (40, 0), (40, 0)),
    ],
)
def test_cached_bytes_of_two_layers(
    arch: str, options: dict, target: tuple[int, int], source: tuple[int, int]
) -> None:
    """Keys and values of a token, 2 bytes a number that is not rounded: d = 16, 4 heads.

    The share is one of the bytes of standard heads', 2 x 2 x 16 numbers a token.
    """
    model = toy.model(arch, **options)
    found = cost(model)
    assert cache_share(model) == (sum(target) + sum(source)) / (2 * 2 * 2 * 2 * 16)
    assert (found.key_bytes_per_target_token, found.value_bytes_per_target_token) == target
    assert (found.key_bytes_per_source_token, found.value_bytes_per_source_token) == source


@pytest.mark.parametrize("arch", ["headsize_n", "latent", "grouped_query"])
def test_bytes_of_a_search(arch: str) -> None:
    """All beams descend from one hypothesis, or slots are all kept; buffers are not counted."""
    model = toy.model(f"transformer_{arch}").eval()
    source = {"src_tokens": torch.full((1, 5), 6), "src_lengths": torch.tensor([5])}
    for every, expected in zip((1, 2**62), searched_bytes(model, 5, 3), strict=True):
        decoding = ModelDecoding(model, source, 1.0)
        with torch.no_grad(), mock.patch.multiple(cache, DROP_EVERY=every, DROP_SHARE=0):
            for step in range(1, 6):
                if step > 1:
                    decoding.reorder(torch.tensor([0, 0, 0]), None)
                decoding.step(torch.full((3, step), 6))
        caches = [of["cache"] for of in decoding.state.values() if "cache" in of]
        parts = {part for one in caches for part in (one.keys, one.values)}
        assert sum(part.filled.nbytes for part in parts) == 2 * expected, "here in float32"


def test_bytes_of_a_search_that_drops_nothing() -> None:
    """fairseq's transformer keeps the source of each beam; a language model has no beams."""
    stock, ours = (searched_bytes(toy.model(name), 5, 3) for name in ("transformer", STANDARD))
    assert stock == (stock[1],) * 2
    assert stock[1] - ours[1] == 2 * 5 * 2 * 2 * 16 * 2, "two more copies of the source"
    assert len({*searched_bytes(language_model("transformer_lm_headsize_n"), 5, 3)}) == 1
    assert searched_bytes(toy.model(STANDARD)) == searched_bytes(toy.model(STANDARD), 1000, 5)


@pytest.mark.parametrize(
    "options",
    [{}, {"no_cross_attention": True}, {"cross_self_attention": True},
     {"cross_self_attention": True, "no_cross_attention": True}],
)  # fmt: skip
def test_what_the_stock_decoder_caches(options: dict) -> None:
    """Bytes after two steps, of one sentence of two lengths of the source; here in float32."""
    model = toy.model("transformer", **options).eval()

    def cached(source: int, target: int) -> int:
        encoded = model.encoder(torch.full((1, source), 5), torch.tensor([source]))
        state: dict = {}
        for step in range(1, target + 1):
            model.decoder(torch.full((1, step), 6), encoded, incremental_state=state)
        caches = [saved for of in state.values() for name, saved in of.items() if "prev_" in name]
        return sum(saved.nbytes for saved in caches if saved is not None and saved.dim() == 4)

    found = cost(model)
    of_target = found.key_bytes_per_target_token + found.value_bytes_per_target_token
    of_source = found.key_bytes_per_source_token + found.value_bytes_per_source_token
    assert cached(5, 4) - cached(5, 3) == 2 * of_target
    assert cached(6, 2) - cached(5, 2) == 2 * of_source


@pytest.mark.parametrize("mixing", QUERY_MIXINGS)
def test_parameters_of_query_mixings(mixing: str) -> None:
    """The table at the top of the module; keys take K numbers per token in all three."""
    d, heads, k = 24, 4, 7
    ours = CollaborativeAttention(d, heads, k, query_mixing=mixing, value_heads=1, v_head_size=5)
    of_keys = {"diagonal": heads * k, "full": heads * k * k, "own": (heads - 1) * (d + 1) * k}
    values, output = d * 5 + 5, d * heads * 5 + d
    assert toy.num_parameters(ours) == 2 * (d + 1) * k + of_keys[mixing] + values + output
    assert ours.cached_floats_per_token() == (k, 5)


def test_what_attentions_share_counts_once() -> None:
    """One latent of the encoder's output, and the bytes of keys and of values by themselves."""
    model = toy.model("transformer_latent", latent_dim=6, shared_latent_in_cross="6")
    attentions = [m for m in model.modules() if isinstance(m, HeadAttention)]
    weights = {id(w): w.numel() for module in attentions for w in module.parameters()}
    assert cost(model).attention_parameters == sum(weights.values())
    assert sum(weights.values()) < sum(w.numel() for a in attentions for w in a.parameters())
    found = cost(toy.model(STANDARD, qk_head_size=3, v_head_size=5))
    assert found.key_bytes_per_target_token == 2 * 2 * 4 * 3  # two layers, bytes, heads, numbers
    assert found.value_bytes_per_target_token == 2 * 2 * 4 * 5
    assert found.key_bytes_per_source_token == 2 * 2 * 4 * 3
    assert found.value_bytes_per_source_token == 2 * 2 * 4 * 5


class OneKey(MultiheadAttention):
    """Of a plug-in: one key and one value for all heads."""

    def __init__(self, d: int, heads: int):
        super().__init__(d, heads, self_attention=True)
        self.k_proj, self.v_proj = (torch.nn.Linear(d, d // heads) for _ in "kv")


class Averages(torch.nn.Module):
    """Of a plug-in: it is no attention of fairseq's, and caches a running mean."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.embed_dim, self.num_heads, self.v_proj = d, heads, torch.nn.Linear(d, d)


@pytest.mark.parametrize("kind", [OneKey, Averages])
def test_a_cache_that_is_unknown_is_said(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    model = toy.model("transformer")
    cost(model)
    layer = model.decoder.layers[0]
    layer.self_attn.__class__ = type("Sharp", (MultiheadAttention,), {})  # other scores only
    cost(model)
    assert not capsys.readouterr().err
    layer.self_attn = kind(16, 4)
    number = cost(model).attention_parameters
    assert number == sum(w.numel() for name, w in model.named_parameters() if "_attn." in name)
    assert capsys.readouterr().err.count(kind.__name__) == 1


def test_the_cache_as_if_it_were_not_rounded() -> None:
    model = toy.model(STANDARD, cache_bits=4)
    assert totals(model)["cache"] == 4 * 2 * (16 * 4 + 32)
    assert totals(model, rounded=False)["cache"] == 4 * 2 * 16 * 16
    assert cache_share(model) == (16 * 4 + 32) / (16 * 16)


def test_products_of_another_library_are_counted() -> None:
    model = toy.model(STANDARD)
    expected = multiply_adds(model, 7)
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = OneDnnLinear
    assert multiply_adds(model, 7) == expected


def test_a_model_that_is_counted_stays_as_it_is() -> None:
    """It can be in training, with products of another library."""
    model = toy.model(STANDARD).train()
    model.decoder.layers[0].fc1.__class__ = OneDnnLinear
    before = [(type(module), module.training) for module in model.modules()]
    multiply_adds(model, 7)
    assert [(type(module), module.training) for module in model.modules()] == before


@pytest.mark.parametrize("arch", ["transformer", STANDARD])
def test_parameters_are_those_that_learn(arch: str) -> None:
    """Not the copies of its maps that an encoder layer of fairseq's has."""
    model = toy.model(arch)
    output = model(**toy.batch())[0]
    output.float().logsumexp(-1).sum().backward()
    learns = {name: w.numel() for name, w in model.named_parameters() if w.grad is not None}
    assert cost(model).parameters == totals(model)["parameters"] == sum(learns.values())
    of_attention = sum(number for name, number in learns.items() if "_attn." in name)
    assert cost(model).attention_parameters == of_attention
    of_layers = sum(number for name, number in learns.items() if ".layers." in name)
    assert layer_parameters(model) == of_layers
