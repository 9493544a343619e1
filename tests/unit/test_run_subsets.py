"""Scores of a run on another test set of its data folder: beside its own, never instead of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import REPOSITORY
from refusals import wrong_usage
from run_folders import (
    REFERENCES,
    some_record,
    spoilt,
    start_run,
    write_generation,
    write_run,
    write_translations,
)

from collab_common.errors import UserError
from fairseq_collab.commands import compare, score
from fairseq_collab.commands import table as table_command
from fairseq_collab.metrics import bleu
from fairseq_collab.results import table
from fairseq_collab.results.table_content import content_of, read_table, table_of
from fairseq_collab.runs.evaluate import check_test_set
from fairseq_collab.runs.record import Failure
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.trained import averaged_model
from fairseq_collab.runs.translations import read_system

CHECKPOINT = REPOSITORY / "tests" / "stored" / "transformer_collab_1" / "checkpoint.pt"
CONFIG = """\
dataset: {{gen_subset: test}}
checkpoint: {{keep_last_epochs: -1, keep_interval_updates: -1}}
optimization: {{max_epoch: 0}}
task: {{data: {data}, source_lang: en, target_lang: de}}
"""


def add_subset(folder: Path, hypotheses: list[str], subset: str = "test1") -> Path:
    """Give a run the same translations as its own, but for ``hypotheses``, of another test set."""
    facts = json.loads((folder / "score.json").read_text())
    found = bleu.score(hypotheses, REFERENCES)
    names = {"subset": subset, "hypotheses": f"generation.{subset}.txt"}
    facts |= {**names, "bleu": found.bleu, "chrf": found.chrf}
    (folder / f"score.{subset}.json").write_text(json.dumps(facts))
    write_generation(folder / f"generation.{subset}.txt", hypotheses)
    return folder


def two_runs(parent: Path) -> list[Path]:
    """The second is far better on its own test set, and worse by two sentences on the other."""
    bad = {"concatenated": (25, 2), "collab": (2, 4)}
    return [
        add_subset(
            write_translations(write_run(parent, name, 64), spoilt(own), REFERENCES), spoilt(other)
        )
        for name, (own, other) in bad.items()
    ]


def test_files_of_a_subset(tmp_path: Path) -> None:
    folder = start_run(tmp_path, "run")
    (folder / "config.yaml").write_text(CONFIG.format(data=tmp_path))
    run = Run(folder)
    other = run.for_subset("test1")
    assert (other.score_file.name, other.generation.name) == (
        "score.test1.json",
        "generation.test1.txt",
    )
    assert (other.average, other.lock_file) == (run.average, run.lock_file)
    for own in (None, "test"):
        assert run.for_subset(own).score_file.name == "score.json"
        assert run.for_subset(own).generation.name == "generation.txt"


@pytest.mark.parametrize("name", ["", "../test", "raw/test", ".", "test*"])
def test_what_is_no_name_of_a_test_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"--gen-subset: '.*' is no name of a test set; give one"):
        Run(start_run(tmp_path, "run")).for_subset(name)


def test_verdicts_of_a_subset(tmp_path: Path) -> None:
    run = Run(start_run(tmp_path, "run", verdict="failed", reason="out of memory"))
    other = Run(run.folder, "test1")
    assert (other.verdict(), other.state()) == ("failed", "failed (out of memory)")
    other.finish(some_record())
    assert (other.verdict(), other.state(), other.reason()) == ("finished", "finished", None)
    assert run.verdict() == "failed", "its own scores are still missing"
    other.score_file.unlink()
    run.finish(some_record())
    assert (other.verdict(), other.state()) == ("unscored", "not scored on test1")
    with pytest.raises(UserError, match="run: is not scored on test1"):
        other.reference()


@pytest.mark.parametrize("later", [{"averaged": ["checkpoint9.pt"]}, {"train_updates": 9}])
def test_scores_of_an_earlier_model_do_not_count(tmp_path: Path, later: dict[str, object]) -> None:
    """The run was trained further, and scored again on its own test set only."""
    run = Run(write_run(tmp_path, "collab", 64))
    other = Run(add_subset(run.folder, REFERENCES), "test1")
    assert other.verdict() == "finished"
    run.finish(replace(run.score(), **later))
    assert (other.verdict(), other.score(), run.verdict()) == ("unscored", None, "finished")


def test_table_of_a_subset(tmp_path: Path) -> None:
    two_runs(tmp_path)
    own, other = (read_table([tmp_path], subset=subset) for subset in (None, "test1"))
    assert other.finished[0].record.subset == "test1"
    gains = [found.differences[0] for found in (own, other)]
    assert gains[0].mean > 0 > gains[1].mean
    (_, p), (_, other_p) = (gain.p[0] for gain in gains)
    assert p < 0.05
    assert other_p >= 0.5, "two sentences differ in these translations"
    text = table.markdown(other)
    assert "# BLEU against key dimension: toy, test1 (40 sentences)" in text
    assert "--x key_dim --gen-subset test1`, from the runs' `score.test1.json`\n" in text
    assert "--x key_dim`, from the runs' `score.json`\n" in table.markdown(own)


def test_the_command_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(tmp_path)
    assert table_command.main([str(tmp_path), "--gen-subset", "test1"]) == 0
    assert capsys.readouterr().out == table.markdown(read_table([tmp_path], subset="test1"))


def test_a_table_that_was_written_down(tmp_path: Path) -> None:
    two_runs(tmp_path)
    for subset in (None, "test1"):
        found = read_table([tmp_path], subset=subset)
        content = json.loads(json.dumps(content_of(found, subset)))
        assert table.markdown(table_of(content, found.command)) == table.markdown(found)


def test_runs_that_are_not_scored_on_it_are_named(tmp_path: Path) -> None:
    folders = two_runs(tmp_path)
    (folders[1] / "score.test1.json").unlink()
    start_run(tmp_path, "lost", verdict="diverged", reason="loss is nan")
    text = table.markdown(read_table([tmp_path], subset="test1"))
    assert "- collab_64_1: not scored on test1\n" in text
    assert "- lost: diverged (loss is nan)\n" in text
    expected = (
        r"no finished run; collab_64_1: not scored on test2; score them \(fairseq-collab score "
        r"RUNS --gen-subset test2\)$"
    )
    with pytest.raises(UserError, match=expected):
        read_table([tmp_path], subset="test2")


def test_a_broken_score_of_a_subset_is_named(tmp_path: Path) -> None:
    folder = two_runs(tmp_path)[0]
    (folder / "score.test1.json").write_text('{"version": 2}')
    with pytest.raises(UserError, match=r"score\.test1\.json: lacks task, run, method, "):
        read_table([tmp_path], subset="test1")
    (folder / "score.test1.json").write_text('{"version": 0}')
    with pytest.raises(UserError, match=r"score\.test1\.json: version 0, not 2"):
        read_table([tmp_path], subset="test1")
    with pytest.raises(UserError, match=r"score\.test1\.json: version 0, not 2"):
        read_system(folder, subset="test1")


def test_compare_on_a_subset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [str(folder) for folder in two_runs(tmp_path)]
    for option, better in (([], True), (["--gen-subset", "test1"], False)):
        assert compare.main([*folders, *option, "--samples", "50", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)["results"][0]
        assert (result["difference"] > 0) == better
    expected = (
        r"collab_64_1: not a finished run: not scored on test2; give a run that has a "
        r"score\.test2\.json, or an output of fairseq-generate"
    )
    with pytest.raises(UserError, match=expected):
        compare.main([folders[1], folders[0], "--gen-subset", "test2"])


def test_only_runs_have_test_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_generation(tmp_path / "a.out", REFERENCES)
    for command, files in ((compare.main, [str(file)] * 2), (score.main, [str(file)])):
        with wrong_usage(capsys, "error: argument --gen-subset: only "):
            command([*files, "--reference", str(file), "--gen-subset", "test1"])
    with wrong_usage(capsys, "give one output of fairseq-generate, or runs"):
        score.main([str(file), str(file), "--reference", str(file)])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Trained, but for its scores; its data folder has the sets test and test1."""
    data, folder = tmp_path / "data", tmp_path / "run"
    (data / "raw").mkdir(parents=True)
    for subset in ("test", "test1"):
        (data / "raw" / f"{subset}.de").write_text("Hallo\n")
        (data / f"{subset}.en-de.en.idx").touch()
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG.format(data=data))
    shutil.copy(CHECKPOINT, folder / "checkpoints" / "checkpoint_best.pt")
    (folder / "trained").touch()
    return Run(folder, "test1")


def test_a_test_set_that_the_data_folder_lacks(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert check_test_set(run) == "test1"
    assert check_test_set(Run(run.folder)) == "test"
    (data / "test1.en-de.en.idx").rename(data / "test1.de-en.en.idx")
    assert check_test_set(run) == "test1", "binarised for the other direction, which fairseq takes"
    (data / "test1.de-en.en.idx").unlink()
    expected = r"data: test1 is not binarised: there is no test1\.en-de\.en; prepare the data again"
    with pytest.raises(UserError, match=expected):
        check_test_set(run)
    (data / "raw" / "test1.de").unlink()
    expected = r"data: there is no raw/test1\.de; give a test set that is there \(test\)$"
    with pytest.raises(UserError, match=expected):
        check_test_set(run)
    shutil.rmtree(data)
    with pytest.raises(UserError, match=r"there is no raw/test1\.de; prepare the data again"):
        check_test_set(run)


def test_nothing_is_written_where_the_data_folder_lacks_it(run: Run) -> None:
    before = sorted(run.folder.rglob("*"))
    with pytest.raises(UserError, match=r"there is no raw/test2\.de"):
        score.main([str(run.folder), "--gen-subset", "test2"])
    assert sorted(path for path in run.folder.rglob("*") if path.name != "lock") == before


def test_all_data_folders_are_looked_at_before_any_run(run: Run, tmp_path: Path) -> None:
    run.trained_file.unlink()  # else it would be translated
    other = start_run(tmp_path, "without")
    (other / "config.yaml").write_text(CONFIG.format(data=tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"nowhere: there is no raw/test1\.de"):
        score.main([str(run.folder), str(other), "--gen-subset", "test1"])


def test_the_model_of_the_own_scores_is_taken(run: Run) -> None:
    config = run.config()
    assert averaged_model(run, config) == ["checkpoint_best.pt"]
    shutil.rmtree(run.checkpoints)
    Run(run.folder).finish(some_record(averaged=["checkpoint5.pt", "checkpoint6.pt"]))
    before = run.average.read_bytes()
    assert averaged_model(run, config) == ["checkpoint5.pt", "checkpoint6.pt"]
    assert run.average.read_bytes() == before
    run.average.unlink()
    with pytest.raises(UserError, match=r"has no checkpoint_best\.pt"):
        averaged_model(run, config)


@pytest.mark.parametrize("subset", ["test1", None])
def test_half_a_training_is_not_scored(run: Run, subset: str | None) -> None:
    """By its own scores it would be finished, and a sweep would not go on with it."""
    run.trained_file.unlink()
    half = Run(run.folder, subset)
    with pytest.raises(UserError, match=r"run: is not trained: incomplete; finish it"):
        averaged_model(half, half.config())
    Run(run.folder).fail(Failure("diverged", "loss is nan"))
    with pytest.raises(UserError, match=r"run: is not trained: diverged \(loss is nan\); finish"):
        averaged_model(half, half.config())
    assert not run.average.exists()


def test_of_several_runs_an_old_score_is_named(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    Run(run.folder).score_file.write_text('{"version": 2, "bleu": 1.0}')
    assert score.main([str(run.folder.parent)]) == 1
    assert "score.json: lacks task, run, method, arch, " in capsys.readouterr().err
