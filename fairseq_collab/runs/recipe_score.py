"""Scores a corpus recipe's translation in the ways that papers do.

`python -m fairseq_collab.runs.recipe_score`, stage 8 of the recipes (recipes/stages.sh):

    bleu                 sacreBLEU: detokenised, against the reference as published (lower-cased
                         where the model's text is). The one to compare with other systems.
    compound_split_bleu  Moses tokens, hyphenated words split, as in papers on WMT14 En-De
    tokenised_bleu       against the tokenised reference that fairseq holds, as fairseq-generate
                         counts it and most papers on IWSLT14 report it

They differ by up to a point for the same translation: never compare one with another.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict
from pathlib import Path

from data_prep import moses
from collab_common.command import run
from collab_common.files import read_json, write_json
from collab_common.folder import MANIFEST, Json
from fairseq_collab.metrics.compound_split import bleu_of_tokens, compound_split_bleu
from fairseq_collab.runs.score import read_hypotheses, read_references, score
from collab_common.errors import UserError

PROG = "fairseq_collab.runs.recipe_score"
_REFERENCE = re.compile(r"T-(\d+)\t(.*)")


def score_translation(generation: Path, data: Path) -> Json:
    """All scores of what fairseq-generate printed for the test set of a recipe's data folder.

    Raises:
        UserError: hypotheses are missing, or the data folder does not say what it holds.
    """
    manifest = read_json(data / MANIFEST) if (data / MANIFEST).exists() else {}
    if "form" not in manifest:
        raise UserError(f"its {MANIFEST} does not tell the form of its text", data)
    form, options = manifest["form"], manifest["options"]
    language = options["languages"][1]
    hypotheses = read_hypotheses(generation)
    readable = moses.ordinary_text(hypotheses, form, language)
    references = read_references(data / "raw" / f"test.{language}")
    result: Json = {
        **{key: options[key] for key in ("corpus", "variant", "languages")},
        **({"note": options["note"]} if "note" in options else {}),
        "lowercased": form["lowercased"],
        **asdict(score(readable, references)),
        **compound_split_bleu(readable, references, language),
    }
    if form["moses"]:
        bleu, signature = bleu_of_tokens(hypotheses, _tokenised_references(generation))
        result |= {"tokenised_bleu": bleu, "tokenised_signature": signature}
    return result


def _tokenised_references(generation: Path) -> list[str]:
    lines = generation.read_text(encoding="utf-8").split("\n")
    matches = (_REFERENCE.fullmatch(line) for line in lines)
    found = {int(match[1]): match[2] for match in matches if match}
    return [found[number] for number in sorted(found)]


def _report(args: argparse.Namespace) -> None:
    result = score_translation(args.generation, args.data)
    write_json(args.json, result)
    for kind in ("bleu", "compound_split_bleu", "tokenised_bleu", "chrf"):
        if kind in result:
            signature = result[kind.replace("_bleu", "") + "_signature"]
            print(f"{kind:20} {result[kind]:6.2f}  {signature}")
    if "note" in result:
        print(f"note: {result['note']}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="Scores a recipe's translation.")
    parser.add_argument("generation", type=Path, help="what fairseq-generate printed")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="OUT/data")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="to write")
    args = parser.parse_args(argv)
    return run(PROG, lambda: _report(args))


if __name__ == "__main__":
    sys.exit(main())
