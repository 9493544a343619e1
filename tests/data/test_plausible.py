"""Warnings of swapped files and shifted lines, and none of sound text."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from text_tools import manifest, prepare_text, write_corpus

from data_prep.parallel_text import find_files
from data_prep.plausible import suspicions

LANGUAGES = ("en", "de")
Lines = list[str]


def swap(folder: Path, split: str) -> None:
    paths = [folder / f"{split}.{lang}" for lang in LANGUAGES]
    texts = [path.read_text() for path in paths]
    for path, text in zip(paths, reversed(texts), strict=True):
        path.write_text(text)


def change(folder: Path, name: str, how: Callable[[Lines], Lines]) -> None:
    path = folder / name
    path.write_text("".join(how(path.read_text().splitlines(keepends=True))))


#: What is done to a text of 300 pairs, and the texts or sets that are warned of.
FAULTS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "nothing": (lambda folder: None, []),
    "training text swapped": (lambda folder: swap(folder, "train"), ["train.en", "train.de"]),
    "validation set swapped": (
        lambda folder: swap(folder, "valid"),
        [f"{split}.{lang}" for split in ("train", "test", "test1") for lang in LANGUAGES],
    ),
    "one side in both": (
        lambda folder: (folder / "train.de").write_bytes((folder / "train.en").read_bytes()[:-2]),
        ["train.de"],
    ),
    "shifted": (
        lambda folder: change(folder, "train.de", lambda lines: lines[1:] + lines[:1]),
        ["train:"],
    ),
    "shifted from the middle": (
        lambda folder: change(folder, "train.de", lambda x: x[:200] + x[201:] + x[200:201]),
        ["train:"],
    ),
    "sorted by length": (
        lambda folder: [
            change(folder, f"train.{lang}", lambda lines: sorted(lines, key=len))
            for lang in LANGUAGES
        ],
        [],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_warned_of(fault: str, tmp_path: Path) -> None:
    text = write_corpus(tmp_path)
    spoil, expected = FAULTS[fault]
    spoil(text)
    found = [*suspicions(find_files(text, None, LANGUAGES), LANGUAGES)]
    assert [line.split()[0] for line in found] == expected


@pytest.mark.parametrize("lines", [["a b\n"], ["\n"], ["one length\n"] * 300])
def test_texts_that_say_nothing(lines: Lines, tmp_path: Path) -> None:
    """Too short, without letters, or of one length."""
    for split in ("train", "valid"):
        for lang in LANGUAGES:
            (tmp_path / f"{split}.{lang}").write_text("".join(lines))
    assert not [*suspicions(find_files(tmp_path, None, LANGUAGES), LANGUAGES)]


def test_sorted_text_whose_short_lines_are_translated_freely(tmp_path: Path) -> None:
    """Sorted by the length of the source, as many published texts are: its pairs are pairs."""
    rng = random.Random(1)

    def lengths() -> tuple[int, int]:
        source = rng.randint(8, 40)
        return source, source + rng.randint(0, 3) if source > 12 else rng.randint(8, 40)

    for split, size in (("train", 2000), ("valid", 300)):
        pairs = [lengths() for _ in range(size)]
        if split == "train":
            pairs.sort()
        for side, lang in enumerate(LANGUAGES):
            text = "".join(
                "xy"[side] * pair[side] + "\n"
                for pair in (sorted(pairs) if split == "train" else pairs)
            )
            (tmp_path / f"{split}.{lang}").write_text(text)
    assert not [*suspicions(find_files(tmp_path, None, LANGUAGES), LANGUAGES)]


def test_prepare_warns(
    tmp_path: Path, no_fairseq: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data folder is made all the same; its manifest has the warnings."""
    text, out = write_corpus(tmp_path / "text"), tmp_path / "bin"
    swap(text, "train")
    prepare_text(text, out)
    warnings = manifest(out)["warnings"]
    assert len(warnings) == 2
    printed = capsys.readouterr().out.splitlines()
    assert {f"warning: {text}" for text in warnings} <= {*printed}
