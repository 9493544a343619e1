"""How the memory of learning subwords grows with the number of different words.

    python -m data_prep.measure_memory --data ../shared/data --every 16 4 1 \\
        --stress-types 2500000 --out results/data_prep_memory.json

learns 40,000 merges, with one job, from every 16th, 4th and single line of all English-German
training text, tokenised; then, with --stress-types, from a text of as many different words, each
of them once: those of the text, and pairs of them. T tokens have about c T^p different words
(Heaps' law): the p between one part of the text and the next predicts how many WMT14 would have,
if that went on. Writes the numbers to --out and prints a table. Linux only.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.folder import Json
from data_prep.bpe import count_text
from data_prep.measure import (
    LANGUAGES,
    MERGES,
    add_options,
    do,
    gathered,
    measure,
    pair,
    table,
    write,
)

PROG = "data_prep.measure_memory"
# of both sides of WMT14's 4.5 million pairs, about: 27 a sentence, twice as long as those here
WMT14_TOKENS = 240_000_000
MADE_UP = "made-up words"
WORDS_A_LINE = 20


def make_up(words: Sequence[str], types: int) -> list[str]:
    """A list of so many different words, in random order: those given, and pairs of them.

    Raises UserError if there are more words than that already, or too few to make so many of.
    """
    real = [word for word in words if word.isalpha()]
    most = len(real) ** 2 // 2  # nearer to all pairs, chance would hardly find a new one
    if not len(words) < types <= most:
        what = f"the text has {len(words):,} different words"
        raise UserError(what, f"--stress-types {types}", f"give more, and at most {most}")
    made = dict.fromkeys(words)
    rng = random.Random(1)
    while len(made) < types:
        made[rng.choice(real) + rng.choice(real).lower()] = None
    found = list(made)
    rng.shuffle(found)
    return found


def write_made_up(words: Sequence[str], out: Path) -> None:
    """Writes the words as a tokenised text, a few a line, half of the lines to either side."""
    out.mkdir()
    starts = range(0, len(words), WORDS_A_LINE)
    lines = [" ".join(words[start : start + WORDS_A_LINE]) + "\n" for start in starts]
    for number, path in enumerate(pair(out, "tok")):
        path.write_text("".join(lines[number :: len(LANGUAGES)]), encoding="utf-8")


def different_words(folder: Path) -> list[str]:
    """The words of both sides of the tokenised text, in the order of their first places."""
    return list(count_text(pair(folder, "tok"), jobs=1)[1])


def growth(texts: Sequence[Json]) -> Json | None:
    """How different words grow with tokens, and how many WMT14 would have if that went on.

    Args:
        texts: records of the parts of one text, the smallest first; made-up words are left out.

    Returns "powers", one for each part but the first, and "wmt14_words", by the last of them; None
    for a single part. Raises UserError for a part with no more words than the one before.
    """
    parts = [text for text in texts if text["text"] != MADE_UP]
    powers = []
    for before, after in pairwise(parts):
        words, tokens = (after[count] / before[count] for count in ("types", "tokens"))
        if min(words, tokens) <= 1:
            what = f"no more different words, or no more tokens, than {before['text']}"
            raise UserError(what, after["text"], "give numbers further apart with --every")
        powers.append(math.log(words) / math.log(tokens))
    if not powers:
        return None
    expected = parts[-1]["types"] * (WMT14_TOKENS / parts[-1]["tokens"]) ** powers[-1]
    return {"powers": [round(power, 3) for power in powers], "wmt14_words": round(expected)}


def measure_texts(args: argparse.Namespace, command: list[str]) -> None:
    """Learning subwords from parts of the text, and from made-up words."""
    texts: list[Json] = []
    with gathered(args, command) as (folder, content):
        content["merges_wanted"] = MERGES
        for stage in ("validate", "tokenise en", "tokenise de"):
            do(stage, folder, jobs=1)
        parts = {}
        if args.stress_types:  # first, as it may be refused
            words = make_up(different_words(folder), args.stress_types)
            write_made_up(words, folder / "made-up")
        for nth in sorted(set(args.every), reverse=True):
            part = folder / str(nth)
            part.mkdir()
            for source, target in zip(pair(folder, "tok"), pair(part, "tok"), strict=True):
                with source.open("rb") as lines, target.open("wb") as output:
                    output.writelines(islice(lines, 0, None, nth))
            parts["every line" if nth == 1 else f"1 line of {nth}"] = part
        if args.stress_types:
            parts[MADE_UP] = folder / "made-up"
        for text, part in parts.items():
            texts.append({"text": text, **measure(f"learn {MERGES:,}", part, jobs=1)})
            write(args.out, content, growth=growth(texts), texts=texts)
    print(table(texts, "text", "tokens", "types", "merges", "cpu_seconds", "peak_bytes"), end="")


def main(argv: Sequence[str] | None = None) -> int:
    """Memory of learning subwords against the number of different words."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog=PROG, description=main.__doc__)
    add_options(parser)
    parser.add_argument(
        "--every", type=positive, nargs="+", default=[16, 4, 1], metavar="N", help="Nth line"
    )
    parser.add_argument("--stress-types", type=positive, metavar="N", help="also made-up words")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    args = parser.parse_args(argv)
    return run(PROG, lambda: measure_texts(args, [PROG, *argv]))


if __name__ == "__main__":
    sys.exit(main())
