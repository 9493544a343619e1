"""Checkpoints, data and options that do not fit: one clear line, non-zero exit, nothing lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.conftest import MODEL, SHORT
from commands import USER_DIR, refuse, succeed

OTHER_HEADS = ["--encoder-attention-heads=2", "--decoder-attention-heads=2"]
HEADS = "encoder.layers.0.self_attn: heads is 4 in the checkpoint, 2 in the model"


def train(data: Path, *options: object) -> list[object]:
    return ["fairseq-train", data, *USER_DIR, *MODEL, *SHORT, *options]


def test_resuming_with_other_heads(trained: Path, data: Path) -> None:
    before = trained.read_bytes()
    line = refuse(*train(data, *OTHER_HEADS, "--max-update=6", "--save-dir", trained.parent))
    assert line.startswith("fairseq-train: error: ")
    assert HEADS in line
    assert str(trained) in line
    assert trained.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*OTHER_HEADS, "--finetune-from-model"], HEADS),
        (
            ["--key-dim=4", "--reset-optimizer", "--restore-file"],
            "key width is 8 in the checkpoint",
        ),
        (["--activation-fn=gelu", "--restore-file"], "activation is relu in the checkpoint"),
    ],
    ids=["fine-tuning", "restoring", "another function"],
)
def test_starting_from_another_model(
    options: list[str], said: str, trained: Path, data: Path, tmp_path: Path
) -> None:
    assert said in refuse(*train(data, *options, trained, "--save-dir", tmp_path))


@pytest.mark.parametrize("option", ["--finetune-from-model", "--restore-file"])
def test_embeddings_that_are_not_shared(
    option: str, trained: Path, data: Path, tmp_path: Path
) -> None:
    words = train(data, option, trained, "--save-dir", tmp_path)
    words.remove("--share-all-embeddings")
    assert "what shares embeddings is all in the checkpoint" in refuse(*words)


@pytest.mark.parametrize("command", ["generate", "validate"])
def test_without_the_plug_in(command: str, trained: Path, data: Path) -> None:
    """In an interpreter of its own, which the variable starts: others have the plug-in."""
    words = [f"fairseq-{command}", data, "--path", trained, "--cpu"]
    line = refuse(*words, PYTHONHASHSEED="1")
    assert f"{trained}: there is no architecture transformer_collab" in line
    assert "--user-dir" in line


def test_the_wrong_direction(trained: Path, data: Path) -> None:
    words = [data, *USER_DIR, "--path", trained, "--cpu", "--source-lang=de", "--target-lang=en"]
    assert f"{trained}: translates en to de" in refuse("fairseq-generate", *words)


def test_validating_with_the_task_of_the_checkpoint(
    trained: Path, data: Path, ordinary_lm: Path, monolingual: Path
) -> None:
    for path, folder in ((trained, data), (ordinary_lm, monolingual)):
        words = [folder, *USER_DIR, "--path", path, "--cpu"]
        assert "valid on 'valid' subset | loss" in succeed("fairseq-validate", *words)


def test_overriding_heads_when_generating(trained: Path, data: Path) -> None:
    line = refuse(
        "fairseq-generate", data, *USER_DIR, "--path", trained, "--cpu",
        "--model-overrides", "{'encoder_attention_heads': 2}",
    )  # fmt: skip
    assert line.startswith("fairseq-generate: error: ")
    assert HEADS in line


def test_rounding_the_cache_when_generating(trained: Path, data: Path) -> None:
    """The whole pass of fairseq-validate rounds, too."""
    words = [data, *USER_DIR, "--path", trained, "--cpu"]
    losses = [
        re.findall(r"loss ([\d.]+)", succeed("fairseq-validate", *words, *options))
        for options in ([], ["--model-overrides", "{'cache_bits': 4}"])
    ]
    assert losses[0] != losses[1]
    output = succeed("fairseq-generate", *words, "--model-overrides", "{'cache_bits_in_cross': 8}")
    assert "Generate test with beam=5" in output
    for value in ("3", "-1", "'x'"):
        line = refuse("fairseq-generate", *words, "--model-overrides", f"{{'cache_bits': {value}}}")
        assert "cache bits is" in line


@pytest.fixture
def reordered(data: Path, tmp_path: Path) -> Path:
    """The same data with its dictionary's lines in another order: same size, other words."""
    folder = tmp_path / "reordered"
    folder.mkdir()
    for file in data.iterdir():
        if file.name.startswith("dict."):
            lines = file.read_text().splitlines(keepends=True)
            (folder / file.name).write_text("".join(lines[::-1]))
        else:
            (folder / file.name).symlink_to(file)
    return folder


def test_another_dictionary_of_the_same_size(trained: Path, reordered: Path) -> None:
    expected = "the encoder's dictionary has the same size (16) but other symbols"
    assert expected in refuse("fairseq-generate", reordered, *USER_DIR, "--path", trained, "--cpu")
    assert expected in refuse(*train(reordered, "--max-update=6", "--save-dir", trained.parent))


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_a_stock_checkpoint(option: str, stock: Path, data: Path, tmp_path: Path) -> None:
    line = refuse(*train(data, option, stock, "--save-dir", tmp_path))
    assert f"{stock}: the checkpoint is a model of stock fairseq" in line
    assert "fairseq-collab reparametrize" in line


def test_score_refuses_what_it_cannot_score(tmp_path: Path) -> None:
    generation, reference = tmp_path / "generation", tmp_path / "reference"
    score = ["fairseq-collab", "score", generation, "--reference", reference]
    assert f"{generation}: file or folder not found" in refuse(*score)
    generation.write_text("D-0\t-0.1\ta\nD-1\t-0.1\tb\n")
    reference.write_text("\n\n")
    assert "the reference has no words; give the text of the test set" in refuse(*score)
