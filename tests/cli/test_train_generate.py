"""Train, translate and score with the unmodified fairseq commands.

Resumption, and two processes: tests/reliability.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import MODEL, OPTIMISER, SHORT
from commands import USER_DIR, succeed, train_log

pytestmark = pytest.mark.slow


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


def test_generate_copies_and_scores(copier: tuple[Path, str], data: Path, tmp_path: Path) -> None:
    """Sockeye's system test: near-zero perplexity on held-out sentences."""
    assert float(train_log(copier[1], "valid")[-1]["valid_ppl"]) <= 1.02
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
        ["--query-mixing=diagonal", "--attention-scale=key", "--mixing-init=xavier"],
        ["--key-dim-in-decoder=0", "--value-init=fork"],
        ["--query-mixing=diagonal", "--query-mixing-in-cross=own", "--value-heads=1"],
        ["--cache-bits=4", "--cache-bits-in-cross=8", "--fp16", "--fp16-no-flatten-grads"],
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


@pytest.mark.parametrize(
    "options", [["--arch=transformer_latent"], ["--store-ema", "--ema-decay=0.9"]], ids=str
)
def test_options_train_and_translate(options: list[str], data: Path, tmp_path: Path) -> None:
    kept = [option for option in MODEL if not option.startswith(options[0].split("=")[0])]
    succeed("fairseq-train", data, *USER_DIR, *kept, *SHORT, *options, "--save-dir", tmp_path)
    output = succeed(
        "fairseq-generate", data, *USER_DIR, "--path", tmp_path / "checkpoint_last.pt", "--cpu",
        "--beam=3", "--max-len-b=5", "--max-len-a=0",
    )  # fmt: skip
    assert output.count("\nH-") > 10
