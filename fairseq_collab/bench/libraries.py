"""Which library our linear maps are computed by, while a benchmark builds and prepares models."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from fairseq_collab.kernels.onednn import VARIABLE, matrix_library


@contextlib.contextmanager
def using(library: str | None) -> Iterator[None]:
    """Whatever the environment says: a value of its variable, or None for this processor's."""
    before = os.environ.pop(VARIABLE, None)
    if library is not None:
        os.environ[VARIABLE] = library
    matrix_library.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before
        matrix_library.cache_clear()
