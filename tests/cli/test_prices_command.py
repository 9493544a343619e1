"""``fairseq-collab prices``: real checkpoints, what comes out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import refuse, succeed

from collab_lab.results import prices_page

pytestmark = pytest.mark.slow


def test_prices_of_a_stock_model(stock: Path, data: Path, tmp_path: Path) -> None:
    """Each attention and head has a price; the sum of a check is that of what was built."""
    output = succeed(
        "fairseq-collab", "prices", stock, data, "--sentences=50", "--check", "--cpu",
        "--out", tmp_path,
    )  # fmt: skip
    content = json.loads((tmp_path / "prices.json").read_text())
    assert [one["type"] for one in content["attentions"]] == ["encoder", "decoder", "cross"]
    for one in content["attentions"]:
        assert len(one["heads"]) == 4
        assert all(price > 0 for price in one["heads"])
        for points in one["sizes"].values():
            prices = [point["price"] for point in points if point["size"]]
            assert prices == sorted(prices, reverse=True)
            assert prices[-1] < 1e-9
        for bits in ("8 bits", "4 bits"):
            assert (bits in one) == (one["type"] != "encoder")
            assert all(0 < points[-1]["price"] < 0.1 for points in one.get(bits, {}).values())
    assert {one["change"].split(",")[0] for one in content["checks"]} >= {"latent", "own"}
    assert {one["change"].split(": ")[-1] for one in content["checks"]} >= {"8", "4", "auto"}
    assert "4-bit KV cache" in output
    assert all(one["price"] > 0 for one in content["checks"])
    assert "cross-attention 0" in output
    assert prices_page.summary(content) in (tmp_path / "prices.md").read_text()
    assert (tmp_path / "prices.svg").stat().st_size > 1000


def test_kinds_that_a_model_cannot_have(trained: Path, data: Path, tmp_path: Path) -> None:
    """Shared keys can only be narrowed; their heads have prices all the same."""
    output = succeed(
        "fairseq-collab", "prices", trained, data, "--sentences=50", "--cpu", "--out", tmp_path
    )
    assert "latent: not possible" in output
    content = json.loads((tmp_path / "prices.json").read_text())
    assert all([*one["sizes"]] == ["own"] for one in content["attentions"])


def test_layers_without_heads(stock: Path, data: Path, tmp_path: Path) -> None:
    """They have no price; the sentences are those that were read; cross-attention has to stay."""
    out = tmp_path / "some.pt"
    prune = ("fairseq-collab", "prune", stock, data, "--out", out)
    for choice in (["--keep-heads", "cross:-"], ["--types", "cross", "--remove-share=1"]):
        assert "no head of cross-attention is left" in refuse(*prune, *choice)
    succeed(*prune, "--keep-heads", "encoder:-")
    prices = ("fairseq-collab", "prices", out, data, "--sentences=100000", "--cpu")
    succeed(*prices, "--out", tmp_path)
    content = json.loads((tmp_path / "prices.json").read_text())
    assert [one["type"] for one in content["attentions"]] == ["decoder", "cross"]
    assert content["sentences"] < 100_000
