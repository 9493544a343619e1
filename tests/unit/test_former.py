"""Results of earlier versions' recipes: what is refused of them; stored ones are read elsewhere."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from commands import REPOSITORY

from collab_common.errors import UserError
from fairseq_collab.former.kept import add_heads, tables
from fairseq_collab.former.perplexity import language_model, make, without_model
from fairseq_collab.former.results import reparametrized
from fairseq_collab.runs.run import Run

STORED = REPOSITORY / "tests" / "stored"


@pytest.mark.parametrize(
    ("spelling", "folder"),
    [
        ("runs/a/model.pt", "runs/a"),
        ("runs//a/model.pt", "./runs/a/"),
        ("{here}/runs/a/model.pt", "runs/a"),
        (r"my\ runs/a/model.pt", "my runs/a"),
    ],
)
def test_a_path_has_many_spellings(
    spelling: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"fairseq-eval-lm a --path {spelling.format(here=tmp_path)} --gen-subset test "
    expected = "fairseq-eval-lm a --path MODEL --gen-subset test"
    assert without_model(command, Path(folder, "model.pt")) == expected


def test_what_is_refused_of_language_models(tmp_path: Path) -> None:
    """A log without a result, models that were measured differently, data without a manifest."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        shutil.copytree(STORED / "older" / "language_models" / "grouped-2", folder)
        checkpoint = STORED / "checkpoints" / "transformer_lm_grouped_heads.pt"
        shutil.copy(checkpoint, folder / "model.pt")
    with pytest.raises(UserError, match=r"manifest.json: no such file"):
        make([one], tmp_path, tmp_path, cpu=True)
    log = other / "test.log"
    log.write_text(log.read_text().replace("--tokens-per-sample 16", "--tokens-per-sample 8"))
    with pytest.raises(UserError, match=r"other: measured with .*, the first model with"):
        make([one, other], tmp_path, tmp_path, cpu=True)
    log.write_text("$ fairseq-eval-lm\nkilled\n")
    with pytest.raises(UserError, match=r"test.log: no result of fairseq-eval-lm in it; remove"):
        language_model(other)


def test_what_is_refused_of_reparametrised_models(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result in it; give the OUT of"):
        reparametrized(tmp_path)
    shutil.copytree(STORED / "older" / "reparametrize" / "trained", tmp_path / "trained")
    (tmp_path / "trained" / "valid.log").write_text("Killed\n")
    with pytest.raises(UserError, match=r"valid.log: no validation loss in it"):
        reparametrized(tmp_path)


def test_folders_of_one_name_are_refused(tmp_path: Path) -> None:
    """Their tables go where their names say."""
    (tmp_path / "b" / "runs").mkdir(parents=True)
    with pytest.raises(UserError, match=r"a/runs: another folder has this name.*; rename"):
        tables([tmp_path / "a" / "runs", tmp_path / "b" / "runs"], add_heads, tmp_path / "out")


def test_heads_by_site_of_a_record_of_version_1(tmp_path: Path) -> None:
    """From the model; what else the record says stays."""
    folder = tmp_path / "key_dim-8"
    shutil.copytree(STORED / "sweep" / "key_dim-8", folder)
    text = (folder / "config.yaml").read_text().replace("/tmp/stored/copy", str(STORED / "copy"))
    plugin = str(REPOSITORY / "fairseq_collab")
    (folder / "config.yaml").write_text(text.replace("/tmp/stored/fairseq_collab", plugin))
    before = Run(folder).score()
    assert before is not None
    assert before.heads_by_site is None
    add_heads(Run(folder))
    heads = {site: [2] for site in ("encoder", "decoder", "cross")}
    assert Run(folder).score() == dataclasses.replace(before, heads_by_site=heads)
