"""Fixes of binarised text; the docstring of each fix names the fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collab_common.errors import UserError

from .patching import wrap

_INT32 = 2**31


def write_exact_offsets() -> None:
    """NumPy 2 adds 32-bit offsets of binarised text in 32 bits, which is wrong from 2 GiB on.

    fairseq reads the sizes of the parts that ``--workers`` wrote as 32-bit integers.  Between 2 and
    4 GiB an offset is then negative; beyond 4 GiB it is that of another line.
    """
    import numpy as np
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    def offsets(sizes: Sequence[int], item_size: int) -> Any:
        """Offsets in bytes of items of these sizes, ``(n,)``, in 64 bits."""
        lengths = np.asarray(sizes, dtype=np.int64) * item_size
        return np.cumsum(lengths) - lengths

    @wrap(MMapIndexedDataset.Index, "writer")
    def writer(original: Any, path: str, dtype: Any) -> Any:
        result = original(path, dtype)
        result._get_pointers = lambda sizes: offsets(sizes, np.dtype(dtype).itemsize)
        return result

    @wrap(MMapIndexedDataset.Index, "__init__")
    def __init__(original: Any, self: Any, path: str) -> None:
        original(self, path)
        if len(self) and self._pointers[-1] != offsets(self._sizes, self._dtype_size)[-1]:
            problem = "the offsets of its sentences are wrong: it was written without this fix"
            raise UserError(problem, path, "binarise the text again")


def sign_block_offsets() -> None:
    """NumPy 2 subtracts from the unsigned offsets of blocks, also below zero.

    A language model with ``--past-target`` reads two words before a block, also before the first
    one.
    """
    import numpy as np
    from fairseq.data.token_block_dataset import TokenBlockDataset

    @wrap(TokenBlockDataset, "_build_slice_indices")
    def build(original: Any, *args: Any, **kwargs: Any) -> Any:
        sizes, blocks, slices = original(*args, **kwargs)
        signed = np.int32 if slices[-1].max() < _INT32 - 1 else np.int64
        return sizes, blocks.astype(signed), slices.astype(signed)


def keep_long_sizes() -> None:
    """fairseq keeps sizes of sentences in 16 bits where each is a block, however long they are."""
    import numpy as np
    from fairseq.data.token_block_dataset import TokenBlockDataset

    @wrap(TokenBlockDataset, "_build_slice_indices")
    def build(original: Any, *args: Any, **kwargs: Any) -> Any:
        sizes, blocks, slices = original(*args, **kwargs)
        lengths = slices[:, 1].astype(np.int64) - slices[:, 0].astype(np.int64)
        return lengths if lengths.max() > np.iinfo(sizes.dtype).max else sizes, blocks, slices


def add_sizes_in_64_bits() -> None:
    """NumPy 2 adds the sizes of all sentences of BERT's data in 32 bits."""
    import numpy as np
    from fairseq.data.legacy import block_pair_dataset

    block_pair_dataset.sum = lambda sizes: int(np.sum(sizes, dtype=np.int64))
