"""The command `fairseq-collab`.

It stands outside the package because importing `fairseq_collab` imports fairseq and torch,
and `fairseq-collab doctor` has to say what is wrong where that very import fails.
"""

from __future__ import annotations

import logging
import sys

import fairseq_compat


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["doctor"]:
        from fairseq_compat import doctor

        return doctor.main(arguments[1:], plugin="fairseq_collab")
    # fairseq imports its tasks for speech, too, one of which advises to install tensorboardX.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    try:
        fairseq_compat.require_fairseq()
    except ModuleNotFoundError as error:
        print(f"fairseq-collab: {error}", file=sys.stderr)
        return 1
    from fairseq_collab import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
