"""``fairseq-collab glue``: a classifier of Hugging Face's on a GLUE task, heads swapped or not."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import check_folder, not_negative, positive
from fairseq_collab.adapters.glue.tasks import TASKS
from fairseq_collab.adapters.glue.training import Settings
from fairseq_collab.commands import options
from fairseq_collab.runs.glue import Options, glue_run
from fairseq_collab.runs.run import Run


def build_parser() -> ArgumentParser:
    usual = Settings()
    parser = options.parser_of(
        "glue",
        "Fine-tunes a classifier of Hugging Face's (BERT, RoBERTa, DistilBERT, ALBERT) on a GLUE "
        "task and scores it on the development set; with --key-dim its heads are swapped for "
        "collaborative ones first. Model and data are local folders; nothing is downloaded. "
        "Makes a run, which fairseq-collab glue-table reads; what is done is not done again.",
        "example: fairseq-collab glue bert-base-cased glue_data --task mrpc --out runs/mrpc, then "
        "fairseq-collab glue runs/mrpc/model glue_data --task mrpc --key-dim 384 --out "
        "runs/mrpc-384",
    )
    parser.add_argument("model", type=Path, help="a folder with config.json, tokenizer, weights")
    parser.add_argument("data", type=Path, help="a folder with GLUE's CoLA, SST-2, MRPC, ...")
    parser.add_argument("--task", required=True, choices=TASKS, help="of GLUE")
    options.add_output(parser, "--out", "DIR", "of the run")
    parser.add_argument(
        "--key-dim", type=positive, metavar="K",
        help="swap all heads for collaborative ones of this key dimension before training",
    )  # fmt: skip
    parser.add_argument(
        "--method", metavar="NAME",
        help="of its row in tables (default: collab after a swap, else concatenated)",
    )  # fmt: skip
    parser.add_argument(
        "--epochs", type=not_negative, default=usual.epochs, metavar="N",
        help=f"0 to score only (default: {usual.epochs})",
    )  # fmt: skip
    parser.add_argument("--batch-size", type=positive, default=usual.batch_size, metavar="N")
    parser.add_argument("--lr", type=options.amount, default=usual.lr, metavar="X")
    parser.add_argument(
        "--max-length", type=positive, default=usual.max_length, metavar="N",
        help=f"tokens of an example; the rest is cut off (default: {usual.max_length})",
    )  # fmt: skip
    parser.add_argument("--seed", type=not_negative, default=1, metavar="N")
    parser.add_argument(
        "--no-model", action="store_true", help="do not keep the model, which takes much disk"
    )
    options.add_cpu(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv, Options())
    check_folder(args.data, "nothing is downloaded: give the folder of GLUE's tasks")
    record, there = glue_run(Run(args.out), args, ["fairseq-collab", "glue", *argv])
    found = ", ".join(f"{name} {value:.2f}" for name, value in (record.glue or {}).items())
    print(f"{args.out}: {record.data}: {found}{' (it is there already)' if there else ''}")
    return 0
