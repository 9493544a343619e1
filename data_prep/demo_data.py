"""The embedded English-German corpus, ready for fairseq: `python -m data_prep.demo_data`.

Generates the text into a folder beside --out, together with whatever else the generator gives
(trees, word alignment), and prepares it. Needs no network.
"""

from __future__ import annotations

import argparse
import sys

from collab_common.command import not_negative, positive, run
from data_prep.embedded.files import Request, make
from data_prep.options import add_languages, check_languages
from data_prep.prepare import add_prepare_options, config_from, prepare

PROG = "data_prep.demo_data"


def _make(args: argparse.Namespace) -> None:
    out = args.out.resolve()
    text = out.with_name(f"{out.name}-text")
    make(text, Request(args.train, args.valid, args.test, args.seed), force=args.force)
    splits = {name: name for name in ("train", "valid", "test")}
    origin = {"corpus": "embedded", "seed": args.seed}
    prepare(config_from(args, text, splits=splits, origin=origin))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG,
        description="Makes a folder for fairseq-train from the embedded English-German corpus; "
        "the text goes to a folder beside it, whose name ends in -text.",
    )
    for split, size in (("train", 20_000), ("valid", 500), ("test", 500)):
        parser.add_argument(
            f"--{split}",
            type=positive,
            default=size,
            metavar="N",
            help=f"sentence pairs of the {split} set (default: {size})",
        )
    parser.add_argument(
        "--seed", type=not_negative, default=1, help="another seed, other sentences"
    )
    add_languages(parser, ("en", "de"))
    add_prepare_options(parser, vocab_size=2000)
    args = parser.parse_args(argv)
    check_languages(parser, args)
    return run(PROG, lambda: _make(args))


if __name__ == "__main__":
    sys.exit(main())
