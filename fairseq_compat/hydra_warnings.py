"""Warnings of hydra 1.1 and later about how fairseq calls it."""

from __future__ import annotations

import warnings

from .one_line import program

# The beginnings of the warnings: fairseq names no hydra version whose behaviour it expects, and
# stores its options under the name of the user's configuration.
OURS_TO_IGNORE = (
    r"\s*The version_base parameter is not specified",
    r"\s*'.*' is validated against ConfigStore schema with the same name",
)


def ignore() -> None:
    """Leave out, in `fairseq-hydra-train` alone, what its user cannot mend."""
    if program() == "fairseq-hydra-train":
        for message in OURS_TO_IGNORE:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
