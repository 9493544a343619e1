"""What the query of a shared key may do: diagonal, full, own, and multi-matrix factorization."""

from __future__ import annotations

from typing import Any

import pytest
import reference
import torch
import toy
from test_attention_parity import SITES, check_oracle
from toy import close

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.collaborative import QUERY_MIXINGS
from fairseq_collab.attention.mfa import MFAAttention
from fairseq_collab.metrics.cost import cost

pytestmark = pytest.mark.usefixtures("float64")

D, H, K, T, B = 24, 4, 7, 5, 3


def heads(mixing: str, key_dim: int = K, **options: Any) -> CollaborativeAttention:
    return CollaborativeAttention(D, H, key_dim, query_mixing=mixing, **options)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    ("key_dim", "options"),
    [
        (1, {}),
        (K, {"value_heads": 2}),
        (K, {"bias": "content", "scale": "key"}),
        (40, {"bias": "none", "value_heads": 1, "v_head_size": 9}),
    ],
)
@pytest.mark.parametrize("mixing", ["full", "own"])
def test_it_is_the_equation(mixing: str, key_dim: int, options: dict, site: dict) -> None:
    scale = (key_dim / H if options.get("scale") == "key" else D / H) ** -0.5
    check_oracle(
        heads(mixing, key_dim, **options, **site),
        lambda weights, x, y, mask: reference.shared_key(x, y, weights, H, scale, mask),
        "encoder_decoder_attention" in site,
    )


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(("num_heads", "width"), [(4, 7), (5, 40), (1, 1)])
def test_mfa_is_the_equation(num_heads: int, width: int, site: dict) -> None:
    check_oracle(
        MFAAttention(D, num_heads, width, **site),
        lambda weights, x, y, mask: reference.shared_key(
            x, y, weights, num_heads, width**-0.5, mask
        ),
        "encoder_decoder_attention" in site,
    )


@pytest.mark.parametrize("bias", ["projection", "content", "none"])
@pytest.mark.parametrize("key_dim", [3, K, D])
def test_all_mixings_start_as_one_function(key_dim: int, bias: str) -> None:
    """With block mixing: same function, same seed, and the same draws for what comes after."""
    outputs, after = [], []
    x = torch.randn(T, B, D)
    for mixing in QUERY_MIXINGS:
        torch.manual_seed(5)
        ours = heads(mixing, key_dim, bias=bias, self_attention=True)
        after.append(torch.rand(1))
        outputs.append(ours(x, x, x)[0])
    close(outputs[1], outputs[0])
    close(outputs[2], outputs[0])
    assert len({float(number) for number in after}) == 1


def test_full_mixing_with_diagonal_matrices_is_diagonal_mixing() -> None:
    diagonal = toy.randomised(heads("diagonal", self_attention=True))
    full = heads("full", self_attention=True)
    state = diagonal.state_dict()
    state["mixing"] = torch.diag_embed(state["mixing"])
    state.pop("signature")
    full.load_state_dict(state, strict=False)
    x = torch.randn(T, B, D)
    close(full(x, x, x)[0], diagonal(x, x, x)[0])


@pytest.mark.parametrize("mixing", QUERY_MIXINGS)
def test_parameters_and_cache(mixing: str) -> None:
    """The table at the top of the module; keys take K numbers per token in all three."""
    ours = heads(mixing, bias="none", value_heads=1, v_head_size=5)
    of_keys = {"diagonal": 2 * D * K + H * K, "full": 2 * D * K + H * K * K, "own": (H + 1) * D * K}
    values, output = D * 5 + 5, D * H * 5 + D
    assert toy.num_parameters(ours) == of_keys[mixing] + values + output
    assert ours.cached_floats_per_token() == (K, 5)


@pytest.mark.parametrize(
    ("arch", "options", "cached"),
    [
        ("transformer_collab", {"query_mixing": "full", "key_dim": 6}, 6),
        ("transformer_collab", {"query_mixing": "own", "key_dim": 6, "v_head_size": 3}, 6),
        ("transformer_mfa", {"key_dim": 6}, 6),
        ("transformer_mfa", {"key_dim": 6, "heads_in_decoder": "3,5", "heads_in_cross": "7"}, 6),
        (
            "transformer_collab",
            {"key_dim": 6, "query_mixing": "own", "query_mixing_in_decoder": "full,diagonal"},
            6,
        ),
    ],
)
def test_a_model_decodes_step_by_step_and_counts(arch: str, options: dict, cached: int) -> None:
    """Step by step equals the whole pass; the cache keeps K numbers per token and layer."""
    model = toy.model(arch, **options).eval()
    toy.randomised(model, 0.3)
    batch = toy.batch()
    whole = model(**batch)[0]
    encoder = model.encoder(batch["src_tokens"], batch["src_lengths"])
    state: dict = {}
    steps = [
        model.decoder(batch["prev_output_tokens"][:, : n + 1], encoder, incremental_state=state)[0]
        for n in range(4)
    ]
    seen = batch["prev_output_tokens"].ne(1)
    close(torch.cat(steps, 1)[seen], whole[seen])
    layers = [layer.self_attn for layer in model.decoder.layers]
    for attention in layers:
        assert attention.cache_bytes(state)["keys"] == 3 * 4 * cached * 8
    assert cost(model).parameters == toy.num_parameters(model)


@pytest.mark.parametrize(
    ("arch", "given", "other", "message"),
    [
        ("transformer_collab", {"query_mixing": "full"}, {}, "query mixing .* is 1 in it, 0 here"),
        ("transformer_collab", {}, {"query_mixing": "own"}, "query mixing .* is 0 in it, 2 here"),
        ("transformer_mfa", {"heads_in_cross": "3"}, {}, "heads is 3 in it, 4 here"),
    ],
)
def test_another_checkpoint_is_rejected(arch: str, given: dict, other: dict, message: str) -> None:
    saved = toy.model(arch, **given).state_dict()
    with pytest.raises(UserError, match=message):
        toy.model(arch, **other).load_state_dict(saved)


@pytest.mark.parametrize("text", ["whole", "full,own,full", ""])
def test_an_unknown_mixing_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="query-mixing-in-cross"):
        toy.model("transformer_collab", query_mixing_in_cross=text)
