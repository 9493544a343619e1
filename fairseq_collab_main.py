"""The command `fairseq-collab`.

It stands outside the package because importing `fairseq_collab` imports fairseq and torch,
and `fairseq-collab doctor` has to say what is wrong where that very import fails. The commands
that print a folder work there, too, and take no time.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import fairseq_compat


def user_dir() -> Path:
    """Where the package is installed: what to pass to fairseq as --user-dir."""
    spec = find_spec("fairseq_collab")
    if spec is None or spec.origin is None:
        sys.exit("fairseq-collab: the package fairseq_collab is gone; install it again")
    return Path(spec.origin).parent


def configs() -> Path:
    """The folder of Hydra configurations, for --config-dir: in the wheel, or of the checkout."""
    installed = user_dir() / "configs"
    return installed if installed.is_dir() else user_dir().parent / "configs"


FOLDERS: dict[str, Callable[[], Path]] = {"user-dir": user_dir, "configs": configs}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["doctor"]:
        from fairseq_compat import doctor

        return doctor.main(arguments[1:], plugin="fairseq_collab")
    if arguments and arguments[0] in FOLDERS:
        return print_folder(*arguments)
    # fairseq imports its tasks for speech, too, one of which advises to install tensorboardX.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    try:
        fairseq_compat.require_fairseq()
    except ModuleNotFoundError as error:
        print(f"fairseq-collab: {error}", file=sys.stderr)
        return 1
    from fairseq_collab import cli

    return cli.main(arguments)


def print_folder(name: str, *rest: str) -> int:
    """Print a folder of the installation; there are no options but --help."""
    folder = FOLDERS[name]
    argparse.ArgumentParser(prog=f"fairseq-collab {name}", description=folder.__doc__).parse_args(
        rest
    )
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
