"""Every bad input ends with the exact status and one line, and runs nothing that it brings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_command as run

from fairseq_compat import checkpoints

GIVE_DATA = "give the folder that fairseq-preprocess has written"
PLUG_IN = "if a plug-in brings it, name the plug-in's folder with --user-dir"


class Payload:
    """What a malicious checkpoint holds: loading it with pickle makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


class Evaluated(Payload):
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (f"open({str(self.marker)!r}, 'w')",)


@pytest.fixture(scope="module")
def bad(trained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of good and bad checkpoints and data."""
    folder = tmp_path_factory.mktemp("bad")
    whole = trained / "checkpoint_last.pt"
    (folder / "cut").mkdir()
    shutil.copy2(trained / "checkpoint1.pt", folder / "cut" / "checkpoint1.pt")
    (folder / "cut" / "checkpoint_last.pt").write_bytes(whole.read_bytes()[:100_000])
    (folder / "empty.pt").touch()
    (folder / "text.pt").write_text("no checkpoint at all\n")
    torch.save({"weight": torch.zeros(2)}, folder / "foreign.pt")
    for name, payload in (("system.pt", Payload), ("eval.pt", Evaluated)):
        state = checkpoints.read(whole)
        state["extra_state"]["payload"] = payload(folder / "marker")
        torch.save(state, folder / name)
    state = checkpoints.read(whole)
    code = f"open({str(folder / 'marker')!r}, 'w')"
    state["cfg"]["model"].adaptive_softmax_cutoff = code
    torch.save(state, folder / "code-in-an-option.pt")
    (folder / "nothing").mkdir()
    (folder / "no-dictionary").mkdir()
    for path in data.glob("train.*"):
        shutil.copy(path, folder / "no-dictionary")
    (folder / "broken-dictionary").mkdir()
    for path in data.iterdir():
        shutil.copy(path, folder / "broken-dictionary")
    (folder / "broken-dictionary" / "dict.de.txt").write_text("word\n")
    return folder


def assert_one_line(done: Any, status: int, line: str) -> None:
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (status, [line])
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.count(": error: ") == 1


# The file, and what is said about it by fairseq-generate.
CHECKPOINTS = {
    "cut/checkpoint_last.pt": "is truncated: its end is missing after 100,000 bytes; "
    "the newest intact checkpoint there is {bad}/cut/checkpoint1.pt",
    "empty.pt": "is empty; the newest intact checkpoint there is {newest}",
    "text.pt": "is no checkpoint, nor any file of torch; "
    "the newest intact checkpoint there is {newest}",
    "foreign.pt": "is no fairseq checkpoint: it has no 'model', no 'cfg' or 'args', "
    "no 'optimizer_history' or 'best_loss', no 'extra_state' or 'epoch'; "
    "give a file that fairseq-train has written",
    "cut": "is a folder, not a checkpoint; "
    "the newest intact checkpoint there is {bad}/cut/checkpoint1.pt",
    "none.pt": "there is no such checkpoint; the newest intact checkpoint there is {newest}",
    "system.pt": "refused: a checkpoint may hold only data, but this one asks for posix.system; "
    "none of it was run",
    "eval.pt": "refused: a checkpoint may hold only data, but this one asks for eval; "
    "none of it was run",
}
RESUME = ("the newest intact checkpoint there is {0}", "resume from {0} with --restore-file {0}")


RESUMED = ("cut/checkpoint_last.pt", "cut", "none.pt", "system.pt")  # the rest: the same code
WAYS = [("generate", name) for name in CHECKPOINTS] + [("train", name) for name in RESUMED]


@pytest.mark.parametrize(("command", "name"), WAYS)
def test_bad_checkpoint(
    command: str, name: str, bad: Path, data: Path, train_args: list[str], tmp_path: Path
) -> None:
    other = bad / "cut" / "checkpoint1.pt" if name.startswith("cut") else newest(bad)
    message = CHECKPOINTS[name].format(bad=bad, newest=other)
    if command == "generate":
        done = run("fairseq-generate", data, "--cpu", "--path", bad / name)
    else:
        message = message.replace(*(form.format(other) for form in RESUME))
        done = run(
            "fairseq-train", *train_args, "--save-dir", tmp_path, "--restore-file", bad / name
        )
    assert_one_line(done, 1, f"fairseq-{command}: error: {bad / name}: {message}")
    assert not (bad / "marker").exists()
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--max-tokens=3", "Sentences lengths should not exceed max_tokens=3"),
        ("--min-len=300", "min_len cannot be larger than max_len"),
    ],
)
def test_lengths_that_no_sentence_can_have(
    option: str, message: str, trained: Path, data: Path
) -> None:
    """Where fairseq leaves out none: in translating."""
    checkpoint = trained / "checkpoint_last.pt"
    done = run("fairseq-generate", data, "--cpu", "--path", checkpoint, option)
    assert_one_line(done, 1, f"fairseq-generate: error: {message}")


def test_a_folder_in_place_of_the_last_checkpoint(
    trained: Path, train_args: list[str], tmp_path: Path
) -> None:
    """fairseq would start from scratch, and fail when it saves."""
    last, first = tmp_path / "checkpoint_last.pt", tmp_path / "checkpoint1.pt"
    last.mkdir()
    shutil.copy2(trained / "checkpoint1.pt", first)
    done = run("fairseq-train", *train_args, "--save-dir", tmp_path)
    message = f"is a folder, not a checkpoint; resume from {first} with --restore-file {first}"
    assert_one_line(done, 1, f"fairseq-train: error: {last}: {message}")
    assert sorted(tmp_path.rglob("*")) == [first, last]


def newest(folder: Path) -> Path:
    return folder / "code-in-an-option.pt"


def test_environment_cannot_make_loading_unsafe(bad: Path, data: Path) -> None:
    command = ("fairseq-generate", data, "--cpu", "--path", bad / "system.pt")
    done = run(*command, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")
    assert done.returncode == 1
    assert "asks for posix.system" in done.stderr.splitlines()[-1]
    assert not (bad / "marker").exists()


def test_code_in_an_option_of_a_checkpoint(bad: Path, data: Path) -> None:
    """fairseq evaluates this option when it builds the model."""
    path = bad / "code-in-an-option.pt"
    done = run("fairseq-generate", data, "--cpu", "--path", path)
    code = f"open({str(bad / 'marker')!r}, 'w')"
    line = f"{path}: {code!r} is no plain value, such as 0.9 or (0.9, 0.98)"
    assert_one_line(done, 1, f"fairseq-generate: error: {line}")
    assert not (bad / "marker").exists()


def test_checkpoint_of_other_sizes(
    trained: Path, data: Path, train_args: list[str], tmp_path: Path
) -> None:
    """The same line on every way that a checkpoint can take into a model."""
    path = trained / "checkpoint_last.pt"
    message = (
        f"{path}: does not fit the model: size mismatch for encoder.layers.0.fc1_weight: copying "
        "a param with shape torch.Size([32, 16]) from checkpoint, the shape in current model is "
        "torch.Size([48, 16]) (and 5 more); "
        "give the --arch, the sizes and the data that it was trained with"
    )
    larger = [*train_args, "--encoder-ffn-embed-dim=48", "--save-dir", tmp_path]
    for option in ("--restore-file", "--finetune-from-model"):
        done = run("fairseq-train", *larger, option, path)
        assert_one_line(done, 1, f"fairseq-train: error: {message}")
    overrides = "{'encoder_ffn_embed_dim': 48}"
    done = run("fairseq-generate", data, "--cpu", "--path", path, "--model-overrides", overrides)
    assert_one_line(done, 1, f"fairseq-generate: error: {message}")


# The folder, further options, and the message.
DATA = {
    "none": ("none", [], "{0}: there is no such data folder; " + GIVE_DATA),
    "none, languages given": (
        "none",
        ["--source-lang=en", "--target-lang=de"],
        "{0}: there is no such data folder; " + GIVE_DATA,
    ),
    "not binarised": ("nothing", [], "{0}: holds no binarised language pair; " + GIVE_DATA),
    "no dictionary": (
        "no-dictionary",
        [],
        "{0}/dict.en.txt: there is no such dictionary; "
        "check --source-lang and --target-lang, or " + GIVE_DATA,
    ),
    "broken dictionary": (
        "broken-dictionary",
        [],
        "{0}/dict.de.txt: Incorrect dictionary format, "
        "expected '<token> <cnt> [flags]': \"word \"; binarise the data again",
    ),
}


@pytest.mark.parametrize(("name", "options", "message"), DATA.values(), ids=DATA.keys())
def test_bad_data(
    name: str, options: list[str], message: str, bad: Path, train_args: list[str], tmp_path: Path
) -> None:
    rest = [*train_args[1:], *options, "--save-dir", tmp_path]
    done = run("fairseq-train", bad / name, *rest)
    assert_one_line(done, 1, "fairseq-train: error: " + message.format(bad / name))


def test_missing_split(trained: Path, data: Path) -> None:
    command = ("fairseq-generate", data, "--cpu", "--path", trained / "checkpoint_last.pt")
    done = run(*command, "--gen-subset=dev")
    message = f"{data}: has no data set 'dev' for this language pair; it has test, train, valid"
    assert_one_line(done, 1, f"fairseq-generate: error: {message}")


# Options added to a good command, exit status, message.
OPTIONS = {
    "arch": (
        ["--arch=transformer_iwslt_de"],
        2,
        "argument --arch/-a: there is no 'transformer_iwslt_de'; similar: "
        "transformer_iwslt_de_en, transformer_wmt_en_de, transformer_lm; " + PLUG_IN,
    ),
    "choice": (
        ["--ddp-backend=foo"],
        2,
        "argument --ddp-backend: there is no 'foo'; choose from "
        "c10d, fully_sharded, legacy_ddp, no_c10d, pytorch_ddp, slowmo",
    ),
    "number": (["--dropout=high"], 2, "argument --dropout: invalid float value: 'high'"),
    "list": (["--lr=high"], 2, "argument --lr: invalid value: 'high'"),
    "unknown": (["--key-dimm=4"], 2, f"unrecognized arguments: --key-dimm=4; {PLUG_IN}"),
    "evaluated": (
        ["--adam-betas=print(1)"],
        1,
        "'print(1)' is no plain value, such as 0.9 or (0.9, 0.98)",
    ),
    "user-dir": (
        ["--user-dir=nowhere"],
        1,
        "nowhere: there is no such folder; --user-dir takes the folder of a plug-in",
    ),
    "finetune": (
        ["--finetune-from-model=nothing.pt"],
        1,
        "--finetune-from-model nothing.pt does not exist",
    ),
    "max-tokens": (
        ["--max-tokens=3"],
        1,
        "The dataset is empty. This could indicate that all elements in the dataset have been "
        "skipped. Try increasing the max number of allowed tokens or using a larger dataset.",
    ),
    "asynchronous": (
        ["--write-checkpoints-asynchronously"],
        1,
        "--write-checkpoints-asynchronously: is not supported: it cannot tell a failed write, "
        "and leaves no checkpoint_last.pt; leave the option out",
    ),
    "save-dir": (
        ["--save-dir=/dev/null"],
        1,
        "/dev/null: checkpoints cannot be written there: Not a directory; "
        "give another folder with --save-dir",
    ),
}


@pytest.mark.parametrize(("options", "status", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_bad_option(
    options: list[str], status: int, message: str, train_args: list[str], tmp_path: Path
) -> None:
    done = run("fairseq-train", *train_args, "--save-dir", tmp_path, *options)
    assert_one_line(done, status, f"fairseq-train: error: {message}")


def test_traceback_on_request(train_args: list[str], tmp_path: Path) -> None:
    rest = [*train_args[1:], "--save-dir", tmp_path]
    done = run("fairseq-train", "nowhere", *rest, FAIRSEQ_COMPAT_TRACEBACK="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("collab_common.errors.UserError: nowhere: ")


def test_python_module_form(train_args: list[str], tmp_path: Path) -> None:
    rest = [*train_args[1:], "--save-dir", tmp_path]
    done = run("python", "-m", "fairseq_cli.train", "nowhere", *rest)
    message = f"nowhere: there is no such data folder; {GIVE_DATA}"
    assert_one_line(done, 1, f"fairseq-train: error: {message}")


def test_hydra(tmp_path: Path) -> None:
    """Hydra would end with advice about HYDRA_FULL_ERROR."""
    settings = ["task=translation", "task.data=nowhere", "+model._name=transformer"]
    settings += ["optimizer=adam", "criterion=cross_entropy", "dataset.batch_size=8"]
    settings += ["lr_scheduler=fixed", "common.cpu=true", f"hydra.run.dir={tmp_path}"]
    done = run("fairseq-hydra-train", *settings)
    message = f"nowhere: there is no such data folder; {GIVE_DATA}"
    assert_one_line(done, 1, f"fairseq-hydra-train: error: {message}")

    done = run("fairseq-hydra-train", "optimization.lr=high", f"hydra.run.dir={tmp_path}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    start = "fairseq-hydra-train: error: Error merging override optimization.lr=high "
    assert done.stderr.splitlines()[-1].startswith(start)


UNKNOWN = """
import sys
sys.argv[0] = "fairseq-train"
import fairseq
raise RuntimeError("something else")
"""


def test_unknown_errors_keep_their_traceback() -> None:
    done = run("python", "-c", UNKNOWN)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "RuntimeError: something else"
