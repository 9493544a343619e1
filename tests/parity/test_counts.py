"""Parameter counts and cache sizes, against the published ones and against closed forms.

Expected counts: transformer base with joined vocabulary of 32,768 and all embeddings shared; they
round to the column "params" of Cordonnier et al. 2020 (60.9/61.0M, 56.2, 53.8, 52.6/52.7M).
"""

from __future__ import annotations

import pytest
import toy

from fairseq_collab.evaluation.cost import cost
from fairseq_collab.models.config import PRESET_SIZES

WORDS = 32_768 - 4  # and fairseq's four special symbols
D, H, LAYERS = 512, 8, 6
ATTENTIONS = 3 * LAYERS
ONE_ATTENTION = 4 * (D * D + D)
BODY = 44_138_496
SHARED = 32_768 * D


def published(suffix: str, **options: object) -> int:
    sizes = {"share_all_embeddings": True, **options}
    # The preset's own sizes, not the toy's.
    from fairseq.models import MODEL_DATACLASS_REGISTRY

    name = f"transformer_collab{suffix}"
    defaults = MODEL_DATACLASS_REGISTRY[name]()
    sizes |= {key: getattr(defaults, key) for key in toy.SIZES}
    return toy.num_parameters(toy.model(name, toy.task(WORDS), **sizes))


def test_concatenated_base_is_60_9_million() -> None:
    assert published("_wmt_en_de", collaborative_sites="none") == BODY + SHARED == 60_915_712


@pytest.mark.parametrize(
    ("key_dim", "millions"), [(512, "61.0"), (256, "56.2"), (128, "53.8"), (64, "52.7")]
)
def test_collaborative_base_matches_the_paper(key_dim: int, millions: str) -> None:
    found = published("_wmt_en_de", key_dim=key_dim)
    # Each attention: queries and keys of size K with biases, and the mixing, in place of size d.
    saved = 2 * (D + 1) * (D - key_dim) - H * key_dim
    assert found == BODY + SHARED - ATTENTIONS * saved
    assert f"{found / 1e6:.1f}" == millions


@pytest.mark.parametrize(
    "suffix", sorted(PRESET_SIZES.keys() - {"_multi30k"})
)  # which fairseq has not
def test_preset_equals_fairseqs_namesake(suffix: str) -> None:
    """Without collaborative heads, each preset has the parameters of fairseq's preset."""
    from argparse import Namespace

    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    stock_name = f"transformer{suffix}"
    args = Namespace(arch=stock_name, encoder_layers=1, decoder_layers=1)
    ARCH_CONFIG_REGISTRY[stock_name](args)
    stock = ARCH_MODEL_REGISTRY[stock_name].build_model(args, toy.task())
    name = f"transformer_collab{suffix}"
    defaults = MODEL_DATACLASS_REGISTRY[name]()
    for key in ("dropout", *toy.SIZES):
        if not key.endswith("_layers"):
            assert getattr(defaults, key) == getattr(args, key), key
    sizes = {key: getattr(args, key) for key in toy.SIZES}
    ours = toy.model(name, collaborative_sites="none", **sizes)
    assert toy.num_parameters(ours) == cost(stock).parameters


def test_default_key_dimension_is_a_quarter() -> None:
    model = toy.model("transformer_collab")
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        assert layer.self_attn.key_dim == 4


def test_key_cache_of_collaborative_heads_is_a_quarter() -> None:
    """The default key dimension d/4: a quarter of the keys' bytes, all of the values'."""
    ours, stock = cost(toy.model("transformer_collab")), cost(toy.model("transformer"))
    layers, size = toy.SIZES["decoder_layers"], 4 * toy.SIZES["decoder_embed_dim"]
    assert stock.key_bytes_per_target_token == stock.key_bytes_per_source_token == layers * size
    assert ours.key_bytes_per_target_token == ours.key_bytes_per_source_token == layers * size // 4
    assert ours.value_bytes_per_target_token == stock.value_bytes_per_target_token == layers * size
    assert ours.value_bytes_per_source_token == stock.value_bytes_per_source_token == layers * size
