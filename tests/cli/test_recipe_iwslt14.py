"""recipes/iwslt14.sh, from an archive to scores."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import succeed as command
from data.corpus_archives import filled, iwslt14
from data.recipe_runs import environment, succeed, trained

pytestmark = pytest.mark.slow

FOLDERS = ("data-text", "data")


@pytest.fixture(scope="module")
def archive(shared_data: Path) -> bytes:
    return iwslt14(shared_data)["de-en.tgz"]


@pytest.fixture(scope="module")
def finished(archive: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, with the archive where a download would put it."""
    out = tmp_path_factory.mktemp("recipe") / "out"
    out.mkdir()
    filled(out / "data-archives", {"de-en.tgz": archive})
    told = succeed("iwslt14", out)
    assert "model-vanilla" in told.partition("== the scores")[2]
    return out


def test_from_download_to_scores(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {"data-archives", *FOLDERS, "runs"}
    score = trained(finished).score()
    assert score is not None
    assert score.sentences == 30
    assert score.averaged == ["checkpoint2.pt", "checkpoint3.pt"]
    assert score.tokenised_bleu is not None
    assert "tok:13a" in str(score.bleu_signature)
    assert "compounds:split" in str(score.compound_split_signature)
    assert (score.method, score.arch) == ("vanilla", "transformer")
    table = ("fairseq-collab", "table", finished / "runs", "--x", "none", "--against", "none")
    assert "| vanilla " in command(*table)


def test_a_method_that_prunes(finished: Path, tmp_path: Path) -> None:
    """Heads in groups are elected once, pruned and fine-tuned, next to the run that is there."""
    for name in ("data-archives", *FOLDERS):
        (tmp_path / name).symlink_to(finished / name)
    shutil.copytree(finished / "runs", tmp_path / "runs")
    again = ("--from", tmp_path / "data-archives", "--method", "grouped_pruned")
    succeed("iwslt14", tmp_path, *again)
    run = "model-grouped_head_groups-2_group_feature-output_group_alpha-0.5_group_beta-0.7"
    found = {path.parent.name: path for path in tmp_path.glob("runs/*/score.json")}
    assert found.keys() == {"model-vanilla", run, f"model-{run}"}
    heads = json.loads(found[f"model-{run}"].read_text())["heads_by_type"]
    assert heads == {"encoder": [2], "decoder": [2], "cross": [2]}
    votes = tmp_path / "pruned" / f"{run}.votes.json"
    before = votes.stat().st_mtime_ns
    succeed("iwslt14", tmp_path, *again)
    assert votes.stat().st_mtime_ns == before, "voted again"


def test_second_call_has_nothing_to_do(finished: Path) -> None:
    files = [trained(finished).score_file, *(finished / one / "manifest.json" for one in FOLDERS)]
    before = [path.read_bytes() for path in files]
    told = succeed("iwslt14", finished, "--from", finished / "data-archives")
    assert f"{finished}/data: is up to date, nothing to do" in told
    assert "1 runs: 1 finished, 0 to do" in told
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variety", "x"], "--variety: unknown option"),
        (["--gpus", "3"], "an update is 1 batches; give a divisor"),
        (["--method", "best"], "--method best: one of collab, concatenated, vanilla, headsize"),
        (["--", "--max-epoch=1"], "--max-epoch=1: what follows -- is overrides of configs/"),
        (["--gpus", "1"], "--gpus 1: this machine has 0"),
    ],
)
def test_wrong_usage_and_too_few_gpus(options: list[str], message: str, tmp_path: Path) -> None:
    """Rejected at the start, not after a day of data stages."""
    command = ["bash", "recipes/iwslt14.sh", "--out", str(tmp_path / "out"), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "out").exists()
