"""Trainings and translations by the unmodified fairseq commands, with every kind of heads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from cli.conftest import LM, MODEL, OPTIMISER, SHORT, SIZES
from commands import REPOSITORY, USER_DIR, succeed, train_log

from collab_lab.cli import main as cli
from collab_lab.cli import prune as command_prune
from fairseq_collab.criterions.losses import GATES_LOGGED, GROUPS_LOGGED
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copier(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a model that learnt the copy task, and the log of its training."""
    folder = tmp_path_factory.mktemp("copier")
    log = succeed(
        "fairseq-train", data, *USER_DIR, *MODEL, *OPTIMISER, "--lr=0.015",
        "--lr-scheduler=polynomial_decay", "--warmup-updates=50", "--total-num-update=348",
        "--max-tokens=500", "--max-epoch=12", "--validate-interval=4", "--log-interval=100",
        "--no-epoch-checkpoints", "--save-dir", folder,
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
        ["--memory-efficient-fp16"],
        ["--memory-efficient-bf16"],
        [
            *("--query-mixing=diagonal", "--attention-scale=key", "--mixing-init=xavier"),
            *("--share-decoder-input-output-embed", "--encoder-normalize-before"),
        ],
        ["--key-dim-in-decoder=0", "--value-init=fork", "--checkpoint-activations"],
        [
            *("--query-mixing=diagonal", "--value-heads=1"),
            *("--encoder-layerdrop=0.2", "--decoder-layerdrop=0.2"),
        ],
        # flattening wants a GPU
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


# ---- language models -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def language_model(monolingual: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    succeed(
        "fairseq-train", monolingual, *USER_DIR, *LM, "--arch=transformer_lm_collab", "--key-dim=6",
        "--query-mixing=diagonal", *SHORT, "--criterion=cross_entropy", "--save-dir", folder,
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


def test_cost_of_language_models(
    language_model: Path, ordinary_lm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares are of the first."""
    paths = [ordinary_lm, language_model]
    assert cli.main(["cost", *map(str, paths)]) == 0
    *_, standard, row, _, _, of, _ = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in (standard, row)]
    assert (cells[0][0], *cells[0][3:5]) == ("100.0%", "64 = 32 + 32", "-")
    assert (cells[1][0], *cells[1][3:5]) == ("68.8%", "44 = 12 + 32", "-")
    numbers = [int(found[5].split()[0].replace(",", "")) for found in cells]
    assert f"({numbers[1] / numbers[0]:.0%})" in cells[1][5]
    assert of == f"other %: of {ordinary_lm}"


def test_heads_of_a_language_model(
    language_model: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads = ["heads", str(language_model), str(monolingual), "--out", str(tmp_path), "--cpu"]
    assert cli.main([*heads, "--subset=test"]) == 0
    output = capsys.readouterr().out
    assert "a language model" in output
    found = json.loads((tmp_path / "heads.json").read_text())
    assert found["heads"] == {"encoder": [], "decoder": [4], "cross": []}
    applies = {"confidence", "positional", "importance", "price"}
    assert applies <= {name for name, of in found["measures"].items() if of["decoder"]}
    assert not any(of["encoder"] or of["cross"] for of in found["measures"].values())
    assert cli.main([*heads, "--conllu", "trees", "--force"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "--conllu: " in line


# ---- a variant of one's own ----------------------------------------------------------------------

PLUG_IN = ("--user-dir", REPOSITORY / "tests" / "examples" / "tied_heads")
ARCH = "--arch=transformer_tied_heads_multi30k"


@pytest.fixture(scope="module")
def checkpoint(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three updates of the variant."""
    folder = tmp_path_factory.mktemp("tied_heads")
    log = succeed("fairseq-train", data, *PLUG_IN, ARCH, *SIZES, *SHORT, "--save-dir", folder)
    assert len(train_log(log)) == 3
    return folder / "checkpoint_last.pt"


def test_its_cost_is_counted(checkpoint: Path) -> None:
    """d = 32, one layer: 32 numbers of 2 bytes, which are keys and values."""
    report = succeed("fairseq-collab", "cost", *PLUG_IN, checkpoint)
    row = [cell.strip() for cell in report.splitlines()[-4].split("|")]
    assert (row[2], *row[5:7]) == ("50.0%", *["64 = 64 + 0"] * 2)


# ---- groups and gates ----------------------------------------------------------------------------

CRITERION = "--criterion=label_smoothed_cross_entropy_with_head_"
GROUPED = ["--arch=transformer_grouped_heads", "--head-groups=2", f"{CRITERION}groups"]
GATED = ["--arch=transformer_gated_heads", "--gated-types=encoder"]
GATED += ["--gate-speed=10000", "--gate-penalty=0.5", f"{CRITERION}gates"]


def train(data: Path, folder: Path, *options: object) -> list[dict]:
    """The log."""
    model = [*SIZES, "--share-all-embeddings", *SHORT, *options]
    return train_log(succeed("fairseq-train", data, *USER_DIR, *model, "--save-dir", folder))


def test_groups_are_logged_and_kept(data: Path, tmp_path: Path) -> None:
    """Over a resumption; recipes vote and prune (test_recipes.py)."""
    train(data, tmp_path, *GROUPED, "--max-update=1")
    entries = train(data, tmp_path, *GROUPED, "--max-update=3")
    assert len(entries) == 2
    assert all(entry.keys() >= {*GROUPS_LOGGED} for entry in entries)
    weights = checkpoints.read(tmp_path / "checkpoint_last.pt")["model"]
    assert weights["decoder.layers.0.encoder_attn.membership"].sum(dim=1).tolist() == [1] * 4


def test_gates_go_on_from_a_converged_model_which_is_pruned(
    stock: Path, data: Path, tmp_path: Path
) -> None:
    """The smaller model translates as closed gates do."""
    entries = train(data, tmp_path, *GATED, "--finetune-from-model", stock)
    assert all(entry.keys() >= {*GATES_LOGGED} for entry in entries)
    assert float(entries[-1]["gates_l0"]) < float(entries[0]["gates_l0"]) <= 4
    state = checkpoints.read(tmp_path / "checkpoint_last.pt")
    # As after a longer training.
    state["model"]["encoder.layers.0.self_attn.theta"] = torch.tensor([4e-4, -4e-4, -4e-4, 4e-4])
    whole, pruned = tmp_path / "whole.pt", tmp_path / "pruned.pt"
    checkpoints.save(state, whole)
    assert command_prune.main([str(whole), "--gates", f"--out={pruned}"]) == 0
    assert checkpoints.read(pruned)["cfg"]["model"]["heads_in_encoder"] == "2"
    found = []
    for path in (whole, pruned):
        output = succeed("fairseq-generate", data, *USER_DIR, "--path", path, "--cpu")
        lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
        found.append([(line[0], line[2]) for line in lines])
    assert len(found[0]) == 50
    assert found[0] == found[1]
