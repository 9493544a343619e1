"""Folders that are made as a whole, whatever happens to the process; and its progress."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from refusals import refusing

from collab_common import progress
from collab_common.command import check_folder_of
from collab_common.errors import UserError
from collab_common.folder import build_folder, whole_folder
from collab_lab.cli import sweep


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    former = tmp_path / "out"
    former.mkdir()

    def stopped() -> None:
        with whole_folder(former) as folder:
            (folder / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert list(former.iterdir()) == []


def test_a_failure_names_the_file_and_the_folder(tmp_path: Path) -> None:
    """A full disk has no file to name."""
    text, out = tmp_path / "text.de", tmp_path / "out"

    def read(folder: Path) -> dict[str, str]:
        return {"text": text.read_text()}

    def fill(folder: Path) -> dict[str, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    for build, fault in ((read, str(text)), (fill, "No space left on device")):
        with refusing(str(out), fault):
            build_folder(out, {}, build)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for kind in ("new-1", "former"):
        (tmp_path / f".out.{kind}").mkdir()
        (tmp_path / f".out.{kind}" / "half").write_text("half")
    with whole_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]


def killed_between_its_renames(out: Path) -> None:
    """What was there stands aside, and nothing in its place."""
    out.rename(out.with_name(f".{out.name}.former"))
    out.with_name(f".{out.name}.new-1").mkdir()


def test_what_was_there_outlives_a_killed_process_and_a_failed_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "whole").write_text("whole")
    killed_between_its_renames(out)
    with pytest.raises(KeyboardInterrupt), whole_folder(out):
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "whole").read_text() == "whole"


def test_what_was_there_comes_back_if_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = tmp_path / "out", Path.rename
    out.mkdir()
    (out / "whole").write_text("whole")

    def fail(path: Path, target: Path) -> Path:
        if ".new-" in path.name:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input"), whole_folder(out):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "whole").read_text() == "whole"


def test_a_manifest_of_something_else(tmp_path: Path) -> None:
    """Only what was made here is removed, whatever is said."""
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3}')
    with pytest.raises(UserError, match=r"manifest\.json"):
        build_folder(tmp_path, {}, lambda _: {}, force=True)


def test_two_at_one_place(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("whole")
        with pytest.raises(UserError, match="another process"):
            whole_folder(tmp_path / "out").__enter__()
    assert (tmp_path / "out" / "whole").exists()


def test_names_with_a_colon(tmp_path: Path) -> None:
    """fairseq takes them for two paths: of a data folder, a model, and the runs of a sweep."""
    with refusing(":1"):
        build_folder(tmp_path / "exp:1", {}, lambda folder: {})
    with refusing(":1"):
        check_folder_of(tmp_path / "small:1.pt")
    with refusing(str(tmp_path / "none")):
        check_folder_of(tmp_path / "none" / "small.pt")
    (tmp_path / "my.yaml").touch()
    with refusing(":1"):
        sweep.main([str(tmp_path / "my.yaml"), "--out", str(tmp_path / "exp:1")])
    assert [path.name for path in tmp_path.iterdir()] == ["my.yaml"]


# ---- progress ------------------------------------------------------------------------------------


def test_bars_within_bars_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that moves a cursor up; the last of a bar has every item, however seldom it moves."""
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False)
    monkeypatch.setattr(progress, "EVERY", 0.03)
    for _ in progress.bar("runs", range(3)):
        for _ in progress.bar("batches", range(7)):
            time.sleep(0.02)
    written = capsys.readouterr().err
    assert "7/7" in written
    assert "3/3" in written.splitlines()[-1]
    assert "\x1b" not in written
