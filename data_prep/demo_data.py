"""English-German sentences that a grammar generates: `fairseq-collab data demo-data`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from collab_common.command import Parser, not_negative, positive, run
from collab_common.errors import UserError
from collab_common.files import sha256
from collab_common.folder import Json, build_folder
from data_prep import demo_grammar
from data_prep.demo_grammar import Grammar
from data_prep.parallel_text import sibling, write_lines
from data_prep.prepare import add_prepare_options, prepare_as_asked

PROG = "fairseq-collab data demo-data"
PATIENCE = 2000  # draws without a new sentence, after which the grammar counts as used up


def generate(size: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield ``size`` pairs with distinct English sentences, which depend only on the seed.

    Raises:
        UserError: the grammar does not have this many sentences.
    """
    grammar, seen, fruitless = Grammar(seed), set[str](), 0
    while len(seen) < size:
        pair = grammar.sentence()
        fruitless = fruitless + 1 if pair[0] in seen else 0
        if fruitless > PATIENCE:
            raise UserError(f"the grammar gives only {len(seen):,} of {size:,} distinct sentences")
        if not fruitless:
            seen.add(pair[0])
            yield pair


def make_text(folder: Path, sizes: dict[str, int], seed: int, force: bool) -> None:
    """Write the text of all sets; only the training set depends on the training set's size."""

    def build(temporary: Path) -> Json:
        pairs = generate(sum(sizes.values()), seed)
        for split in ("test", "valid", "train"):
            drawn = [next(pairs) for _ in range(sizes[split])]
            for lang, lines in zip(("en", "de"), zip(*drawn, strict=True), strict=True):
                write_lines(temporary / f"{split}.{lang}", lines)
        return {}

    grammar = {"sha256": sha256(Path(demo_grammar.__file__))}  # another makes other text
    identity: Json = {"options": {**sizes, "seed": seed}, "inputs": {"grammar": grammar}}
    build_folder(folder, identity, build, force=force)


def _make(args: argparse.Namespace) -> None:
    text = sibling(args.out, "text")
    sizes = {"train": args.train, "valid": args.valid, "test": args.test}
    make_text(text, sizes, args.seed, args.force)
    prepare_as_asked(args, text, origin={"corpus": "demo", "seed": args.seed})


def main(argv: list[str] | None = None) -> int:
    """Run ``fairseq-collab data demo-data``."""
    parser = Parser(
        prog=PROG,
        description="Make a data folder from generated English-German sentences; "
        "the text goes to OUT-text.",
    )
    for split, size in (("train", 20_000), ("valid", 500), ("test", 500)):
        parser.add_argument(
            f"--{split}", type=positive, default=size, metavar="N",
            help=f"number of sentence pairs in the {split} set (default: {size})",
        )  # fmt: skip
    parser.add_argument("--seed", type=not_negative, default=1, help="random seed")
    parser.set_defaults(source_lang="en", target_lang="de")
    add_prepare_options(parser, vocab_size=1000)
    args = parser.parse_args(argv)
    return run(PROG, lambda: _make(args))
