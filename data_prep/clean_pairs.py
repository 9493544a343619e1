"""Drop pairs of sentences that are too short, too long, or of too unequal lengths.

The rules are those of Moses' clean-corpus-n.perl on Moses' tokens: white space is collapsed; pairs
go that have an empty side, a side of too many words or of too few, too high a ratio (either way),
or a word of more than 1,000 characters.
"""

from __future__ import annotations

from data_prep.parallel_text import Pair, lines_of, zipped

LONGEST_WORD = 1000  # characters


def is_kept(
    source: list[str], target: list[str], ratio: float, shortest: float, longest: float
) -> bool:
    """Whether a pair of word lists is within the limits.

    Args:
        ratio: the longer side may have this many times the words of the shorter one
        shortest, longest: words that each side must and may have
    """
    fewer, more = sorted((len(source), len(target)))
    return (
        fewer > 0
        and shortest <= fewer
        and more <= longest
        and more / fewer <= ratio
        and max(map(len, source + target)) <= LONGEST_WORD
    )


def clean_pairs(sources: Pair, targets: Pair, **limits: float) -> tuple[int, int]:
    """Write the pairs within the limits of ``is_kept`` to ``targets``.

    Returns the numbers of pairs and of words kept. Raises UserError for texts of unequal length or
    not UTF-8.
    """
    kept = count = 0
    with targets[0].open("wb") as source_out, targets[1].open("wb") as target_out:
        for source, target in zipped(sources, lines_of):
            words = source.split(), target.split()
            if not is_kept(words[0], words[1], **limits):
                continue
            kept += 1
            count += sum(map(len, words))
            for out, side in zip((source_out, target_out), words, strict=True):
                out.write(" ".join(side).encode("utf-8") + b"\n")
    return kept, count
