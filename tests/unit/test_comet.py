"""COMET from a local folder: scored, recorded, and refused where it could not be trusted.

What needs unbabel-comet, which cannot be installed beside today's other packages, is skipped
without it: run these tests in an environment of its own.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from refusals import refusing
from run_folders import some_record, write_generation, write_run, write_translations

from collab_common.errors import UserError
from fairseq_collab.commands import score as command
from fairseq_collab.commands.score import main
from fairseq_collab.metrics import comet
from fairseq_collab.runs.record import Record
from fairseq_collab.runs.translations import System

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ein", "haus", "a", "house", "."]
SOURCES, REFERENCES = ["a house .", "a"], ["ein haus .", "ein"]


def folder_of(path: Path, weights: Any, **hparams: Any) -> Path:
    (path / "checkpoints").mkdir(parents=True)
    (path / "hparams.yaml").write_text(yaml.safe_dump(hparams))
    torch.save(weights, path / "checkpoints" / "model.ckpt")
    return path


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no hparams.yaml; give a folder with"):
        comet.check(tmp_path)
    (tmp_path / "hparams.yaml").touch()
    with pytest.raises(UserError, match=r"there is no checkpoints/model.ckpt"):
        main(["generation.txt", "--comet", str(tmp_path)])


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    monkeypatch.setitem(sys.modules, "comet.models", None)
    folder = folder_of(tmp_path / "model", {})
    with pytest.raises(UserError, match=r"COMET needs unbabel-comet.*'\.\[comet\]'"):
        comet.check(folder)


def test_texts_of_different_lengths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 sources, 1 translations, 2 references; give as many"):
        comet.comet(tmp_path, SOURCES, REFERENCES[:1], REFERENCES, "cpu")


def test_a_record_keeps_it(tmp_path: Path) -> None:
    record = some_record(comet=0.81, comet_signature="comet:RegressionMetric|model:ab")
    record.write(tmp_path / "score.json")
    assert Record.read(tmp_path / "score.json").comet == 0.81


class Bad:
    """A pickle that would make a file."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("executed",)


def test_weights_that_would_execute_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.ckpt"
    torch.save({"state_dict": {"a": Bad()}}, path)
    with pytest.raises(UserError, match="cannot be loaded without executing what is in it"):
        comet._weights(path)
    path.write_bytes(pickle.dumps(Bad()))
    with pytest.raises(UserError, match=r"cannot be loaded without executing|is damaged"):
        comet._weights(path)
    assert not (tmp_path / "executed").exists()
    torch.save({"weights": {}}, path)
    with pytest.raises(UserError, match="has no state_dict"):
        comet._weights(path)


# ---- with the library ----------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny random model as its authors publish them, with its encoder beside it."""
    pytest.importorskip("comet")
    from comet.models import str2model
    from transformers import BertConfig, BertTokenizerFast

    encoder = tmp_path / "model" / "encoder"
    encoder.mkdir(parents=True)
    (encoder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizerFast(str(encoder / "vocab.txt")).save_pretrained(encoder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    BertConfig(vocab_size=len(WORDS), intermediate_size=8, **sizes).save_pretrained(encoder)
    hparams = {
        "encoder_model": "BERT",
        "pretrained_model": "somebody/elses-encoder",
        "hidden_sizes": [4],
        "class_identifier": "regression_metric",
    }
    torch.manual_seed(1)
    local = {"load_pretrained_weights": False, "local_files_only": True}
    given = {k: v for k, v in hparams.items() if k != "class_identifier"}
    made = str2model["regression_metric"](**{**given, "pretrained_model": str(encoder)}, **local)
    weights = {"state_dict": made.state_dict(), "pytorch-lightning_version": "2.0"}
    (tmp_path / "model" / "checkpoints").mkdir()
    torch.save(weights, tmp_path / "model" / "checkpoints" / "model.ckpt")
    (tmp_path / "model" / "hparams.yaml").write_text(yaml.safe_dump(hparams))
    return tmp_path / "model"


def test_scores_are_the_librarys(model: Path) -> None:
    found = comet.comet(model, SOURCES, REFERENCES[::-1], REFERENCES, "cpu")
    loaded = comet.load(model)
    pairs = zip(SOURCES, REFERENCES[::-1], REFERENCES, strict=True)
    samples = [{"src": s, "mt": h, "ref": r} for s, h, r in pairs]
    theirs = loaded.predict(samples, batch_size=1, gpus=0, progress_bar=False)
    assert found.score == pytest.approx(theirs["system_score"], abs=1e-6)
    assert found.signature.startswith("comet:RegressionMetric|model:")
    with (model / "encoder" / "vocab.txt").open("a") as file:
        file.write("neu\n")
    assert comet.signature(model, loaded) != found.signature


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generation = write_generation(tmp_path / "out", REFERENCES)
    with generation.open("a") as file:
        file.write("".join(f"S-{i}\t{line}\n" for i, line in enumerate(SOURCES)))
    (tmp_path / "ref").write_text("\n".join(REFERENCES) + "\n")
    options = ["--reference", str(tmp_path / "ref"), "--comet", str(model)]
    assert main([str(generation), *options, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["comet"]["sentences"] == 2
    assert "|unbabel-comet:" in printed["comet"]["signature"]
    assert main([str(generation), *options]) == 0
    assert "COMET " in capsys.readouterr().out


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """Two runs that are scored already."""
    data, runs = tmp_path / "data", tmp_path / "runs"
    (data / "raw").mkdir(parents=True)
    for language, lines in (("en", SOURCES), ("de", REFERENCES)):
        (data / "raw" / f"test.{language}").write_text("\n".join(lines) + "\n")
        (data / f"test.en-de.{language}.idx").touch()
    task = {"data": str(data), "source_lang": "en", "target_lang": "de"}
    for seed, translations in enumerate((REFERENCES, REFERENCES[::-1]), start=1):
        run = write_translations(write_run(runs, "collab", 64, seed), translations, REFERENCES)
        config = {"task": task, "dataset": {"gen_subset": "test"}, "model": {}}
        (run / "config.yaml").write_text(yaml.safe_dump(config))
    return runs


def test_what_others_add_meanwhile_stays(scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(system: System, *_: Any) -> comet.Comet:
        score = system.path / "score.json"
        replace(Record.read(score), contrast_signature="pairs:1").write(score)
        return comet.Comet(0.8, "comet:none", 2)

    monkeypatch.setattr(comet, "check", lambda _: None)
    monkeypatch.setattr(command, "comet_of", slow)
    assert main([str(scored), "--comet", "model"]) == 0
    for kept in map(Record.read, scored.glob("*/score.json")):
        assert (kept.comet, kept.contrast_signature) == (0.8, "pairs:1")


def test_runs_keep_it(model: Path, scored: Path) -> None:
    """Nothing else is done again."""
    assert main([str(scored), "--comet", str(model)]) == 0
    kept = [Record.read(path) for path in sorted(scored.glob("*/score.json"))]
    expected = comet.comet(model, SOURCES, REFERENCES, REFERENCES, "cpu")
    assert kept[0].comet == pytest.approx(expected.score)
    assert {record.comet_signature for record in kept} == {expected.signature}
    assert kept[0].comet != kept[1].comet


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_identifier": "os.system"}, "class_identifier is 'os.system', none of referen"),
        ({"hidden_sizes": [5]}, "model.ckpt: does not fit its hparams.yaml: size mismatch"),
        ({"layer": "0"}, "has, unlike the model, layerwise_attention"),
    ],
)
def test_folders_that_do_not_fit(model: Path, change: dict[str, Any], message: str) -> None:
    hparams = yaml.safe_load((model / "hparams.yaml").read_text())
    (model / "hparams.yaml").write_text(yaml.safe_dump({**hparams, **change}))
    with refusing(message):
        comet.load(model)


def test_yaml_that_would_execute_code(model: Path) -> None:
    (model / "hparams.yaml").write_text("a: !!python/object/apply:os.mkdir [executed]\n")
    with pytest.raises(UserError, match="is not plain YAML"):
        comet.load(model)


def test_an_encoder_is_not_downloaded(model: Path) -> None:
    (model / "encoder").rename(model / "moved")
    with pytest.raises(UserError, match="encoder 'somebody/elses-encoder' is not on this machine"):
        comet.load(model)
    (model / "encoder").mkdir()
    with pytest.raises(UserError, match=r"hparams.yaml: makes no model with its encoder"):
        comet.load(model)


def test_weights_that_are_missing(model: Path) -> None:
    path = model / "checkpoints" / "model.ckpt"
    content = torch.load(path, weights_only=True)
    del content["state_dict"]["estimator.ff.0.weight"]
    torch.save(content, path)
    with pytest.raises(UserError, match=r"lacks estimator.ff.0.weight and 0 more weights"):
        comet.load(model)
