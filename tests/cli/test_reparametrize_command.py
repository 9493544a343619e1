"""``fairseq-collab reparametrize``: real checkpoints, what comes out of them, what is refused."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import LM_SIZES, MODEL, SHORT
from commands import USER_DIR, succeed
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from collab_common.errors import UserError
from collab_lab.cli import reparametrize as command
from collab_lab.metrics.cost import totals
from collab_lab.metrics.loss import mean_bits
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import open_model, samples
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

STOCK = [o for o in MODEL if "key-dim" not in o and "arch" not in o]


def run(*arguments: object) -> dict[str, Any]:
    """The command, in this process; its report."""
    args = command.build_parser().parse_args([*map(str, arguments), "--cpu"])
    return command.reparametrize(args)


def translations(checkpoint: Path, data: Path) -> list[str]:
    output = succeed(
        "fairseq-generate", data, *USER_DIR, "--path", checkpoint, "--beam=3", "--cpu",
        "--max-tokens=2000",
    )  # fmt: skip
    return sorted(re.findall(r"^H-\d+\t.*", output, re.MULTILINE))


def test_full_dimension_translates_alike_and_trains_on(
    stock: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "collab.pt"
    report = run(stock, "--key-dim=32", "--out", out)
    assert report["arch"] == "transformer_collab"
    assert report["price"] < 1e-6
    words = [re.sub(r"\t-?[\d.]+\t", "\t", line) for line in translations(out, data)]
    assert words == [re.sub(r"\t-?[\d.]+\t", "\t", line) for line in translations(stock, data)]
    succeed(
        "fairseq-train", data, *USER_DIR, "--arch=transformer_collab", *STOCK, *SHORT,
        "--key-dim=32", "--query-mixing=own", "--finetune-from-model", out,
        "--save-dir", tmp_path / "tuned",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("to", "size", "title"),
    [
        ("grouped-query", "key-value-heads=2", "G"),
        ("latent", "latent-dim=24", "r"),
        ("headsize", "key-dim=16", "K"),
    ],
)
def test_shared_keys_and_values_translate_and_train_on(
    to: str, size: str, title: str, stock: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "shared.pt"
    report = run(stock, f"--to={to}", f"--{size}", "--sentences=50", "--out", out)
    arch = report["arch"]
    assert arch == f"transformer_{to.replace('-', '_')}" + "_n" * (to == "headsize")
    assert all(0 < one["price"] < 1 for one in report["attentions"])
    assert command.report(report).split()[:2] == ["attention", title]
    assert len(translations(out, data)) > 10
    scale = ["--attention-scale=embed"] * (to == "headsize")
    succeed(
        "fairseq-train", data, *USER_DIR, f"--arch={arch}", *STOCK, *SHORT, f"--{size}", *scale,
        "--finetune-from-model", out, "--save-dir", tmp_path / "tuned",
    )  # fmt: skip


def test_layers_and_types(stock: Path, tmp_path: Path) -> None:
    report = run(stock, "--key-dim-in-cross=9", "--key-dim-in-encoder=0", "--key-dim-in-decoder=0",
                 "--out", tmp_path / "out.pt")  # fmt: skip
    assert [(one["type"], one["key_dim"]) for one in report["attentions"]] == [("cross", 9)]
    weights = checkpoints.read(tmp_path / "out.pt")["model"]
    assert weights["decoder.layers.0.encoder_attn.q_proj.weight"].shape == (4 * 9, 32)
    assert weights["decoder.layers.0.self_attn.k_proj.weight"].shape == (32, 32)
    state = checkpoints.read(tmp_path / "out.pt")
    assert "last_optimizer_state" not in state
    assert state["cfg"]["model"]["key_dim_in_cross"] == "9"
    (model,), *_ = load_model_ensemble_and_task([str(tmp_path / "out.pt")])
    assert model.decoder.layers[0].encoder_attn.key_dim == 9


def test_the_report_comes_again(
    stock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the shell, weighted by sentences; and the same weights again."""
    options = ["--key-dim=12", "--sentences=200", "--query-mixing=full"]
    one, two = tmp_path / "one.pt", tmp_path / "two.pt"
    output = succeed("fairseq-collab", "reparametrize", stock, *options, "--out", one)
    assert re.search(r"^cross 0 +12 +0\.\d{4}$", output, re.MULTILINE)
    assert command.main([*map(str, [stock, *options, "--out", two])]) == 0
    assert "cross 0" in capsys.readouterr().out
    first, second = (checkpoints.read(path)["model"] for path in (one, two))
    for name in first:  # sums in another order: next to the largest weight
        largest = float(second[name].abs().max())
        assert torch.allclose(first[name], second[name], rtol=0.0, atol=1e-4 * largest), name


def test_a_share_is_spread_and_checked(stock: Path, data: Path, tmp_path: Path) -> None:
    """The cache of the encoder is none; the reported loss is that of the written model."""
    out = tmp_path / "latent.pt"
    run_ = partial(run, stock, "--to=latent", "--sentences=50", "--check", "--out")
    numbers = run_(tmp_path / "numbers.pt", "--cache=0.125", "--cache-bits=none")
    widths = [one["latent_dim"] for one in numbers["attentions"]]
    assert [one["type"] for one in numbers["attentions"]] == ["decoder", "cross"]
    assert sum(widths) <= 0.125 * 4 * 32
    assert "cache-bits" not in numbers["fine_tuning"]
    assert {one["bits"] for one in numbers["attentions"]} == {None}
    report = run_(out, "--cache=0.125")
    assert 0 < report["price"] < numbers["price"]
    for one in report["attentions"]:
        assert one["bits"] in (8, 4)
        assert f"--cache-bits-in-{one['type']} {one['bits']}" in report["fine_tuning"]
        assert f"--latent-dim-in-{one['type']} {one['latent_dim']}" in report["fine_tuning"]
    assert "cache bits" in command.report(report)
    trained = open_model(out, data)
    bits = mean_bits(trained.model, samples(trained, "valid", 1000))
    assert report["valid_bits"] == pytest.approx(bits, abs=1e-4)
    assert report["valid_bits"] != report["valid_bits_before"]
    assert "validation loss" in command.report(report)
    assert totals(trained.model)["cache"] <= 0.125 * 16 * 4 * 32
    with pytest.raises(UserError, match="the least is"):
        run(stock, "--to=latent", "--parameters=0.1", "--sentences=50", "--out", out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "bits"),
    [
        (["--to=headsize", "--cache=0.6"], [8, 8]),
        (["--to=headsize", "--key-dim=32", "--cache-bits=4"], [4, 4]),
        (["--key-dim-in-cross=9", "--key-dim-in-encoder=0", "--key-dim-in-decoder=0",
          "--cache-bits=4,8"], [4, 8]),
        (["--to=grouped-query", "--key-value-heads=2", "--cache-bits=0,4"], [0, 4]),
        (["--to=latent", "--parameters=0.95", "--cache-bits=8"], [8, 8]),
    ],
)  # fmt: skip
def test_bits_of_every_kind(
    options: list[str], bits: list[int], stock: Path, data: Path, tmp_path: Path
) -> None:
    """Each cache has its own; the price of rounding is part of the price; it translates."""
    out = tmp_path / "out.pt"
    report = run(stock, *options, "--sentences=50", "--check", "--out", out)
    model = open_model(out, data).model
    cached = [one.module for one in attentions(model) if one.type != "encoder"]
    assert [module.cache_bits for module in cached] == bits
    priced = {one["type"]: one for one in report["attentions"]}
    assert [priced[type_]["bits"] for type_ in ("decoder", "cross") if type_ in priced] == [
        number or None for number in bits
    ]
    assert all(one["price"] > 0 for one in report["attentions"] if one["bits"])
    assert len(translations(out, data)) > 10


@pytest.mark.parametrize("bits", ["5", "16", "8,8,8", "auto,8", "4,", ""])
def test_bits_that_are_none(bits: str, stock: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cache-bits"):
        run(stock, "--to=latent", "--cache=0.5", f"--cache-bits={bits}", "--out", tmp_path / "a.pt")


def test_language_models(monolingual: Path, tmp_path: Path) -> None:
    train = ["fairseq-train", monolingual, "--task=language_modeling", "--tokens-per-sample=16"]
    train += [*SHORT, "--criterion=cross_entropy", *(f"--decoder-{size}" for size in LM_SIZES)]
    train += ["--decoder-input-dim=16", "--decoder-output-dim=16"]
    succeed(*train, "--arch=transformer_lm", "--save-dir", tmp_path)
    checkpoint, out = tmp_path / "checkpoint_last.pt", tmp_path / "out.pt"
    report = run(checkpoint, "--key-dim=16", "--sentences=50", "--out", out)
    assert report["arch"] == "transformer_lm_collab"
    read = ["fairseq-eval-lm", monolingual, *USER_DIR, "--cpu", "--gen-subset=valid", "--path"]
    before, after = (
        re.search(r"Perplexity: [\d.]+", succeed(*read, path))[0] for path in (checkpoint, out)
    )
    assert before == after
