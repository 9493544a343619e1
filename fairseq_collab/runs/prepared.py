"""A prepared data folder in place of a corpus that a recipe knows: what its trainings differ in.

    python -m fairseq_collab.runs.prepared DIR --source-lang en --target-lang de \\
        [--size small] [--train multi30k_small]

prints shell variables for the recipes that share ``recipes/common.sh``:

    of_data   overrides of all trainings: languages, vocabulary, subwords, size, training
    tuning    of the fine-tuning of 8 heads: their size d/8
    third     of what goes on from a trained model: a third of its learning rate
    width, units    of smaller models: three quarters of d, half of the feed-forward units
"""

from __future__ import annotations

import argparse
import filecmp
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from collab_common.command import check_folder, run
from collab_common.errors import UserError
from collab_common.main import configs
from fairseq_collab.runs.translations import subwords_of

HEADS = 8  # of the recipes' models
SPLITS = ("train", "valid", "test")
TODO = "give a folder that fairseq-collab data prepare has made, and its languages"


def check(data: Path, source: str, target: str) -> None:
    """Raises UserError that names the first thing that training or scoring needs and lacks."""
    check_folder(data, TODO)
    sides = (source, target)
    needed: list[tuple[str, ...]] = [(f"dict.{side}.txt",) for side in sides]
    pairs = (f"{source}-{target}", f"{target}-{source}")  # fairseq takes either
    needed += [
        tuple(f"{split}.{pair}.{side}.idx" for pair in pairs) for split in SPLITS for side in sides
    ]
    needed.append((f"raw/test.{target}",))  # what translations are compared with
    for names in needed:
        if not any((data / name).is_file() for name in names):
            raise UserError(f"there is no {names[0]} in it", data, TODO)


def variables(
    data: Path, source: str, target: str, size: str, training: str
) -> dict[str, list[str]]:
    """The shell variables by name."""
    check(data, source, target)
    model, settings = _configuration("size", size), _configuration("train", training)
    if "warmup_init_lr" in settings["lr_scheduler"]:  # of the scheduler that these trainings lack
        what = f"{training} is for an inverse square root, not for a rate that falls to 0"
        raise UserError(what, "--train", "give another of configs/train")
    dim, units = model["encoder_embed_dim"], model["encoder_ffn_embed_dim"]
    joined = filecmp.cmp(data / f"dict.{source}.txt", data / f"dict.{target}.txt", shallow=False)
    shared = "share_all_embeddings"
    return {
        "of_data": [
            *(f"task.source_lang={source}", f"task.target_lang={target}"),
            *(f"size={size}", f"train={training}"),
            *([] if joined else [f"model.{shared}=false"]),
            *([] if joined else ["model.share_decoder_input_output_embed=true"]),
            f"common_eval.post_process={subwords_of(data, target) or 'null'}",
        ],
        "tuning": [f"model.head_size={dim // HEADS}"],
        "third": [f"optimization.lr=[{settings['optimization']['lr'][0] / 3:.2g}]"],
        "width": [str(3 * dim // 4)],
        "units": [str(units // 2)],
    }


def _configuration(group: str, name: str) -> Any:
    path = configs() / group / f"{name}.yaml"
    if not path.is_file():
        there = ", ".join(sorted(other.stem for other in path.parent.glob("*.yaml")))
        raise UserError(f"there is no {name!r}", f"--{group}", f"give one of {there}")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def shell(found: dict[str, list[str]]) -> str:
    """Assignments of arrays, one a line."""
    return "\n".join(f"{name}=({shlex.join(words)})" for name, words in found.items())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_collab.runs.prepared",
        description="Shell variables with which a recipe trains on a prepared data folder.",
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--source-lang", required=True, metavar="S")
    parser.add_argument("--target-lang", required=True, metavar="T")
    parser.add_argument("--size", default="small", metavar="Z", help="of configs/size")
    parser.add_argument("--train", default="multi30k_small", metavar="X", help="of configs/train")
    args = parser.parse_args(argv)
    chosen = (args.data, args.source_lang, args.target_lang, args.size, args.train)
    return run(parser.prog, lambda: print(shell(variables(*chosen))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
