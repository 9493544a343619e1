"""``fairseq-collab`` itself: how commands end, and which of them need no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from commands import REPOSITORY, refuse
from run_folders import write_sweep

from collab_common import main as cli
from collab_common.command import run
from collab_common.errors import UserError

#: Commands whose options need no torch.
WITHOUT_TORCH_HELP = ["average", "compare", "configs", "doctor", "export", "pages", "report"]
WITHOUT_TORCH_HELP += ["sweep", "table", "vote"]
#: Neither fairseq nor torch can be imported.
WITHOUT_TORCH = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in ("fairseq", "torch"):
            raise ImportError(f"no {name} here")
sys.meta_path.insert(0, Without())
from collab_common import main
sys.exit(main.main(sys.argv[1:]))
"""


def run_without_torch(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (UserError("is wrong", "it"), 1, "prog: error: it: is wrong\n"),
        (PermissionError(13, "Denied", "it"), 1, "prog: error: it: Denied\n"),
        (KeyboardInterrupt(), 130, "prog: interrupted\n"),
    ],
)
def test_errors_take_one_line(
    raised: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def action() -> None:
        raise raised

    assert (run("prog", action), capsys.readouterr().err) == (status, said)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_an_error(unbuffered: str) -> None:
    """As through `| head`, whether it fails at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "collab_common.main", "--help"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "fairseq-collab: error: Broken pipe\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["fairseq-collab", version("fairseq-collab")]


def test_an_unknown_command_lists_the_commands() -> None:
    assert "elect one head per group" in refuse("fairseq-collab", "nothing")


@pytest.mark.parametrize("name", WITHOUT_TORCH_HELP)
def test_help_needs_no_torch(name: str) -> None:
    done = run_without_torch(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_tables_need_no_torch(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    write_sweep(runs)
    for words in (
        ("table", runs, "--out", out), ("report", runs, "--out", out / "report.html"),
        ("compare", runs / "collab_64_1", runs / "concatenated_64_1"),
    ):  # fmt: skip
        done = run_without_torch(*words)
        assert (done.returncode, done.stderr) == (0, "")
    assert (out / "figure.png").exists()
