"""Options of the attention modules: initial weights, sizes that are rejected, masks, precision."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from fairseq_collab.attention import CollaborativeAttention, HeadAttention, SeparateAttention
from fairseq_collab.attention.collaborative import init_mixing
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.attention.signature import Signature

FULL = partial(CollaborativeAttention, query_mixing="full")
XAVIER = {"query_mixing": "own", "mixing_init": "xavier"}


@pytest.mark.parametrize(
    ("heads", "key_dim", "rows"),
    [
        (3, 7, ["1110000", "0001100", "0000011"]),  # as evenly as 7 / 3 allows
        (5, 2, ["10", "10", "10", "01", "01"]),  # heads share a dimension
    ],
)
def test_block_mixing_deals_out_the_dimensions(heads: int, key_dim: int, rows: list[str]) -> None:
    mixing = torch.empty(heads, key_dim)
    init_mixing(mixing, "block")
    assert mixing.tolist() == [[float(x) for x in row] for row in rows]


def test_xaviers_mixing() -> None:
    mixing = torch.empty(8, 512)
    init_mixing(mixing, "xavier")
    bound = math.sqrt(6 / (8 + 512))
    assert 0.99 * bound < mixing.abs().max() <= bound


@pytest.mark.parametrize("key_dim", [64, 16])
@pytest.mark.parametrize("init", ["constant", "fork"])
def test_initial_gains(init: str, key_dim: int) -> None:
    """1/sqrt(2) at K = d; below, the fork has 1 in separate queries and keys, and in values."""
    concatenated = SeparateAttention(
        64, 4, qk_head_size=key_dim // 4, key_init=init, value_init=init
    )
    collaborative = FULL(64, 4, key_dim, value_init=init)
    for ours, of_keys in ((concatenated, init), (collaborative, "fork")):
        for name, outputs, how in (
            ("q", key_dim, of_keys),
            ("k", key_dim, of_keys),
            ("v", 64, init),
        ):
            gain = 1 if how == "fork" and key_dim < 64 else 2**-0.5
            bound = gain * math.sqrt(6 / (64 + outputs))  # of Xavier's uniform distribution
            largest = getattr(ours, f"{name}_proj").weight.abs().max()
            assert 0.95 * bound < largest <= bound, name


@pytest.mark.parametrize(
    ("ours", "name", "fans"),
    [
        (LatentAttention(64, 4, 32), "latent_proj.weight", 64 + 32),
        (LatentAttention(64, 4, 32), "k_proj.weight", 2 * (32 + 64)),  # gain 1/sqrt(2)
        (LatentAttention(64, 4, 32), "v_proj.weight", 2 * (32 + 64)),
        (CollaborativeAttention(64, 4, 16, **XAVIER), "q_proj.weight", 64 + 4 * 16),
    ],
)
def test_initial_deviations(ours: HeadAttention, name: str, fans: int) -> None:
    assert float(ours.get_parameter(name).std()) == pytest.approx((2 / fans) ** 0.5, rel=0.05)


def test_no_heads_are_rejected() -> None:
    with pytest.raises(ValueError, match="num_heads is 0; it must be at least 1"):
        FULL(8, 0, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_weights_sum_to_one(dtype: torch.dtype) -> None:
    """Many equal scores, whose sum 16 bits could not hold."""
    attention = FULL(8, 2, 4).to(dtype)
    x = torch.zeros(600, 1, 8, dtype=dtype)
    output, weights = attention(x, x, x)
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(weights.float().sum(-1), torch.ones(1, 600), rtol=0, atol=5e-3)


def test_a_variant_may_describe_what_it_sets_last() -> None:
    """A signature is asked for when weights are saved, not by the constructor."""

    class Later(SeparateAttention):
        def __init__(self) -> None:
            super().__init__(8, 2)
            self.heads_described = self.num_heads

        def describe(self) -> Signature:
            return replace(super().describe(), heads=self.heads_described)

    assert "signature" in Later().state_dict()
