"""Stages made by commands: whole or not there, resumable where asked, one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_running, program, wait_for
from text_tools import Completed, command, error_line, manifest, names, run

from collab_common.errors import UserError
from collab_common.files import locked
from collab_common.folder import MANIFEST
from data_prep import corpus_recipe, stages
from data_prep.stages import STARTED, inputs_from

MODULE = "stages"


def stage(out: Path, name: str, *words: object) -> Completed:
    """`words` are options, and a command after "--"."""
    return run(MODULE, "--out", out, "--name", name, *words)


def made(out: Path, name: str, *words: object) -> Path:
    done = stage(out, name, *words)
    assert done.returncode == 0, done.stderr
    return out / name


def test_a_command_fills_a_folder(tmp_path: Path) -> None:
    folder = made(tmp_path, "one", "--", "sh", "-c", "echo text > {}/file")
    assert (folder / "file").read_text() == "text\n"
    told = manifest(folder)
    assert told["options"]["command"] == ["sh", "-c", "echo text > {}/file"]
    assert names(tmp_path) == {"one"}
    again = stage(tmp_path, "one", "--", "sh", "-c", "echo text > {}/file")
    assert "one: is up to date, nothing to do" in again.stdout


def test_where_the_recipe_is_does_not_matter(tmp_path: Path) -> None:
    """The same in another folder, and under another spelling of it."""
    told = []
    for out in (tmp_path / "a", tmp_path / "b"):
        made(out, "one", "--", "sh", "-c", "echo 1 > {}/file")
        folder = made(
            out, "two", "--after", "one", "--stdout", "copy", "--", "cat", out / "one/file"
        )
        told.append({key: manifest(folder)[key] for key in ("options", "inputs", "outputs")})
    assert told[0] == told[1]
    (tmp_path / "a").rename(tmp_path / "moved")
    out = tmp_path / "moved"
    again = stage(out, "two", "--after", "one", "--stdout", "copy", "--", "cat", out / "one/file")
    assert "up to date" in again.stdout


def test_input_that_changed(tmp_path: Path) -> None:
    made(tmp_path, "one", "--", "sh", "-c", "echo 1 > {}/file")
    two = ("two", "--after", "one", "--", "cp", tmp_path / "one/file", "{}/copy")
    made(tmp_path, *two)
    made(tmp_path, "one", "--force", "--", "sh", "-c", "echo 2 > {}/file")
    error = error_line(stage(tmp_path, *two), MODULE)
    assert "two: made from something else (inputs.one/file: changed); give --force" in error
    (tmp_path / "one" / "file").write_text("3\n")
    with pytest.raises(UserError, match="no longer what its manifest says"):
        inputs_from(tmp_path, ["one"])


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (["sh", "-c", "echo x > {}/half; exit 3"], "sh failed with status 3"),
        (["sh", "-c", "kill -9 $$"], "sh was killed by signal 9"),
        (["no-such-program"], "no-such-program: no such command"),
    ],
)
def test_failure_leaves_nothing(program: list[str], message: str, tmp_path: Path) -> None:
    assert message in error_line(stage(tmp_path, "one", "--", *program), MODULE)
    assert names(tmp_path) == set()


def test_resumed(tmp_path: Path) -> None:
    """What a failed command has made is there for the next one; other options are refused."""
    script = "test -e {}/half || { touch {}/half; exit 1; }; touch {}/whole"
    error_line(stage(tmp_path, "one", "--resume", "--", "sh", "-c", script), MODULE)
    assert names(tmp_path / ".one.unfinished") == {"half", STARTED}
    other = stage(tmp_path, "one", "--resume", "--", "true")
    assert ".one.unfinished: was started with something else (options.command: [" in error_line(
        other, MODULE
    )
    folder = made(tmp_path, "one", "--resume", "--", "sh", "-c", script)
    assert {"half", "whole"} <= names(folder)
    assert names(tmp_path) == {"one"}


def test_a_failure_after_the_commands_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that is done, but not yet recorded, is not done again."""
    script = "test -e {}/done && echo again > {}/done || touch {}/done"
    words = ["--out", str(tmp_path), "--name", "one", "--resume", "--", "sh", "-c", script]

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail)
        assert stages.main(words) == 1
    assert {"done", MANIFEST} <= names(tmp_path / ".one.unfinished")
    for _ in range(2):  # the second finds it finished
        assert stages.main(words) == 0
    assert (tmp_path / "one" / "done").read_text() == "again\n"


def test_resumed_where_a_link_leads(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "one").symlink_to(disk / "one")
    made(tmp_path / "out", "one", "--resume", "--", "sh", "-c", "touch {}/done")
    assert "done" in names(disk / "one")
    assert names(tmp_path / "out") == {"one"}
    (tmp_path / "out" / "two").symlink_to(disk / "other")
    error_line(stage(tmp_path / "out", "two", "--resume", "--", "false"), MODULE)
    assert names(disk) == {"one", ".other.unfinished"}


def test_a_corpus_finds_its_text_from_where_a_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, languages = tmp_path / "out", ("en", "de")

    def text(folder: Path) -> dict[str, object]:
        (folder / "train.en").touch()
        return {"checked": {}, "form": {}}

    def preprocess(_module: str, arguments: list[str], folder: Path) -> None:
        prefix = arguments[arguments.index("--trainpref") + 1]
        assert (folder / f"{prefix}.en").exists()
        raise UserError("found")

    stages.build_stage(out, "text", inputs={}, options={}, build=text)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (out / "data").symlink_to(tmp_path / "far" / "away" / "data")
    monkeypatch.setattr(corpus_recipe, "run_module", preprocess)
    corpus = corpus_recipe.Corpus("none", "", languages, (), {}, lambda _: {}, {})
    with pytest.raises(UserError, match="found"):
        corpus_recipe.binarise_text(corpus, out, jobs=1)


def test_second_instance(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock"):
        error = error_line(stage(tmp_path, "one", "--", "true"), MODULE)
    assert f"another process (pid {os.getpid()}) is at work here" in error


def test_command_does_not_outlive_us(tmp_path: Path) -> None:
    words = command(MODULE, "--out", tmp_path, "--name", "one", "--", "sleep", "60")
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def sleeping() -> list[int]:
        """Its children that have become what was asked for; others come and go before."""
        found = [int(pid) for pid in listed.read_text().split()]
        return [pid for pid in found if program(pid) == "sleep"]

    assert wait_for(sleeping)
    (child,) = sleeping()
    process.kill()
    process.wait()
    assert wait_for(lambda: not is_running(child))
    made(tmp_path, "one", "--", "true")
    assert names(tmp_path) == {"one"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children outlive their parent")
def test_a_child_whose_parent_is_dead_already_ends() -> None:
    """The kernel's signal is for a death to come."""
    late = "import os; from data_prep.child import die_with; die_with({}); print('alive')"
    for parent, output in (("os.getppid()", "alive\n"), ("os.getppid() + 1", "")):
        done = subprocess.run(
            [sys.executable, "-c", late.format(parent)], capture_output=True, text=True
        )
        assert done.stdout == output


def test_usage(tmp_path: Path) -> None:
    done = stage(tmp_path, "one")
    assert "no command after --" in error_line(done, MODULE, status=2)
    done = stage(tmp_path, "one", "--after", "zero", "--", "true")
    assert f"{tmp_path}/zero: is not there yet" in error_line(done, MODULE)
