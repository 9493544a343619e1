"""``fairseq-collab prices``, ``reparametrize``, ``shrink`` and ``heads`` on real checkpoints."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from cli.conftest import MODEL, SHORT
from commands import USER_DIR, refuse, succeed

from collab_common import ATTENTION_TYPES
from collab_lab.cli import main as cli
from collab_lab.cli.main import main
from collab_lab.metrics.cost import totals
from collab_lab.metrics.loss import mean_bits
from collab_lab.trained.checkpoint import open_model
from collab_lab.trained.sentences import samples

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
    assert {one["change"].split(",")[0] for one in content["checks"]} >= {"latent", "collab"}
    assert {one["change"].split(": ")[-1] for one in content["checks"]} >= {"8", "4", "auto"}
    assert "4-bit KV cache" in output
    assert all(one["price"] > 0 for one in content["checks"])
    assert "cross-attention 0" in output
    assert (tmp_path / "prices.md").read_text().partition("\n\n")[2] in output


def test_layers_without_heads(stock: Path, data: Path, tmp_path: Path) -> None:
    """They have no price; the sentences are those that were read; cross-attention has to stay."""
    out = tmp_path / "some.pt"
    prune = ("fairseq-collab", "prune", stock, data, "--out", out)
    every = ("--remove=4", "--sentences=9", "--types")
    assert "cross-attention" in refuse(*prune, *every, "cross")
    succeed(*prune, *every, "encoder")
    prices = ("fairseq-collab", "prices", out, data, "--sentences=100000", "--cpu")
    succeed(*prices, "--out", tmp_path)
    content = json.loads((tmp_path / "prices.json").read_text())
    assert [one["type"] for one in content["attentions"]] == ["decoder", "cross"]
    assert content["sentences"] < 100_000


# ---- reparametrize -------------------------------------------------------------------------------

STOCK = [o for o in MODEL if "key-dim" not in o and "arch" not in o]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list[list[str]], str]:
    """The command, in this process: the words of its table's rows, and all that it prints."""
    assert main(["reparametrize", *map(str, arguments), "--cpu"]) == 0
    report = capsys.readouterr().out
    title, *rows = (line.split() for line in report.splitlines())
    return [title, *(row for row in rows if row[0] in (*ATTENTION_TYPES, "sum"))], report


def translations(checkpoint: Path, data: Path) -> list[str]:
    output = succeed(
        "fairseq-generate", data, *USER_DIR, "--path", checkpoint, "--beam=3", "--cpu",
        "--max-tokens=2000",
    )  # fmt: skip
    return sorted(re.findall(r"^H-\d+\t.*", output, re.MULTILINE))


@pytest.mark.parametrize(
    ("to", "size", "title"),
    [
        ("grouped-query", "key-value-heads=2", "G"),
        ("latent", "latent-dim=24", "r"),
        ("separate", "key-dim=16", "K"),
    ],
)
def test_shared_keys_and_values_translate_and_train_on(
    to: str, size: str, title: str, stock: Path, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "shared.pt"
    (titles, *rows), _ = run(
        capsys, stock, f"--to={to}", f"--{size}", "--sentences=50", "--out", out
    )
    arch = open_model(out, data).arch
    assert arch == "transformer_" + {"separate": "headsize_n"}.get(to, to.replace("-", "_"))
    assert all(0 <= float(row[-1]) < 1 for row in rows)
    assert titles[:2] == ["attention", title]
    assert len(translations(out, data)) > 10
    scale = ["--attention-scale=embed"] * (to == "separate")
    succeed(
        "fairseq-train", data, *USER_DIR, f"--arch={arch}", *STOCK, *SHORT, f"--{size}", *scale,
        "--finetune-from-model", out, "--save-dir", tmp_path / "tuned",
    )  # fmt: skip


def test_a_share_is_spread_and_checked(
    stock: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cache of the encoder is none; the reported loss is that of the written model."""
    out, read = tmp_path / "latent.pt", ["--kinds=latent", "--sentences=50", "--cpu", "--check"]

    def shrunk(path: Path, *words: str) -> tuple[list[list[str]], str]:
        assert main(["shrink", str(stock), *read, *words, "--out", str(path)]) == 0
        report = capsys.readouterr().out
        rows = [line.split() for line in report.splitlines()]
        return [row for row in rows if row[0] in ATTENTION_TYPES], report

    rows, report = shrunk(tmp_path / "numbers.pt", "--cache=0.125", "--cache-bits=none")
    assert [row[0] for row in rows] == ["decoder", "cross"]
    assert sum(int(row[-1]) for row in rows) <= 0.125 * 4 * 32
    assert "--cache-bits" not in report
    rows, report = shrunk(out, "--cache=0.125")
    for type_, *_, width, bits in rows:
        assert bits in ("8", "4")
        assert f"--cache-bits-in-{type_} {bits}" in report
        assert f"--latent-dim-in-{type_} {width}" in report
    trained = open_model(out, data)
    loss = mean_bits(trained.model, samples(trained, "valid", 1000))
    said = re.search(r"validation loss .*: ([.\d]+), ([-+][.\d]+) from", report)
    assert said
    assert float(said[1]) == pytest.approx(loss, abs=1e-4)
    assert float(said[2])
    assert totals(trained.model)["cache"] <= 0.125 * 16 * 4 * 32
    words = ["--kinds=latent", "--cache=0.01", "--sentences=50", "--out=a.pt"]
    assert main(["shrink", str(stock), *words]) == 1
    assert "cache=0.01" in capsys.readouterr().err


@pytest.mark.parametrize("bits", ["5", "16", "8,8,8", "auto,8", "4,", ""])
def test_bits_that_are_none(bits: str, stock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--to=latent", "--latent-dim=8", f"--cache-bits={bits}", "--out=a.pt"]
    assert main(["reparametrize", str(stock), *words]) == 1
    assert "cache-bits" in capsys.readouterr().err


# ---- heads ---------------------------------------------------------------------------------------

MEASURES = {"confidence", "positional", "rare", "importance", "price", "relevance"}
CROSS_SELF = {"cross_self_attention": True, "no_cross_attention": True}


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes that make whole words of the copy task's, as its dictionary has them."""
    path = tmp_path_factory.mktemp("codes") / "code"
    merges = [f"w {i}</w>" for i in range(10)] + ["w 1", "w1 0</w>", "w1 1</w>"]
    path.write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return path


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words that all depend on the next one, in two sentences; and a sentence that is too long."""

    def tree(length: int) -> str:
        rows = [
            f"{i}\tw{i % 12}\tw\tX\t_\t_\t{i + 1 if i < length else 0}\tobj\t_\t_"
            for i in range(1, length + 1)
        ]
        return "\n".join(rows) + "\n\n"

    path = tmp_path_factory.mktemp("trees") / "trees.conllu"
    path.write_text(tree(5) + tree(8) + tree(2000))
    return path


def analysis(out: Path, *arguments: object) -> dict[str, Any]:
    """The analysis that the command, which succeeds, has written."""
    assert cli.main(["heads", *map(str, arguments), "--out", str(out)]) == 0
    return json.loads((out / "heads.json").read_text())


def test_a_collaborative_model(
    trained: Path, data: Path, codes: Path, trees: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    found = analysis(
        out, trained, data, "--conllu", trees, "--subwords", codes, "--relevance-sentences", 4
    )  # fmt: skip
    about = [found[name] for name in ("arch", "subset", "sentences")]
    assert about == ["transformer_collab", "valid", 50]
    assert found["heads"] == {type_: [4] for type_ in ATTENTION_TYPES}
    assert {"commit", "versions", "hardware", "date", "command"} < set(found)
    assert set(found["measures"]) == MEASURES
    assert found["relevance"]["sentences"] == 4
    for name, measure in found["measures"].items():
        for type_ in ATTENTION_TYPES:
            applies = (
                type_ == "encoder" if "rare" in name else type_ != "cross" or "pos" not in name
            )
            assert (measure[type_] is not None) == applies, (name, type_)
            assert not applies or [len(layer) for layer in measure[type_]] == [4]
    syntax = found["syntax"]
    assert (syntax["sentences"], syntax["too_long"]) == (2, 1)
    up = syntax["relations"]["obj"]["dependent->head"]
    assert (up["pairs"], up["baseline"]) == (11, {"offset": 1, "accuracy": 1})
    assert "(heads.svg)" in (out / "heads.md").read_text()
    assert (out / "heads.pdf").read_bytes().startswith(b"%PDF")
    assert "| obj dependent->head |" in (out / "heads.md").read_text()


@pytest.mark.parametrize(
    ("arch", "options", "said"),
    [
        ("transformer", CROSS_SELF, "--cross-self-attention"),
        ("transformer_align", {"full_context_alignment": True}, "--full-context-alignment"),
        ("transformer", {"no_cross_attention": True}, None),
        ("transformer_align", {}, None),
    ],
)
def test_other_stock_models(
    arch: str, options: dict[str, Any], said: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One line, or the measures of every attention."""
    path, out = toy_checkpoints.write(tmp_path / "model.pt", arch, **options), tmp_path / "out"
    if said is None:
        found = analysis(out, path, toy_checkpoints.COPY, "--cpu", "--relevance-sentences", 2)
        assert set(found["measures"]) >= MEASURES - {"rare"}
        assert {k for k, v in found["measures"]["relevance"].items() if v} == {
            k for k, v in found["heads"].items() if v
        }
        return
    arguments = [str(path), str(toy_checkpoints.COPY), "--out", str(out)]
    assert cli.main(["heads", *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not out.exists()


# ---- shrink --------------------------------------------------------------------------------------


def trains_resumes_and_averages(train: list[str], data: Path, folder: Path) -> None:
    """What is resumed equals what was never interrupted; the mean is that of the weights."""
    more = ("--max-tokens=200", "--disable-validation", "--cpu", "--save-interval-updates=2")
    for name, updates in (("whole", 4), ("halves", 2), ("halves", 4)):
        succeed(*train, *more, f"--max-update={updates}", "--save-dir", folder / name)
    saved = [folder / name / f"checkpoint_1_{n}.pt" for name, n in (("halves", 2), ("halves", 4))]
    resumed, whole = (open_model(folder / name / saved[1].name, data).model.state_dict()
                      for name in ("halves", "whole"))  # fmt: skip
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    first = open_model(saved[0], data).model.state_dict()
    mean = folder / "mean.pt"
    succeed("fairseq-collab", "average", *saved, "--out", mean)
    for name, weight in open_model(mean, data).model.named_parameters():
        torch.testing.assert_close(weight, (first[name] + whole[name]) / 2)
    assert translations(mean, data)


def test_a_model_shrinks_translates_and_trains_on(
    stock: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Heads, units and the cache in one command, by prices of ``prices``; plans of many sizes."""
    out, folder = tmp_path / "small.pt", tmp_path / "prices"
    read = [str(stock), str(data), "--sentences=50", "--cpu"]
    assert main(["prices", *read, "--out", str(folder)]) == 0
    assert "feed-forward block" in capsys.readouterr().out
    targets = ["--cache=0.25", "--parameters=0.7", "--check", "--prices", str(folder)]
    assert main(["shrink", *read, *targets, "--out", str(out)]) == 0
    report = capsys.readouterr().out
    assert "units" in report
    assert re.search(r"price: \d\.\d{4} .* calibration", report)
    assert "validation loss" in report
    small = open_model(out, data)
    assert small.arch == "transformer_latent"
    assert translations(out, data)
    lines = [line for line in report.splitlines() if line.startswith("fairseq-train")]
    train, of_original = map(shlex.split, lines)
    trains_resumes_and_averages(train, data, tmp_path)
    succeed(*of_original, "--cpu", "--max-update=1", "--disable-validation")
    assert main(["shrink", *read, *targets, "--force", "--out", str(out)]) == 1
    assert "small-original" in capsys.readouterr().err
    assert main(["shrink", *read, "--prices", str(folder)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) > 5
    with pytest.raises(SystemExit):
        main(["shrink", *read, "--cache=0.5"])
    assert "needs --out" in capsys.readouterr().err
