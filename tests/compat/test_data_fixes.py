"""Binarised text: offsets are exact at any size, and those of small texts are stock's."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import TokenBlockDataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from fairseq.data.legacy.block_pair_dataset import BlockPairDataset
from refusals import refusing

Index = MMapIndexedDataset.Index
#: Lines of 1 GiB: one that this process has written, and those of a merged part.
LARGE = [2**29, *np.full(5, 2**29, dtype=np.int32)]


def write(path: Path, sizes: list[Any], writer: Any = None) -> bytes:
    with (writer or Index.writer)(path, np.uint16) as index:
        index.write(sizes)
    return path.read_bytes()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_offsets_above_two_and_four_gigabytes(tmp_path: Path) -> None:
    write(tmp_path / "a.idx", LARGE)
    index = Index(tmp_path / "a.idx")
    assert [index[line] for line in range(6)] == [(line * 2**30, 2**29) for line in range(6)]
    write(tmp_path / "stock.idx", LARGE, Index.writer.__wrapped__)
    with refusing("stock.idx", "binarise"):
        Index(tmp_path / "stock.idx")


@pytest.mark.parametrize("sizes", [[], [3], [5, 1, *np.array([2, 700], np.int32)]])
def test_offsets_of_small_texts_are_stocks(sizes: list[Any], tmp_path: Path) -> None:
    stock = write(tmp_path / "stock.idx", sizes, Index.writer.__wrapped__)
    assert write(tmp_path / "a.idx", sizes) == stock
    assert len(Index(tmp_path / "a.idx")) == len(sizes)


def test_merged_parts_are_read_in_order(tmp_path: Path) -> None:
    for name, lines in (("part", [[7], [8, 9]]), ("whole", [[5, 6, 2]])):
        builder = MMapIndexedDatasetBuilder(str(tmp_path / f"{name}.bin"), np.uint16)
        for line in lines:
            builder.add_item(torch.tensor(line))
        if name == "whole":
            builder.merge_file_(str(tmp_path / "part"))
        builder.finalize(str(tmp_path / f"{name}.idx"))
    text = MMapIndexedDataset(str(tmp_path / "whole"))
    assert [line.tolist() for line in text] == [[5, 6, 2], [7], [8, 9]]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("mode", ["none", "complete", "eos"])
def test_blocks_of_language_models(mode: str) -> None:
    """A block of one word precedes the words before it by less than nothing."""
    lines = [torch.tensor(line) for line in ([5, 2], [2], [6, 7, 2])]
    blocks = TokenBlockDataset(lines, [2, 1, 3], 2, 1, 2, break_mode=mode, include_targets=True)
    items = [blocks[index] for index in range(len(blocks))]
    assert torch.cat([target for _, target, _ in items]).tolist() == [5, 2, 2, 6, 7, 2]
    assert all(len(source) == len(target) for source, target, _ in items)


@pytest.mark.parametrize("mode", ["none", "complete", "eos"])
def test_blocks_without_a_fault_are_stocks(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, the words that they predict, and sizes; nothing is read before a block."""
    lines = [torch.tensor(line) for line in ([5, 8, 9, 2], [6, 2], [7, 5, 2])]

    def blocks() -> tuple[list[list[int]], list[int]]:
        made = TokenBlockDataset(lines, [4, 2, 3], 4, 1, 2, break_mode=mode)
        return [made[index].tolist() for index in range(len(made))], [*map(int, made.sizes)]

    ours, build = blocks(), inspect.unwrap(TokenBlockDataset._build_slice_indices)
    monkeypatch.setattr(TokenBlockDataset, "_build_slice_indices", staticmethod(build))
    assert blocks() == ours
    assert BlockPairDataset.__init__.__globals__["sum"](np.array([3, 4])) == sum([3, 4])


def test_sizes_of_sentences_above_16_bits() -> None:
    lines = [torch.full((size,), 5) for size in (3, 70_000)]
    blocks = TokenBlockDataset(lines, [3, 70_000], None, 1, 2, break_mode="eos")
    assert [int(size) for size in blocks.sizes] == [3, 70_000]


def test_a_sum_of_sizes_above_32_bits() -> None:
    sizes = np.full(2, 2**30, dtype=np.int32)
    assert BlockPairDataset.__init__.__globals__["sum"](sizes) == 2**31
