"""Train, resume, translate and score with the unmodified fairseq commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import MODEL, OPTIMISER, SHORT
from commands import USER_DIR, succeed, train_log, warm, write_copy_task

pytestmark = pytest.mark.slow

NUM_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


@pytest.fixture(scope="module")
def copier(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a model that learnt the copy task, and the log of its training."""
    folder = tmp_path_factory.mktemp("copier")
    log = succeed(
        "fairseq-train", data, *USER_DIR, *MODEL, *OPTIMISER, "--lr=0.01",
        "--lr-scheduler=polynomial_decay", "--total-num-update=522", "--max-tokens=500",
        "--max-epoch=18", "--log-interval=100", "--keep-last-epochs=3",
        "--save-dir", folder,
    )  # fmt: skip
    return folder, log


def test_copy_task_is_learnt(copier: tuple[Path, str]) -> None:
    """Sockeye's system test: near-zero perplexity on held-out sentences."""
    last = train_log(copier[1], "valid")[-1]
    assert float(last["valid_ppl"]) <= 1.02


def test_generate_copies_and_scores(copier: tuple[Path, str], data: Path, tmp_path: Path) -> None:
    checkpoint = copier[0] / "checkpoint_best.pt"
    output = succeed("fairseq-generate", data, *USER_DIR, "--path", checkpoint, "--cpu", "--beam=5")
    assert "Generate test with beam=5: BLEU4 = " in output
    (tmp_path / "generation").write_text(output)
    reference = data.parent / "text" / "test.de"
    report = succeed("fairseq-collab", "score", tmp_path / "generation", "--reference", reference)
    bleu = float(re.search(r"BLEU ([\d.]+) ", report)[1])
    assert bleu >= 98
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in report
    assert "chrF" in report


def test_interactive_translates_a_line(copier: tuple[Path, str], data: Path) -> None:
    output = succeed(
        "fairseq-interactive", data, *USER_DIR, "--path", copier[0] / "checkpoint_best.pt",
        "--cpu", "--beam=2", stdin="w3 w1 w4\n",
    )  # fmt: skip
    assert re.search(r"^D-0\t.*\tw3 w1 w4$", output, re.MULTILINE)


def test_averaged_checkpoints_translate(
    copier: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    average = tmp_path / "average.pt"
    succeed("fairseq-collab", "average", "--last", 3, copier[0], "--output", average)
    output = succeed("fairseq-generate", data, *USER_DIR, "--path", average, "--cpu")
    assert float(re.search(r"BLEU4 = ([\d.]+),", output)[1]) >= 98


def test_cost_of_a_checkpoint_and_of_its_ordinary_twin(copier: tuple[Path, str]) -> None:
    report = succeed("fairseq-collab", "cost", copier[0] / "checkpoint_best.pt")
    ours, twin = ([f.strip() for f in line.split("|")] for line in report.splitlines()[2:4])
    trained = NUM_PARAMETERS.search(copier[1])[1]
    assert ours[2] == trained
    assert (ours[4], twin[4]) == ("32", "128")  # key bytes: 4 K and 4 d


def test_resuming_continues_where_training_stopped(data: Path, tmp_path: Path) -> None:
    """Two halves, the first ended in the middle of an epoch, give the losses of one whole."""
    command = ["fairseq-train", data, *USER_DIR, *MODEL, *OPTIMISER, "--max-tokens=200"]
    command += ["--dropout=0.3", "--attention-dropout=0.1", "--disable-validation"]
    whole = succeed(*command, "--max-update=12", "--save-dir", tmp_path / "whole")
    first = succeed(*command, "--max-update=5", "--save-dir", tmp_path / "halves")
    second = succeed(*command, "--max-update=12", "--save-dir", tmp_path / "halves")

    def losses(log: str) -> list[tuple[str, str]]:
        return [(entry["num_updates"], entry["loss"]) for entry in train_log(log)]

    assert losses(first) + losses(second) == losses(whole)
    assert len(losses(whole)) == 12


@pytest.mark.parametrize(
    "options",
    [
        ["--fp16", "--fp16-no-flatten-grads"],  # flattening wants a GPU
        ["--memory-efficient-fp16"],
        ["--bf16"],
        ["--memory-efficient-bf16"],
        ["--share-decoder-input-output-embed", "--encoder-normalize-before"],
        ["--encoder-layerdrop=0.2", "--decoder-layerdrop=0.2"],
        ["--checkpoint-activations"],
        ["--attention-bias=content", "--attention-scale=key", "--mixing-init=normal"],
        ["--collaborative-sites=cross", "--value-init=fork"],
    ],
    ids=" ".join,
)
def test_options_train(options: list[str], data: Path, tmp_path: Path) -> None:
    model = [option for option in MODEL if option != "--share-all-embeddings"]
    log = succeed(
        "fairseq-train", data, *USER_DIR, *model, *SHORT, *options, "--no-save",
        "--save-dir", tmp_path,
    )  # fmt: skip
    losses = [float(entry["loss"]) for entry in train_log(log)]
    assert len(losses) >= 2  # half precision may skip an update while it looks for its scale
    assert all(0 < loss < 10 for loss in losses)


def test_ema_training_keeps_signatures(data: Path, tmp_path: Path) -> None:
    succeed(
        "fairseq-train", data, *USER_DIR, *MODEL, *SHORT, "--store-ema", "--ema-decay=0.9",
        "--save-dir", tmp_path,
    )  # fmt: skip
    succeed(
        "fairseq-generate", data, *USER_DIR, "--path", tmp_path / "checkpoint_last.pt", "--cpu",
        "--max-len-b=5", "--max-len-a=0",
    )  # fmt: skip


def test_other_languages_with_separate_dictionaries(tmp_path: Path) -> None:
    """No joined dictionary: source and target words differ."""
    text = tmp_path / "text"
    write_copy_task(text, train=300)
    for split in ("train", "valid", "test"):
        path = text / f"{split}.de"
        path.write_text(path.read_text().replace("w", "x"))
    splits = [f"--{split}pref={text / split}" for split in ("train", "valid", "test")]
    succeed(
        "fairseq-preprocess", "--source-lang=en", "--target-lang=de", *splits, "--destdir",
        tmp_path / "bin",
    )  # fmt: skip
    model = [option for option in MODEL if option != "--share-all-embeddings"]
    succeed(
        "fairseq-train", tmp_path / "bin", *USER_DIR, *model, *SHORT, "--save-dir", tmp_path / "run"
    )


def test_torchrun_trains_two_processes(data: Path, tmp_path: Path) -> None:
    """Two processes resume what two processes began."""
    command = ["torchrun", "--standalone", "--nproc-per-node=2", "--no-python"]
    command += [warm() / "fairseq-train", data, *USER_DIR, *MODEL, *OPTIMISER, "--batch-size=16"]
    command += ["--distributed-backend=gloo", "--ddp-backend=legacy_ddp", "--disable-validation"]
    command += ["--save-dir", tmp_path]
    first = succeed(*command, "--max-update=3")
    second = succeed(*command, "--max-update=6")
    updates = [entry["num_updates"] for entry in train_log(first) + train_log(second)]
    assert updates == ["1", "2", "3", "4", "5", "6"]
