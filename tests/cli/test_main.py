"""``fairseq-collab`` itself: how commands end, wrong options, and that nothing is written over."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from commands import REPOSITORY
from refusals import wrong_usage
from run_folders import write_sweep

from collab_common.command import run
from collab_common.errors import UserError
from collab_lab.cli import bench
from collab_lab.cli import main as cli
from collab_lab.cli.main import main
from collab_lab.clock.bench import PRESETS

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


def test_help_needs_no_torch_and_names_the_command_as_typed() -> None:
    done = run_without_torch(*(f"{name} --help" for name in cli.COMMANDS if name != "data"))
    assert (done.returncode, done.stderr) == (0, "")
    typed = re.findall(r"^usage: fairseq-collab (\S+) ", done.stdout, re.MULTILINE)
    assert typed == [name for name in cli.COMMANDS if name != "data"]


#: What is said of paths before anything slow is imported.
WRONG_PATHS = {
    "score nowhere --reference README.md": "nowhere: ",
    "score nowhere.pt tests --run out": "nowhere.pt: ",
    "cost nowhere.pt": "nowhere.pt: ",
    "heads tests tests --out=out": "tests: ",
    "heads tests tests --out=README.md": "README.md: is a file",
    "vote README.md nowhere --out=out": "nowhere: ",
    "table nowhere": "nowhere: ",
    "sweep nowhere.yaml": "nowhere.yaml: ",
    "sweep configs/experiment/decide.yaml task.data=nowhere": "nowhere: ",
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
    files = {"figure.svg", "table.md"}
    assert files <= {path.name for path in out.iterdir()}


# ---- wrong options -------------------------------------------------------------------------------

#: By command: options of which one is wrong, or missing.
USAGE = {
    "bench": ["--presets huge", "--lengths 9 --max-tokens 99"],
    "average --out out.pt": ["", ". --last 0", "a b --last 2"],
    "data prepare --text t --out o --source-lang en --target-lang de": [
        "--allow-loss nan", "--allow-loss 5", "--like d --vocab-size 9",
        "--like d --subwords subword_nmt",
    ],
    "heads c.pt data --out=out": ["--subwords=code", "--relevance-sentences=x"],
    "prune c.pt --out=o.pt": [
        "", "--random=1", "--gates --keep=1", "--random=1 --keep=1,2,3",
        "--random=1 --keep=1 --as-many-as=x.pt", "--keep=1 --remove=0",
        "--remove=1.5",
    ],
    "reparametrize c.pt --out=out.pt": [
        "--latent-dim=4", "--key-dim=4 --sentences=0",
        "--to=latent --key-value-heads-in-cross=2",
    ],
}  # fmt: skip
CASES = [f"{command} {given}" for command, cases in USAGE.items() for given in cases]


@pytest.mark.parametrize("command", CASES)
def test_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys):
        main(shlex.split(command))


NEAREST = {
    "shrnk a.pt": "shrink",
    "data prepre": "prepare",
    "shrink a.pt --cahce 0.5": "--cache",
    "reparametrize a.pt --to latnt --out b.pt": "latent",
    "data multi30k --out o --vocab-sze=9": "--vocab-size",
    "table runs --format tsv": "csv",
}


@pytest.mark.parametrize("command", NEAREST)
def test_a_mistyped_word_gets_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the word that was meant, and not the usage of all options."""
    try:
        status: object = main(shlex.split(command))
    except SystemExit as end:
        status = end.code
    assert status == 2
    said = capsys.readouterr().err
    assert f"did you mean {NEAREST[command]}?" in said
    assert said.count("\n") == 1


def test_presets_of_the_bench() -> None:
    """The parser names them without their table, whose module imports torch."""
    assert {*bench.PRESETS} == {*PRESETS}


# ---- nothing is written over ---------------------------------------------------------------------

#: Commands, and what they would write over.
COMMANDS = {
    "average m.pt --out m.pt": "m.pt",
    "bench --presets tiny --out m.pt": "m.pt",
    "export m.pt . --format fairseq --out .": ".",
    "heads m.pt . --out .": "heads.json",
    "prices m.pt . --out .": "prices.json",
    "prune m.pt --random 1 --keep 1 --out m.pt": "m.pt",
    "prune m.pt --random 1 --keep 1 --out new.pt": "new.yaml",
    "reparametrize m.pt . --key-dim 4 --out m.pt": "m.pt",
    "shrink m.pt . --cache 0.5 --out m.pt": "m.pt",
    "table runs --out .": "table.md",
    "vote m.pt . --out m.pt": "m.pt",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_sweep(tmp_path / "runs")
    for name in ("m.pt", "new.yaml", "table.md", "cache-0.5.md", "heads.json", "prices.json"):
        (tmp_path / name).write_text("a former result")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "written"), COMMANDS.items(), ids=COMMANDS)
def test_what_exists_is_not_written_over(
    command: str, written: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert f"error: {written}: " in said
    assert "--out" in said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("out", [".", "..", "model"])
@pytest.mark.parametrize("command", ["prune m.pt --keep 1", "reparametrize m.pt . --key-dim 4"])
def test_no_name_of_a_checkpoint(
    command: str, out: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--out", out]) == 1
    assert f"error: {out}: " in capsys.readouterr().err


def test_force(folder: Path) -> None:
    assert main(["table", "runs", "--out", ".", "--force"]) == 0
    assert main(["table", "runs", "--out", "."]) == 1


def test_an_option_without_effect_has_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Not that of the argument in the program."""
    with pytest.raises(SystemExit):
        main(["shrink", "c.pt", "data", "--for=ct2"])
    assert "--for needs --out" in capsys.readouterr().err


@pytest.mark.parametrize("handler", ["strict", "surrogateescape"])
def test_letters_that_a_locale_lacks(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's handler is the second one in the locale C."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii", errors=handler))
    assert run("table", lambda: print("±")) == 0
    assert written.getvalue() == b"\\xb1\n"
