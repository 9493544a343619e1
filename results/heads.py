"""What the heads of one model do, and its BLEU without some: writes the first part of heads.json.

    fairseq-collab heads average.pt data/multi30k --conllu en.conllu --cpu --out heads
    python results/heads.py results/heads.json --heads heads/heads.json --data data/multi30k --model average.pt

``points`` are BLEU on the test set without the heads that importance ranks last (Michel et al.
2019, with norm 1 in each layer, as in the paper), of one attention type or of all; nothing is
trained or refitted.  ``pruning`` and ``groups`` are of runs.py.
"""  # noqa: E501

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from omegaconf import OmegaConf

from collab_common import ATTENTION_TYPES, command
from collab_common.errors import UserError
from collab_common.files import read_json, sha256
from collab_lab import open_model
from collab_lab.metrics.generate import translate
from collab_lab.metrics.marks import subword_marks
from collab_lab.metrics.translation_scores import score
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import batches
from results.records import File, origin, write

#: Shares of the heads that go.
SHARES = (0, 1 / 12, 1 / 6, 1 / 3, 5 / 12, 1 / 2, 7 / 12, 2 / 3, 5 / 6, 11 / 12)
#: Which numbers of ``fairseq-collab heads`` are kept as they are.
KEPT = ("checkpoint", "arch", "data", "subset", "sentences", "offsets", "rare", "commit",
        "versions", "hardware", "date", "command")  # fmt: skip


def about(found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of ``fairseq-collab heads``; of syntax the best head and the best distance."""
    relations: dict[str, Any] = {}
    for name, directions in found.get("syntax", {}).get("relations", {}).items():
        relations[name] = {
            direction: {
                "pairs": one["pairs"],
                "best": max(x for layer in one["encoder"] for x in layer),
                "fixed": one["baseline"]["accuracy"],
            }
            for direction, one in directions.items()
            if one["pairs"]
        }
    return {**{name: found[name] for name in KEPT if name in found}, "relations": relations}


def normalised(layers: list[list[float]]) -> list[list[float]]:
    """Importance with norm 1 in each layer."""
    return [[x / (math.hypot(*layer) or 1.0) for x in layer] for layer in layers]


def points(
    model: Trained, importance: dict[str, list[list[float]]], references: list[str], beam: int
) -> Iterator[dict[str, Any]]:
    """BLEU as heads go: those of each attention type, then those of all."""
    every = [
        (x, type_, layer, head)
        for type_ in ATTENTION_TYPES
        for layer, of in enumerate(normalised(importance[type_]))
        for head, x in enumerate(of)
    ]
    for curve in (*ATTENTION_TYPES, "all"):
        order = sorted(one for one in every if curve in (one[1], "all"))
        numbers = dict.fromkeys(round(share * len(order)) for share in SHARES)
        for number in numbers:
            retained = all_heads(model)
            for _, type_, layer, head in order[:number]:
                retained[type_][layer].remove(head)
            if not any(retained["cross"]):
                continue
            changed = pruned(model, retained)
            bleu = score(translations(changed, beam), references).bleu
            yield {"curve": curve, "removed": number, "of": len(order), "bleu": bleu}


def translations(model: Trained, beam: int) -> list[str]:
    """Of the test set, as a run translates it."""
    generation = OmegaConf.structured(GenerationConfig(beam=beam, max_len_a=2, max_len_b=20))
    subwords = subword_marks(model.task.target_dictionary.symbols)
    samples = batches(model, "test")
    return translate(model.model, model.task, samples, generation, subwords).hypotheses


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/heads.json")
    parser.add_argument("--heads", type=Path, required=True, help="of fairseq-collab heads")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--reference", type=Path, help="default: raw/test.LANG in the data folder")
    parser.add_argument("--model", type=Path, required=True, metavar="CHECKPOINT")
    parser.add_argument("--beam", type=int, default=5)
    args = parser.parse_args(argv)
    found, model = read_json(args.heads), open_model(args.model, args.data)
    if found["checkpoint_sha256"] != sha256(args.model):
        problem = f"has the numbers of another model ({found['checkpoint']}) than {args.model}"
        raise UserError(problem, args.heads, "run fairseq-collab heads on this model")
    reference = args.reference or args.data / "raw" / f"test.{model.cfg.task.target_lang}"
    references = reference.read_text(encoding="utf-8").splitlines()
    rows = [*points(model, found["measures"]["importance"], references, args.beam)]
    content = {**File(args.file).content, **about(found)}
    write(args.file, {**content, "points": rows, "points_made": origin("heads.py", argv)})
    return 0


if __name__ == "__main__":
    sys.exit(command.run("heads.py", lambda: main(sys.argv[1:])))
