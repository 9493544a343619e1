"""Drop pairs of sentences that are too short, too long, or of too unequal lengths.

The rules are those of Moses' clean-corpus-n.perl for Moses' tokens.  White space is collapsed.  A
pair is dropped if a side is empty, has too many or too few words or a word of more than 1,000
characters, or if the ratio of the numbers of words is too high (either way).
"""

from __future__ import annotations

from data_prep.parallel_text import Pair, lines_of, zipped

LONGEST_WORD = 1000  # characters


def is_kept(
    source: list[str], target: list[str], ratio: float, shortest: float, longest: float
) -> bool:
    """Return whether a pair of word lists is within the limits.

    Args:
        ratio: the longer side may have this many times the words of the shorter one
        shortest, longest: the fewest and the most words that each side may have
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

    Returns:
        The numbers of pairs and of words that are kept.

    Raises:
        UserError: the texts have unequal numbers of lines, or are not UTF-8.
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
