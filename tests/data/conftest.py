"""Fixtures for corpora: a tiny text, raw and prepared, and a loopback web server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from corpus_archives import TEST, TRAIN, filled, small_iwslt14
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from loopback import Server, serving
from text_tools import prepare_text, write_corpus

import data_prep.prepare as prepare_module


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[bytes, bytes], tuple[Path, Path]]:
    """Writes a.en and a.de."""

    def write(source: bytes, target: bytes) -> tuple[Path, Path]:
        paths = tmp_path / "a.en", tmp_path / "a.de"
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(content)
        return paths

    return write


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def prepared(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as `prepare` makes it, undisturbed. Not to be changed by a test."""
    return prepare_text(corpus, tmp_path_factory.mktemp("prepared") / "bin")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a small archive of IWSLT14."""
    return filled(tmp_path / "from", {"de-en.tgz": small_iwslt14(TRAIN, TEST)})


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as state:
        yield state


@pytest.fixture
def no_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for fairseq-preprocess, which takes seconds to start."""

    def binarise(folder: Path, splits: list[str], languages: tuple[str, str], *_: object) -> None:
        for lang in languages:
            words = {
                w for split in splits for w in (folder / f"{split}.{lang}").read_text().split()
            }
            (folder / f"dict.{lang}.txt").write_text("".join(f"{w} 1\n" for w in sorted(words)))
            for split in splits:
                lines = (folder / f"{split}.{lang}").read_bytes().count(b"\n")
                stem = str(folder / f"{split}.{'-'.join(languages)}.{lang}")
                builder = MMapIndexedDatasetBuilder(f"{stem}.bin", np.int32)
                for _ in range(lines):
                    builder.add_item(torch.zeros(3, dtype=torch.int32))
                builder.finalize(f"{stem}.idx")

    monkeypatch.setattr(prepare_module, "binarise", binarise)
