"""What commands have in common: how they end, and how they read numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from fairseq_compat.errors import UserError


def run(prog: str, action: Callable[[], object]) -> int:
    """Runs a command; the exit status. What a user can mend is told in one line."""
    try:
        action()
    except UserError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        # a full disk, a folder without permission, ...
        where = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: error: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130  # as a shell reports a program that SIGINT ended
    return 0


def positive(text: str) -> int:
    """For argparse: a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)
