"""Values of the commands' options: types for argparse, with a message for what they refuse."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def share(text: str) -> float:
    """A number from 0 up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 up to 1, not {text!r}")
    return value
