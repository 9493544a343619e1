"""prepare, killed, failing or started twice: a finished folder, or none."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes import is_running, wait_for
from text_tools import command, config, error_line, manifest, names, options, run

import data_prep.prepare as prepare_module
from collab_common.errors import UserError
from data_prep.prepare import prepare


def start(text: Path, out: Path, until: str) -> subprocess.Popen[str]:
    """Starts the command and waits until it says that it does `until`."""
    process = subprocess.Popen(
        command("prepare", *options(text, out)), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(until):
            return process
    raise AssertionError(f"ended before {until!r}")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_killed_then_run_again(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    """SIGKILL early, SIGKILL while fairseq works, then a run that makes the same files."""
    out = tmp_path / "bin"
    kill(start(corpus, out, "learning"))
    assert not out.exists()
    process = start(corpus, out, "binarising")
    assert wait_for(lambda: children(process.pid))
    (child,) = children(process.pid)
    (temporary,) = tmp_path.glob(".bin.new-*")
    # fairseq has begun to write: the folder holds what looks like a finished part
    assert wait_for(lambda: (temporary / "preprocess.log").exists())
    os.kill(child, signal.SIGSTOP)  # so that it does not end by itself while we look
    second = run("prepare", *options(corpus, out))
    assert f"another process (pid {process.pid}) is at work" in error_line(second, "prepare")
    kill(process)
    outlived = not wait_for(lambda: not is_running(child))
    if outlived:
        os.kill(child, signal.SIGKILL)
    assert not outlived, "fairseq-preprocess outlives its parent"
    assert not out.exists()
    assert names(tmp_path) == {temporary.name, ".bin.lock"}, "the first leftover is gone already"
    done = run("prepare", *options(corpus, out))
    assert done.returncode == 0, done.stderr
    assert manifest(out)["outputs"] == manifest(prepared)["outputs"]
    assert names(tmp_path) == {"bin"}


def test_lock_of_a_dead_process_does_not_hold(
    corpus: Path, tmp_path: Path, no_fairseq: None
) -> None:
    (tmp_path / ".bin.lock").write_text(f"{os.getpid()}\n")
    prepare(config(corpus, tmp_path / "bin"))
    assert names(tmp_path) == {"bin"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError(28, "No space left")])
def test_failure_leaves_nothing(
    error: type[BaseException] | BaseException,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(prepare_module, "binarise", fail)
    with pytest.raises((KeyboardInterrupt, RuntimeError, UserError)):
        prepare(config(corpus, tmp_path / "bin"))
    assert names(tmp_path) == set()


@pytest.mark.parametrize("limit", [5_000, 200_000])
def test_write_that_fails_is_one_line(limit: int, corpus: Path, tmp_path: Path) -> None:
    """No file may grow beyond `limit`, which Python is told like a full disk.

    The first limit hits a text, the second the subword model, which is larger.
    """
    done = subprocess.run(
        command("prepare", *options(corpus, tmp_path / "bin")),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    error = error_line(done, "prepare")
    assert error == f"data_prep.prepare: error: {tmp_path / 'bin'}: cannot be made: File too large"
    assert names(tmp_path) == set()


def test_fairseq_failure_is_reported(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's status and last words; here it does not even start."""
    monkeypatch.setattr("data_prep.child.sys.executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho first; echo out of luck >&2; exit 3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(UserError) as failed:
        prepare(config(corpus, tmp_path / "bin"))
    assert str(failed.value) == ("fairseq_cli.preprocess failed with status 3: first | out of luck")
    assert names(tmp_path) == {"python"}


def test_shifted_output_of_fairseq_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fairseq: None
) -> None:
    """Should fairseq take a line for two in spite of all: the counts are compared."""
    honest = prepare_module.binarise

    def shifted(folder: Path, prefixes: dict[str, str], *rest: Any) -> None:
        with (folder / "valid.de").open("a") as stream:
            stream.write("one more\n")
        honest(folder, prefixes, *rest)

    monkeypatch.setattr(prepare_module, "binarise", shifted)
    with pytest.raises(UserError, match=r"valid.en-de.de.idx: 21 sentences binarised of 20 given"):
        prepare(config(corpus, tmp_path / "bin"))
