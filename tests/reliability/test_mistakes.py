"""Bad checkpoints end in one line, and nothing in them is run."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import refuse, succeed
from commands import run_command as run
from fairseq import checkpoint_utils
from refusals import refusing

from collab_common.files import locked
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow


class Payload:
    """What a malicious checkpoint holds: loading it with pickle makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.fixture(scope="module")
def bad(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bad checkpoints."""
    folder = tmp_path_factory.mktemp("bad")
    whole = trained / "checkpoint_last.pt"
    (folder / "cut.pt").write_bytes(whole.read_bytes()[:100_000])
    (folder / "empty.pt").touch()
    (folder / "text.pt").write_text("no checkpoint at all\n")
    torch.save({"weight": torch.zeros(2)}, folder / "foreign.pt")
    state = checkpoints.read(whole)
    state["extra_state"]["payload"] = Payload(folder / "marker")
    torch.save(state, folder / "system.pt")
    state = checkpoints.read(whole)
    state["cfg"]["model"].adaptive_softmax_cutoff = f"open({str(folder / 'marker')!r}, 'w')"
    torch.save(state, folder / "code-in-an-option.pt")
    return folder


@pytest.mark.parametrize("name", ["cut.pt", "empty.pt", "text.pt", "foreign.pt", "system.pt"])
def test_bad_checkpoint(name: str, bad: Path) -> None:
    with refusing(str(bad / name)):
        checkpoints.read(bad / name)
    assert not (bad / "marker").exists()


@pytest.mark.parametrize("name", ["system.pt", "code-in-an-option.pt", "none.pt"])
def test_bad_checkpoint_to_translate_with(name: str, bad: Path, data: Path) -> None:
    """Not even the environment makes loading unsafe."""
    environment = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"} if name == "system.pt" else {}
    line = refuse("fairseq-generate", data, "--cpu", "--path", bad / name, **environment)
    assert line.startswith(f"fairseq-generate: error: {bad / name}: ")
    assert not (bad / "marker").exists()


def test_a_second_training_in_one_folder(train_args: list[str], tmp_path: Path) -> None:
    """It names the process of the first; the lock can be switched off."""
    train = ("fairseq-train", *train_args, "--save-dir", tmp_path, "--max-update=1")
    with locked(tmp_path / "lock"):
        line = refuse(*train)
        assert f"{tmp_path}/lock: another process (pid {os.getpid()})" in line
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
        succeed(*train, FAIRSEQ_COLLAB_LOCKS="0")
    assert (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize("option", ["restore_file", "finetune_from_model", "continue_once"])
def test_a_start_that_is_not_there(option: str, tmp_path: Path) -> None:
    """Else it is a training from scratch."""
    starts = {"restore_file": "checkpoint_last.pt", "finetune_from_model": "", "continue_once": ""}
    cfg = Namespace(
        save_dir=str(tmp_path), write_checkpoints_asynchronously=False,
        **{**starts, option: "none.pt"},
    )  # fmt: skip
    with refusing("none.pt"):
        checkpoint_utils.load_checkpoint(cfg, None)
    cfg.write_checkpoints_asynchronously = True  # leaves no checkpoint_last.pt
    with refusing("--write-checkpoints-asynchronously"):
        checkpoint_utils.load_checkpoint(cfg, None)


@pytest.mark.parametrize("option", ["--fp16", "--save-dir=/dev/null"])
def test_what_a_training_cannot_have(option: str, train_args: list[str], tmp_path: Path) -> None:
    """Else it is a traceback."""
    line = refuse("fairseq-train", *train_args, "--save-dir", tmp_path / "none", option)
    assert line.startswith(f"fairseq-train: error: {option.rpartition('=')[2]}")


@pytest.mark.parametrize(
    ("program", "error", "said"),
    [
        ("fairseq-hydra-train", "KeyboardInterrupt", "interrupted;"),
        ("fairseq-generate", "KeyboardInterrupt", "interrupted\n"),
        ("fairseq-generate", "BrokenPipeError(32)", ""),
        (
            "fairseq-interactive",
            "UnicodeDecodeError('utf-8', b'a', 0, 1, 'invalid')",
            "error: ",
        ),
    ],
)
def test_interruptions_before_torch_is_imported(program: str, error: str, said: str) -> None:
    code = f"import sys; sys.argv[0] = '{program}'; import fairseq_cli; raise {error}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith(said and f"{program}: {said}")
    assert done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize("asked", ["0", "1"])
def test_traceback_on_request(asked: str) -> None:
    code = "import sys; sys.argv[0] = 'fairseq-generate'; import fairseq_cli\n"
    code += "from collab_common.errors import UserError\nraise UserError('is wrong', 'it')"
    environment = {**os.environ, "FAIRSEQ_COMPAT_TRACEBACK": asked}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) is (asked == "1")


def test_fairseqs_own_mistakes_keep_their_traceback(train_args: list[str], tmp_path: Path) -> None:
    done = run("python", "-m", "fairseq_cli.train", tmp_path, *train_args[1:])
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "Could not infer language pair" in done.stderr
