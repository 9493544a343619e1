"""IWSLT14: what its stages refuse, by the real commands, and that nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus_archives import ENGLISH, TEST, TRAIN, filled, small_iwslt14
from loopback import Server
from text_tools import Completed, error_line, run

from data_prep.corpus_recipe import fetch_archives
from data_prep.fetch import LOCK_FILE
from data_prep.iwslt14 import corpus

pytestmark = pytest.mark.slow

MODULE = "iwslt14"


def stages(out: Path, source: Path, *names: str) -> Completed:
    """The stages `names`, the last of which may fail."""
    for name in names:
        where = ("--from", source) if name == "fetch" else ()
        done = run(MODULE, name, "--out", out, *where)
        if name != names[-1]:
            assert done.returncode == 0, done.stderr
    return done


def refused(out: Path, source: Path, *names: str) -> str:
    return error_line(stages(out, source, *names), MODULE)


def test_changed_archive(source: Path, tmp_path: Path) -> None:
    """No hash is published: that of the first download is kept, and enforced from then on."""
    out = tmp_path / "out"
    assert stages(out, source, "fetch").returncode == 0
    taken = out / "archives" / "de-en.tgz"
    assert json.loads((out / "archives" / LOCK_FILE).read_text())["de-en.tgz"]["bytes"] > 1000
    taken.unlink()
    filled(source, {"de-en.tgz": small_iwslt14(TRAIN, {"de": "Neu.", "en": "New."})})
    error = refused(out, source, "fetch")
    assert f"{source}/de-en.tgz: SHA-256 " in error
    assert "recorded in" in error
    assert not taken.exists()


def test_file_of_the_user_is_never_written_to(
    source: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is linked, not copied: a download after an interruption must not go into it."""
    original = source / "de-en.tgz"
    before = original.read_bytes()
    chosen, out = corpus("fairseq", ("de", "en")), tmp_path / "out"

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("data_prep.fetch._check_lock", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch_archives(chosen, out, folder=source)
    server.files["/de-en.tgz"] = b"\x1f\x8bsomething else"
    fetch_archives(chosen, out, mirror=server.url)
    assert original.read_bytes() == before


def test_unequal_lengths(tmp_path: Path) -> None:
    train = TRAIN | {"en": [*ENGLISH, "One more."]}
    source = filled(tmp_path / "from", {"de-en.tgz": small_iwslt14(train, TEST)})
    error = refused(tmp_path / "out", source, "fetch", "extract", "text")
    original = tmp_path / "out" / "original"
    assert f"unequal line counts: {original}/train.tags.de has 100 lines of text" in error
    assert f"{original}/train.tags.en has 101;" in error
    assert not (tmp_path / "out" / "text").exists()


def test_archive_damaged_after_it_was_fetched(source: Path, tmp_path: Path) -> None:
    """Ours is a link to the user's file, so it changes when that is written to."""
    out = tmp_path / "out"
    stages(out, source, "fetch")
    filled(source, {"de-en.tgz": small_iwslt14(TRAIN, {"de": "Neu.", "en": "New."})})
    error = refused(out, source, "extract")
    assert "archives/de-en.tgz: is no longer what was fetched" in error


def test_usage(tmp_path: Path) -> None:
    done = run(MODULE, "fetch", "--out", tmp_path, "--pair", "de-fr")
    assert "invalid choice: 'de-fr'" in error_line(done, MODULE, status=2)
    both = ("--from", tmp_path, "--mirror", "http://x")
    done = run(MODULE, "fetch", "--out", tmp_path, *both)
    assert "not allowed with" in error_line(done, MODULE, status=2)
    done = run(MODULE, "fetch", "--out", tmp_path / "out", "--from", tmp_path / "absent")
    assert "absent/de-en.tgz: no such file" in error_line(done, MODULE)
