"""The embedded English-German corpus, ready for fairseq: `python -m data_prep.demo_data`.

Generates the text into a folder beside --out, together with whatever else the generator gives
(trees, word alignment), and prepares it. Needs no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collab_common.command import positive, run
from collab_common.files import fingerprint_tree
from collab_common.folder import MANIFEST, build_folder
from data_prep.child import run_module
from data_prep.options import add_languages, check_languages
from data_prep.prepare import add_prepare_options, config_from, prepare

PROG = "data_prep.demo_data"
GENERATOR = "data_prep.embedded"
SIZES = {"train": 20_000, "valid": 500, "test": 500}


def generate(folder: Path, sizes: dict[str, int], seed: int, *, force: bool = False) -> None:
    """Makes the text folder, unless the same generator made it with the same options."""
    sources = fingerprint_tree(Path(__file__).with_name("embedded"))
    identity = {
        "options": {**sizes, "seed": seed},
        "inputs": {name: {"sha256": found["sha256"]} for name, found in sources.items()},
    }

    def build(temporary: Path) -> dict[str, object]:
        print(f"generating {sum(sizes.values()):,} sentence pairs ...", flush=True)
        arguments = ["--out", str(temporary), "--seed", str(seed)]
        for split, size in sizes.items():
            arguments += [f"--{split}", str(size)]
        run_module(GENERATOR, arguments)
        # ours replaces the generator's own manifest: it knows the generator's sources, too
        (temporary / MANIFEST).unlink(missing_ok=True)
        return {"generator": GENERATOR}

    build_folder(folder, identity, build, force=force)


def _make(args: argparse.Namespace) -> None:
    out = args.out.resolve()
    text = out.with_name(f"{out.name}-text")
    sizes = {split: getattr(args, split) for split in SIZES}
    generate(text, sizes, args.seed, force=args.force)
    origin = {"corpus": "embedded", "seed": args.seed}
    prepare(config_from(args, text, splits={split: split for split in SIZES}, origin=origin))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG,
        description="Makes a folder for fairseq-train from the embedded English-German corpus; "
        "the text goes to a folder beside it, whose name ends in -text.",
    )
    for split, size in SIZES.items():
        what = f"sentence pairs of the {split} set (default: {size})"
        parser.add_argument(f"--{split}", type=positive, default=size, metavar="N", help=what)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other sentences")
    add_languages(parser, ("en", "de"))
    add_prepare_options(parser, vocab_size=2000)
    args = parser.parse_args(argv)
    check_languages(parser, args)
    return run(PROG, lambda: _make(args))


if __name__ == "__main__":
    sys.exit(main())
