"""``fairseq-collab`` itself: how commands end, and what needs no torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from commands import REPOSITORY, refuse
from run_folders import write_sweep

from collab_common.command import run
from collab_common.errors import UserError
from collab_lab.cli import main as cli

#: Neither fairseq nor torch can be imported.
WITHOUT_TORCH = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in ("fairseq", "torch"):
            raise ImportError(f"no {name} here")
sys.meta_path.insert(0, Without())
from collab_lab.cli import main
status = 0
for command in sys.argv[1:]:
    try:
        status = max(status, main.main(command.split()))
    except SystemExit as end:  # of --help
        status = max(status, end.code)
sys.exit(status)
"""


def run_without_torch(*commands: str) -> subprocess.CompletedProcess[str]:
    """Several commands in one process."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *commands]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (UserError("is wrong", "it"), 1, "prog: error: it: is wrong\n"),
        (PermissionError(13, "Denied", "it"), 1, "prog: error: it: Denied\n"),
        (FileNotFoundError("Dataset not found: dev"), 1, "prog: error: Dataset not found: dev\n"),
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
def test_a_closed_pipe_ends_quietly(unbuffered: str) -> None:
    """As through `| head`, whether it fails at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "collab_lab.cli.main", "--help"],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["fairseq-collab", version("fairseq-collab")]


def test_an_unknown_command_lists_the_commands() -> None:
    assert refuse("fairseq-collab", "nothing").endswith(", table, vote")


def test_help_needs_no_torch_and_names_the_command_as_typed() -> None:
    done = run_without_torch(*(f"{name} --help" for name in cli.COMMANDS if name != "data"))
    assert (done.returncode, done.stderr) == (0, "")
    typed = re.findall(r"^usage: fairseq-collab (\S+) ", done.stdout, re.MULTILINE)
    assert typed == [name for name in cli.COMMANDS if name != "data"]


#: What is said of paths before anything slow is imported.
WRONG_PATHS = {
    "score nowhere --reference README.md": "nowhere: file or folder not found",
    "score nowhere.pt tests --run out": "nowhere.pt: checkpoint not found; give a file",
    "cost nowhere.pt": "nowhere.pt: checkpoint not found; give a file",
    "heads tests tests --out=out": "tests: is a folder, not a checkpoint; give a file",
    "vote README.md nowhere --out=out": "nowhere: data folder not found; give the data folder",
    "table nowhere": "nowhere: folder not found; give the --out folder of",
    "sweep nowhere.yaml": "nowhere.yaml: file not found; give or copy a file of",
}


def test_wrong_paths_need_no_torch() -> None:
    done = run_without_torch(*WRONG_PATHS)
    for words, said in zip(WRONG_PATHS, WRONG_PATHS.values(), strict=True):
        assert f"fairseq-collab {words.split()[0]}: error: {said}" in done.stderr
    assert (done.returncode, done.stderr.count("\n")) == (1, len(WRONG_PATHS))


def test_tables_need_no_torch(tmp_path: Path) -> None:
    runs, out = write_sweep(tmp_path / "runs"), tmp_path / "new" / "out"
    done = run_without_torch(
        f"table {runs} --out {out}", f"compare {runs}/concatenated_64_1 {runs}/collab_64_1"
    )
    assert (done.returncode, done.stderr) == (0, "")
    table = (out / "table.md").read_text()
    assert "- collab_32_1: failed (out of memory)" in table
    assert "## Against concatenated" in table
    assert done.stdout.startswith(table)
    assert "paired bootstrap" in done.stdout
    files = {"figure.png", "figure.svg", "runs.json", "table.md"}
    assert files <= {path.name for path in out.iterdir()}
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
