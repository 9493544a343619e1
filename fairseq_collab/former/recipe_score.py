"""Scores of a translation of the corpus recipes of version 0.1.0, which were no runs.

Now stages 5 to 8 are one run, and ``fairseq-collab score CHECKPOINT --run FOLDER`` makes one of a
checkpoint that is there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import write_json
from collab_common.folder import MANIFEST
from fairseq_collab.runs.evaluate import translation_scores
from fairseq_collab.runs.translations import manifest

PROG = "fairseq_collab.evaluation.recipe_score"


def report(args: argparse.Namespace) -> None:
    """Print and write all scores of a translation of the test set of a recipe's data folder."""
    told = manifest(args.data)
    if "form" not in told:
        raise UserError(f"its {MANIFEST} does not tell the form of its text", args.data)
    task = {"target_lang": told["options"]["languages"][1]}
    found = translation_scores(args.generation, args.data, "test", task)
    found = {key: value for key, value in found.items() if value is not None}
    write_json(args.json, found)
    for kind in ("bleu", "compound_split_bleu", "tokenised_bleu", "chrf"):
        if kind in found:
            print(
                f"{kind:20} {found[kind]:6.2f}  {found[kind.replace('_bleu', '') + '_signature']}"
            )
    if "note" in found:
        print(f"note: {found['note']}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="Scores a recipe's translation.")
    parser.add_argument("generation", type=Path, help="what fairseq-generate printed")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="OUT/data")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="to write")
    args = parser.parse_args(argv)
    return run(PROG, lambda: report(args))


if __name__ == "__main__":
    sys.exit(main())
