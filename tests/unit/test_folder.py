"""Folders that are made as a whole: what is there when a process fails, is killed, or not alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refusing

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


def test_a_finished_folder_outlives_them_too(tmp_path: Path) -> None:
    """A rebuild of other inputs was killed; the same request as before finds its folder."""

    def build(folder: Path) -> dict[str, str]:
        (folder / "file").write_text("content")
        return {}

    out = tmp_path / "out"
    assert build_folder(out, {"inputs": "one"}, build)
    killed_between_its_renames(out)
    assert not build_folder(out, {"inputs": "one"}, build), "it is there"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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
    with pytest.raises(UserError, match=r"holds a manifest\.json of something else"):
        build_folder(tmp_path, {}, lambda _: {}, force=True)


def test_links_that_lead_nowhere_stay(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out") as folder:
        (folder / "link").symlink_to("nowhere")
    assert (tmp_path / "out" / "link").is_symlink()


def test_two_at_one_place(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("whole")
        with pytest.raises(UserError, match="another process"):
            whole_folder(tmp_path / "out").__enter__()
    assert (tmp_path / "out" / "whole").exists()


def test_names_with_a_colon(tmp_path: Path) -> None:
    """fairseq takes them for two paths: of a data folder, a model, and the runs of a sweep."""
    with refusing("has a colon"):
        build_folder(tmp_path / "exp:1", {}, lambda folder: {})
    with refusing("has a colon"):
        check_folder_of(tmp_path / "small:1.pt")
    (tmp_path / "my.yaml").touch()
    with refusing("has a colon"):
        sweep.main([str(tmp_path / "my.yaml"), "--out", str(tmp_path / "exp:1")])
    assert [path.name for path in tmp_path.iterdir()] == ["my.yaml"]
