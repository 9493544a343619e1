"""A save succeeds completely, or says so and leaves the former file as it was."""

from __future__ import annotations

import errno
import io
import math
import pickle
import shutil
import sys
import zipfile
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from commands import run_command as run
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from collab_common import atomic
from collab_common.errors import UserError
from fairseq_compat import checkpoints, literals

LARGE = {"model": {"weight": torch.arange(100_000.0)}}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE", 0.0)


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes writing a partial file fail as on a full disk, in the attempts listed."""
    attempts: list[int] = []
    count = 0
    write = atomic.write

    class FullDisk:
        """Takes 1,000 bytes, then none."""

        def __init__(self, file: BinaryIO) -> None:
            self.file, self.room = file, 1000

        def write(self, data: bytes) -> int:
            done = self.file.write(bytes(data)[: self.room])
            self.room -= done
            if done < len(bytes(data)):
                raise OSError(errno.ENOSPC, "No space left on device")
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def write_or_fail(path: Any, fill: Any, check: Any = None) -> None:
        nonlocal count
        count += 1
        full = count in attempts
        write(path, (lambda file: fill(FullDisk(file))) if full else fill, check)

    monkeypatch.setattr(atomic, "write", write_or_fail)
    return attempts


def test_failed_attempt_is_repeated_from_scratch(tmp_path: Path, fail_at: list[int]) -> None:
    """fairseq's own function goes on behind the bytes of the first attempt."""
    fail_at.extend([1, 2])
    path = tmp_path / "checkpoint1.pt"
    checkpoint_utils.torch_persistent_save(LARGE, str(path))
    whole = io.BytesIO()
    torch.save(LARGE, whole)
    assert path.stat().st_size == whole.tell()
    loaded = torch.load(path, weights_only=True)
    assert torch.equal(loaded["model"]["weight"], LARGE["model"]["weight"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint1.pt"]


def test_failed_save_is_no_success(tmp_path: Path, fail_at: list[int]) -> None:
    fail_at.extend([1, 2, 3])
    path = tmp_path / "checkpoint1.pt"
    path.write_bytes(b"former")
    with pytest.raises(UserError, match=r"cannot be saved: .*No space left on device") as caught:
        checkpoint_utils.torch_persistent_save(LARGE, str(path))
    assert caught.value.where == str(path)
    assert path.read_bytes() == b"former"
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint1.pt"]


@pytest.mark.parametrize(
    ("place", "reason"), [("none/a.pt", "No such file or directory"), (".", "Is a directory")]
)
def test_what_waiting_does_not_mend_is_not_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str, reason: str
) -> None:
    """Nor is room on the disk what is missing."""
    with pytest.raises(UserError) as caught:
        checkpoints.save(LARGE, tmp_path / place)
    todo = "make its folder writable, or give another file"
    assert str(caught.value) == f"{tmp_path / place}: cannot be saved: {reason}; {todo}"
    assert "trying again" not in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_failed_copy_leaves_the_former(tmp_path: Path, fail_at: list[int]) -> None:
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"x" * 5000)
    target.write_bytes(b"former")
    fail_at.extend([1, 2, 3])
    with pytest.raises(UserError, match="No space left on device"):
        PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"former"
    assert len(list(tmp_path.iterdir())) == 2


def test_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    source.write_bytes(b"one")
    assert PathManager.copy(str(source), str(target), overwrite=True)
    with open(source, "r+b") as file:
        file.write(b"two")
    assert target.read_bytes() == b"one"


def test_incomplete_file_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that loses its end without raising is found by the check of the archive."""
    save = torch.save

    def lose_the_end(obj: Any, file: BinaryIO) -> None:
        whole = io.BytesIO()
        save(obj, whole)
        file.write(whole.getvalue()[:-100])

    monkeypatch.setattr(torch, "save", lose_the_end)
    with pytest.raises(UserError, match="cannot be saved: is truncated"):
        checkpoints.save(LARGE, tmp_path / "checkpoint1.pt")
    assert not list(tmp_path.iterdir())


def test_a_new_file_that_was_taken_for_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer into the folder cleans up before ours has locked what it opened."""
    lock, taken = atomic._lock, []

    def late(file: BinaryIO, *, wait: bool = False) -> bool:
        if wait and not taken:
            taken.append(file.name)
            atomic.remove_leftovers(str(tmp_path))
        return lock(file, wait=wait)

    monkeypatch.setattr(atomic, "_lock", late)
    atomic.write(tmp_path / "a", lambda file: file.write(b"whole"))
    assert len(taken) == 1
    assert not Path(taken[0]).exists()
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_leftovers_are_locked_as_nfs_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS has an exclusive lock only of a file that is open for writing."""
    dead = tmp_path / "checkpoint1.pt.0123abcd.partial"
    dead.write_bytes(b"half")
    monkeypatch.setattr(atomic, "_lock", lambda file, **_: file.writable())
    atomic.remove_leftovers(str(tmp_path))
    assert not dead.exists()


def test_leftovers_of_the_dead_only(tmp_path: Path) -> None:
    dead = tmp_path / "checkpoint1.pt.0123abcd.partial"
    dead.write_bytes(b"half")
    foreign = tmp_path / "notes.partial"
    foreign.write_bytes(b"mine")
    seen = []

    def fill(file: BinaryIO) -> None:
        """Another save into the folder goes on while this one is being written."""
        atomic.write(tmp_path / "other.pt", lambda inner: inner.write(b"whole"))
        seen.extend(path.name for path in tmp_path.glob("outer.pt.*.partial"))
        file.write(b"whole, too")

    atomic.write(tmp_path / "outer.pt", fill)
    assert len(seen) == 1
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["notes.partial", "other.pt", "outer.pt"]


FULL_DISK = """
import resource, sys
sys.argv[0] = "fairseq-train"
from fairseq_compat import checkpoints
checkpoints.PAUSE = 0.0
from fairseq_cli.train import cli_main
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
cli_main()
"""


@pytest.mark.slow
def test_training_on_a_full_disk(train_args: list[str], trained: Path, tmp_path: Path) -> None:
    """The kernel refuses to let a file grow beyond 100,000 bytes; checkpoints are larger."""
    shutil.copy2(trained / "checkpoint1.pt", tmp_path / "checkpoint_last.pt")
    former = (tmp_path / "checkpoint_last.pt").read_bytes()
    done = run("python", "-c", FULL_DISK, *train_args, "--save-dir", tmp_path)
    line = done.stderr.splitlines()[-1]
    path = tmp_path / "checkpoint2.pt"
    assert done.returncode == 1
    assert line.startswith(f"fairseq-train: error: {path}: cannot be saved: ")
    assert "File too large" in line
    assert "Traceback" not in done.stderr
    assert f"Saved checkpoint {path}" not in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint_last.pt"]
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == former


class Forged:
    """Pickles as a call of the given function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def checkpoint_with(value: Any, path: Path) -> Path:
    state = {"model": {}, "cfg": {}, "optimizer_history": [], "extra_state": {"value": value}}
    torch.save(state, path)
    return path


@pytest.mark.parametrize("number", [np.float64(0.1), np.float32(0.1), np.int64(-3), np.bool_(True)])
def test_numbers_of_numpy_load(number: np.generic, tmp_path: Path) -> None:
    loaded = checkpoints.read(checkpoint_with(number, tmp_path / "a.pt"))["extra_state"]["value"]
    assert loaded == number
    assert loaded.dtype == number.dtype


def test_numbers_written_by_numpy_1_load(tmp_path: Path) -> None:
    path = checkpoint_with(np.float64(0.1), tmp_path / "a.pt")
    old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    # The archive knows the length of the pickle; write it again with the shorter name.
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "b.pt", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content.replace(b"numpy._core", b"numpy.core"))
    assert b"numpy.core.multiarray" in old
    assert checkpoints.read(tmp_path / "b.pt")["extra_state"]["value"] == 0.1


def large_checkpoint(path: Path) -> torch.Tensor:
    """A checkpoint with its optimizer, 12 MB; its weights."""
    weights = torch.arange(1_000_000.0)
    state = {"model": {"weight": weights}, "cfg": {}, "optimizer_history": [], "extra_state": {}}
    torch.save(state | {"last_optimizer_state": [weights + 1, weights + 2]}, path)
    return weights


def bytes_read() -> int:
    """By this process so far, with calls to read; not through memory."""
    told = Path("/proc/self/io").read_text().split()
    return int(told[told.index("rchar:") + 1])


def test_a_checkpoint_is_read_as_far_as_it_is_looked_at(tmp_path: Path) -> None:
    """Of a training's gigabytes two thirds are its optimizer's, which most commands leave out."""
    weights, before = large_checkpoint(tmp_path / "a.pt"), bytes_read()
    state = checkpoints.read(tmp_path / "a.pt")
    assert bytes_read() - before < 1_000_000
    assert torch.equal(state["model"]["weight"], weights)
    state["model"]["weight"].add_(1)  # as an optimizer does to its state once training goes on
    assert torch.equal(checkpoints.read(tmp_path / "a.pt")["model"]["weight"], weights)


def test_a_checkpoint_that_was_compressed_is_read_whole(tmp_path: Path) -> None:
    weights = large_checkpoint(tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as source,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert torch.equal(checkpoints.read(tmp_path / "b.pt")["model"]["weight"], weights)


def test_an_old_checkpoint_that_ends_like_an_archive_is_none(tmp_path: Path) -> None:
    """Weights are any bytes at all: zipfile looks for the end of an archive alone."""
    weight = torch.frombuffer(bytearray(b"PK\5\6" + bytes(40)), dtype=torch.uint8)
    state = {"model": {"weight": weight}, "cfg": {}, "optimizer_history": [], "extra_state": {}}
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert zipfile.is_zipfile(tmp_path / "a.pt")
    assert torch.equal(checkpoints.read(tmp_path / "a.pt")["model"]["weight"], weight)


def test_meters_of_fairseq_0_9_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file loads, and what is made of it does, too."""
    old = ModuleType("fairseq.meters")
    old.AverageMeter = type("AverageMeter", (), {"__module__": "fairseq.meters"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fairseq.meters", old)
    meter = old.AverageMeter()
    meter.sum, meter.count = torch.zeros(1), 3
    path = checkpoint_with(1, tmp_path / "a.pt")
    state = torch.load(path)
    state["extra_state"]["train_meters"] = {"wps": meter}
    torch.save(state, path)
    read = checkpoints.read(path)
    assert read["extra_state"] == {"value": 1}
    torch.save(read, tmp_path / "b.pt")
    assert checkpoints.read(tmp_path / "b.pt") == read


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}], dtype=object),
        np.zeros(3),
        np.dtype("O"),
        np.dtype([("a", "O")]),
        Forged(getattr, "", "join"),
        Forged(__import__, "os"),
        pickle.PickleBuffer,
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_but_plain_numbers_is_refused(value: Any, tmp_path: Path) -> None:
    """Arrays of objects, made of bytes, would be addresses of the file's choice."""
    path = checkpoint_with(value, tmp_path / "a.pt")
    with pytest.raises(UserError, match="refused: a checkpoint may hold only data"):
        checkpoints.read(path)


def test_a_number_of_a_kind_that_is_refused_is_named(tmp_path: Path) -> None:
    path = checkpoint_with(Forged(np.dtype, "O"), tmp_path / "a.pt")
    with pytest.raises(UserError, match="this one asks for a number of type 'O'"):
        checkpoints.read(path)


def test_what_others_allow_is_not_allowed_here(tmp_path: Path) -> None:
    path = checkpoint_with(Forged(math.sqrt, 4.0), tmp_path / "a.pt")
    with torch.serialization.safe_globals([math.sqrt]):
        before = set(torch.serialization.get_safe_globals())
        with pytest.raises(UserError, match="refused"):
            checkpoints.read(path)
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(0.9, 0.98)", (0.9, 0.98)),
        ("[(512, 3)] * 2 + [(1, -2)]", [(512, 3), (512, 3), (1, -2)]),
        ("4096 * 8", 32768),
        ("True", True),
        ("{'a': 1e-3}", {"a": 1e-3}),
    ],
)
def test_settings_are_evaluated(text: str, value: Any) -> None:
    assert literals.evaluate(text) == value


@pytest.mark.parametrize("text", ["print(1)", "().__class__", "[0] * 10**9", "[0] * 99999999", "("])
def test_settings_are_not_run(text: str) -> None:
    with pytest.raises(UserError, match="is no plain value"):
        literals.evaluate(text)


def test_fairseq_evaluates_no_code() -> None:
    from fairseq import utils

    assert utils.eval_str_list("[1, 2]") == [1, 2]
    with pytest.raises(UserError):
        utils.eval_str_list("[print(1)]")


def test_training_without_assertions_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """fairseq copies what it has saved in one; there would be checkpoint1.pt and so on alone."""
    monkeypatch.setattr(checkpoints.sys, "flags", Namespace(optimize=1))
    with pytest.raises(UserError, match=r"python -O drops assertions.*; leave it out, or unset"):
        checkpoint_utils.verify_checkpoint_directory(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
