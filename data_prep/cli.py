"""How every command here ends: quietly, or with one line and a status that is not zero."""

from __future__ import annotations

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
