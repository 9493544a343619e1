"""How much memory learning subwords takes, against the number of different words.

    python -m data_prep.measure_memory --data ../shared/data --every 16 4 1 \\
        --stress-types 2500000 --out results/data_prep_memory.json

puts all English-German training text below --data together, tokenises it, and learns 40,000 merges
from every 16th, every 4th and every line of it; then, with --stress-types, from a text of as many
different words, each of them once: those of the text, and pairs of them. Each is learned in a
process of its own, with one job; seconds and memory are those of `data_prep.measure`. The numbers
go to --out, a table of them to the screen. Linux only.

T tokens have about c T^p different words (Heaps' law): what p is from one part of the text to the
next tells how many WMT14 would have, if that went on.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

from collab_common.command import positive, run
from collab_common.errors import UserError
from collab_common.files import as_json, count_lines, make_folder, write_content
from data_prep.bpe import count_words
from data_prep.measure import (
    LANGUAGES,
    MERGES,
    WMT14_TOKENS,
    Json,
    do,
    gather,
    measure,
    pair,
    surroundings,
)
from data_prep.streams import read_blocks

PROG = "data_prep.measure_memory"
LEARN = f"learn {MERGES:,}"
MADE_UP = "made-up words"
KIB = 1 << 10
MIB = 1 << 20
WORDS_A_LINE = 20


def take_every(folder: Path, nth: int, out: Path) -> None:
    """Writes every nth line of both sides of the tokenised text to another folder."""
    out.mkdir()
    for source, target in zip(pair(folder, "tok"), pair(out, "tok"), strict=True):
        with source.open("rb") as lines, target.open("wb") as output:
            output.writelines(islice(lines, 0, None, nth))


def make_up(words: Sequence[str], types: int) -> list[str]:
    """So many different words, in random order: those given, and pairs of them.

    Raises:
        UserError: there are more words than that already, or too few to make so many of.
    """
    real = [word for word in words if word.isalpha()]
    most = len(real) ** 2 // 2  # nearer to all pairs, chance would hardly find a new one
    if not len(words) < types <= most:
        told = f"the text has {len(words):,} different words"
        raise UserError(told, f"--stress-types {types}", f"give more, and at most {most}")
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
    words: dict[str, int] = {}
    for path in pair(folder, "tok"):
        for block in read_blocks(path):
            words |= count_words(block)[1]
    return list(words)


def growth(texts: Sequence[Json]) -> Json | None:
    """How different words grow with tokens, and how many WMT14 would have if that went on.

    Args:
        texts: records of the parts of one text, the smallest first; made-up words are left out.

    Returns:
        "powers", one for each part but the first, and "wmt14_words", which goes on with the last;
        None for a single part.

    Raises:
        UserError: a part has no more of them than the one before, as with very little text.
    """
    parts = [text for text in texts if text["text"] != MADE_UP]
    powers = []
    for before, after in pairwise(parts):
        if any(after[count] <= before[count] for count in ("types", "tokens")):
            told = f"no more different words, or no more tokens, than {before['text']}"
            raise UserError(told, after["text"], "give numbers further apart with --every")
        words, tokens = (after[count] / before[count] for count in ("types", "tokens"))
        powers.append(math.log(words) / math.log(tokens))
    if not powers:
        return None
    expected = parts[-1]["types"] * (WMT14_TOKENS / parts[-1]["tokens"]) ** powers[-1]
    return {"powers": [round(power, 3) for power in powers], "wmt14_words": round(expected)}


def table(texts: Sequence[Json]) -> str:
    """The records in Markdown, one a row."""
    lines = [
        "| text | tokens | different words | merges | CPU s | peak memory "
        "| KiB a word more than above |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for number, text in enumerate(texts):
        more = ""
        if number:
            before = texts[number - 1]
            memory = (text["peak_bytes"] - before["peak_bytes"]) / KIB
            more = f"{memory / (text['types'] - before['types']):.2f}"
        lines.append(
            f"| {text['text']} | {text['tokens']:,} | {text['types']:,} | {text['merges']:,} | "
            f"{text['cpu_seconds']:,.1f} | {text['peak_bytes'] / MIB:,.0f} MiB | {more} |"
        )
    return "\n".join(lines) + "\n"


def measure_texts(args: argparse.Namespace, command: str) -> None:
    """All of it; the file is written anew, whole, after each text."""
    make_folder(args.out.parent)
    content: Json = {"command": command, **surroundings(), "merges_wanted": MERGES}
    texts: list[Json] = []

    def add(text: str, folder: Path) -> None:
        texts.append({"text": text, **measure(LEARN, folder, jobs=1)})
        told = {**content, "load_average_after": os.getloadavg()}
        told |= {"growth": growth(texts), "texts": texts}
        write_content(args.out, as_json(told).encode())

    with tempfile.TemporaryDirectory(prefix="measure-", dir=args.scratch) as name:
        folder = Path(name)
        content["corpora"] = gather(args.data, folder, args.pairs)
        content["pairs"] = count_lines(folder / "raw.en")
        for stage in ("validate", *(f"tokenise {lang}" for lang in LANGUAGES)):
            do(stage, folder, jobs=1)
        if args.stress_types:  # first, as it may be refused
            words = make_up(different_words(folder), args.stress_types)
            write_made_up(words, folder / "made-up")
        for nth in sorted(set(args.every), reverse=True):
            take_every(folder, nth, folder / str(nth))
            add("every line" if nth == 1 else f"1 line of {nth}", folder / str(nth))
        if args.stress_types:
            add(MADE_UP, folder / "made-up")
    print(table(texts), end="")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=PROG, description="Memory of learning subwords against the number of different words."
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the corpora")
    parser.add_argument(
        "--every", type=positive, nargs="+", default=[16, 4, 1], metavar="N", help="Nth line"
    )
    parser.add_argument("--stress-types", type=positive, metavar="N", help="also made-up words")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON to write")
    parser.add_argument("--pairs", type=positive, metavar="N", help="of each corpus, at most")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where to work (default: /tmp)")
    args = parser.parse_args(argv)
    command = shlex.join(["python", "-m", PROG, *argv])
    return run(PROG, lambda: measure_texts(args, command))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
