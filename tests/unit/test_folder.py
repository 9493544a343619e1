"""Folders that are made as a whole: what is there when a process fails, is killed, or not alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab_common.errors import UserError
from collab_common.folder import build_folder, whole_folder


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
    (tmp_path / ".out.new-1").mkdir()
    (tmp_path / ".out.new-1" / "half").write_text("half")
    with whole_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]


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
