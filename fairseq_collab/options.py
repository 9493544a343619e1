"""Values of the commands' options: what they accept, with a message for what they refuse."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fairseq_compat.errors import UserError


def share(text: str) -> float:
    """A number from 0 up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 up to 1, not {text!r}")
    return value


def check_folder_of(path: str | os.PathLike[str], option: str) -> None:
    """A file to be written needs a folder: asked before anything is computed for it.

    Args:
        option: that names the file, for the message.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise UserError("there is no such folder", folder, f"make it, or give another {option}")
