"""Drop pairs of sentences that are too short, too long, or of too unequal lengths.

The rules are those of Moses' clean-corpus-n.perl on Moses' tokens, in its order: white space is
collapsed, pairs with an empty side go, then those with a side of too many words, of too few, with
too high a ratio (either way), and with a word of more than 1,000 characters.
"""

from __future__ import annotations

from collections import Counter

from data_prep.parallel_text import Pair, lines_of, zipped

LONGEST_WORD = 1000  # characters
REASONS = ("empty", "too_long", "too_short", "ratio", "long_word")


def reason_to_drop(
    source: list[str], target: list[str], ratio: float, shortest: float, longest: float
) -> str:
    """Return why a pair of word lists is dropped; "" if it is not.

    Args:
        ratio: the longer side may have this many times the words of the shorter one
        shortest, longest: words that each side must and may have
    """
    source_words, target_words = len(source), len(target)
    if not (source_words and target_words):
        return "empty"
    if max(source_words, target_words) > longest:
        return "too_long"
    if min(source_words, target_words) < shortest:
        return "too_short"
    if source_words / target_words > ratio or target_words / source_words > ratio:
        return "ratio"
    return "long_word" if max(map(len, source + target)) > LONGEST_WORD else ""


def clean_pairs(sources: Pair, targets: Pair, **limits: float) -> dict[str, int]:
    """Write the pairs within the limits of ``reason_to_drop`` to ``targets``.

    Returns "read", "kept", "tokens" of those kept, and how many pairs were dropped for each of
    REASONS, the first that applies. Raises UserError for texts of unequal length or not UTF-8.
    """
    counts = Counter[str](dict.fromkeys(("read", "kept", "tokens", *REASONS), 0))
    with targets[0].open("wb") as source_out, targets[1].open("wb") as target_out:
        for source, target in zipped(sources, lines_of):
            words = source.split(), target.split()
            counts["read"] += 1
            if reason := reason_to_drop(words[0], words[1], **limits):
                counts[reason] += 1
                continue
            counts["kept"] += 1
            counts["tokens"] += sum(map(len, words))
            for out, side in zip((source_out, target_out), words, strict=True):
                out.write(" ".join(side).encode("utf-8") + b"\n")
    return dict(counts)
