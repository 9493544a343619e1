"""Checkpoints, data and options that do not fit: one clear line, non-zero exit, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import MODEL, SHORT
from commands import USER_DIR, refuse, succeed

pytestmark = pytest.mark.slow

OTHER_HEADS = ["--encoder-attention-heads=2", "--decoder-attention-heads=2"]
HEADS = "encoder.layers.0.self_attn: heads is 4 in the checkpoint, 2 in the model"


def train(data: Path, *options: object) -> list[object]:
    return ["fairseq-train", data, *USER_DIR, *MODEL, *SHORT, *options]


def test_resuming_with_other_heads(trained: Path, data: Path) -> None:
    before = trained.read_bytes()
    line = refuse(*train(data, *OTHER_HEADS, "--max-update=6", "--save-dir", trained.parent))
    assert HEADS in line
    assert str(trained) in line
    assert trained.read_bytes() == before


def test_without_the_plug_in(trained: Path, data: Path) -> None:
    """In an interpreter of its own, which the variable starts: others have the plug-in."""
    words = ["fairseq-generate", data, "--path", trained, "--cpu"]
    line = refuse(*words, PYTHONHASHSEED="1")
    assert f"{trained}: " in line
    assert "transformer_collab" in line
    assert "--user-dir" in line


def test_the_wrong_direction(trained: Path, data: Path) -> None:
    words = [data, *USER_DIR, "--path", trained, "--cpu", "--source-lang=de", "--target-lang=en"]
    line = refuse("fairseq-generate", *words)
    assert f"{trained}: " in line
    assert "en to de" in line


def test_validating_with_the_task_of_the_checkpoint(
    trained: Path, data: Path, ordinary_lm: Path, monolingual: Path
) -> None:
    for path, folder in ((trained, data), (ordinary_lm, monolingual)):
        words = [folder, *USER_DIR, "--path", path, "--cpu"]
        assert "valid on 'valid' subset | loss" in succeed("fairseq-validate", *words)


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
    generate = ["fairseq-generate", reordered, *USER_DIR, "--path", trained, "--cpu"]
    for words in (generate, train(reordered, "--max-update=6", "--save-dir", trained.parent)):
        assert "dictionary" in refuse(*words)
