"""Warnings of how translations and references are written, because scores count what is written.

A text may have been tokenised, lower-cased, escaped, cut into subwords or read in another encoding,
or a model may have been given words of its references.  The patterns of what programs leave in
text are in :mod:`.marks`; here are the shares of lines from which on it is said.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from collab_common.encodings import (
    ENDS,
    ESCAPE,
    REPLACEMENT,
    VOWEL_SIGNS,
    are_tokens,
    is_detached,
    is_misread,
)
from collab_common.progress import say
from collab_lab.metrics.marks import BYTE, MARKS, SYMBOL, UNKNOWN
from collab_lab.metrics.translation_scores import tokenizer

#: The fewest lines that are judged.
LEAST = 20
#: Share of translations that begin as their references do, and the fewest sentences that show it.
BEGUN, LEAST_BEGUN = 0.98, 40
#: Characters of a reference that has more than a beginning.
SHORTEST = 12
_FIRST = re.compile(r"\W*([^\W\d_])")
_PART = re.compile(rf"(?:[^\W\d_]|[{VOWEL_SIGNS}])+|\S")

#: How a line can be written, by what a warning says of it.
WRITTEN: dict[str, Callable[[str], object]] = {
    "capital letters": lambda line: any(map(str.isupper, line)),
    "small letters": lambda line: any(map(str.islower, line)),
    "a mark at the end": re.compile(r"[^\w\s]\s*$").search,
    "a space before punctuation": re.compile(
        rf"[\w{VOWEL_SIGNS}] [{ENDS},;:\u060c\u061b\u1363](\s|$)"
    ).search,
    "a number at the start": re.compile(r"\s*\d+[.:)]?\s").match,
    "a tag": re.compile(r"<[a-z/][^>]*>").search,
}
#: The same of text whose words have blanks between them.
SPACED: dict[str, Callable[[str], object]] = {
    "blanks between words": re.compile(r"\S\s+\S").search,
}
#: How a line can begin: in true case with a small letter, unless with a noun or a name.
BEGINNINGS: dict[str, Callable[[str], object]] = {
    "a capital letter at the start": lambda line: (
        (first := _FIRST.match(line)) and first[1].isupper()
    ),
}
#: What untouched text does not have, even in a few lines.
TRACES: dict[str, Callable[[str], object]] = {
    "escapes of Moses, HTML or the Penn Treebank": ESCAPE.search,
    "letters separate from their accents": lambda line: not unicodedata.is_normalized("NFC", line),
    "UTF-8 that was read in another encoding (Ã¤ for ä)": is_misread,
    "unreadable characters (U+FFFD)": lambda line: REPLACEMENT in line,
    "symbols of a vocabulary (</s>, __de__)": SYMBOL.search,
    "escapes of Unicode (\\u00fc)": re.compile(r"\\u[0-9a-fA-F]{4}").search,
}
#: What fairseq does not join: even one in a text is wrong, if the other has none.
BYTES: dict[str, Callable[[str], object]] = {"bytes of characters (<0xC3>)": BYTE.search}


class Texts(NamedTuple):
    """Translations and their references, line by line, and what a warning calls each."""

    hypotheses: Sequence[str]
    references: Sequence[str]
    translations: Path | str
    reference: Path


def say_if_written_otherwise(
    hypotheses: Sequence[str],
    references: Sequence[str],
    translations: Path | str,
    reference: Path,
) -> None:
    """Say on standard error how the writing of translations and references differs.

    Scores count case, marks and escapes, so a reference that was lower-cased or tokenised gives a
    lower score.  A difference is reported if nearly all lines of one text and nearly none of the
    other have it; for capital letters at the start, if at most half of the other; for signs that no
    untouched text has, if 2% and none.  Empty lines are also reported, words in pieces, and a text
    that is its own reference.
    """
    texts = Texts(hypotheses, references, translations, reference)
    say_of_empty_lines(texts)
    if len(references) < LEAST:
        return
    say_if_given(texts)
    is_different = say_of_kinds(texts)
    say_if_marked(texts)
    if tag := tag_of(hypotheses, references):
        say(f"warning: nearly all lines of {translations} begin with {tag!r}: is it a tag?")
    say_if_in_pieces(texts)
    if not is_different:  # otherwise its characters are said already
        say_if_characters_differ(texts)


def say_of_empty_lines(texts: Texts) -> None:
    """Say how many lines of either text are empty."""
    hypotheses, references, translations, reference = texts
    number = len(references)
    for path, lines in ((reference, references), (translations, hypotheses)):
        if empty := [i for i, line in enumerate(lines, 1) if not line.strip()]:
            first = f"line {empty[0]} of {path} is empty ({len(empty)} of {number} are)"
            say(f"warning: {first}: is a line missing?")


def say_if_given(texts: Texts) -> None:
    """Say if translations are their references, or begin or end as only they do."""
    hypotheses, references, translations, reference = texts
    number = len(references)
    known = [
        pair for pair in zip(hypotheses, references, strict=True) if not UNKNOWN.search(pair[0])
    ]
    if 2 * len(known) >= number and all(ours == theirs for ours, theirs in known):
        problem = f"{translations} equals {reference}, line for line"
        problem += "" if len(known) == number else f", in all {len(known)} lines without <unk>"
        say(f"warning: {problem}: is it the reference, or of --score-reference?")
    elif begun := begun_with(hypotheses, references):
        share = f"{begun:.0%} of {translations} begin as their references do, and few end so"
        say(f"warning: {share}: was the model given their first words (--prefix-size)?")
    elif ended := begun_with(*map(backwards, (hypotheses, references))):
        share = f"{ended:.0%} of {translations} end as their references do, and few begin so"
        say(f"warning: {share}: was the model given their last words?")


def say_of_kinds(texts: Texts) -> bool:
    """Say in which of the kinds above one text differs from the other; whether it does in any."""
    hypotheses, references, translations, reference = texts
    number, is_different = len(references), False
    spaced = SPACED if tokenizer(references) == "13a" else {}
    for kinds, many, few in (
        (WRITTEN | spaced, 0.9, 0.1),
        (BEGINNINGS, 0.9, 0.5),
        (TRACES, 0.02, 0.0),
        (BYTES, 0.0, 0.0),
    ):
        for name, has in kinds.items():
            ours, theirs = (
                sum(bool(has(line)) for line in text) for text in (hypotheses, references)
            )
            most, least = max(ours, theirs), min(ours, theirs)
            if most >= max(1 if kinds is BYTES else 3, many * number) and least <= few * number:
                counted = f"{theirs} of {number} lines of {reference} and {ours} of {translations}"
                say(f"warning: {counted} have {name}: is the reference untouched text?")
                is_different = True
    return is_different


def say_if_marked(texts: Texts) -> None:
    """Say if a quarter of the lines of both texts have marks of programs, which count as words."""
    hypotheses, references, translations, reference = texts
    counts = [sum(bool(MARKS.search(line)) for line in text) for text in (hypotheses, references)]
    if 4 * min(counts) >= len(references):
        found = next(match for line in references if (match := MARKS.search(line)))
        number = f"{counts[1]} of {len(references)} lines of {reference} and {counts[0]}"
        say(
            f"warning: {number} of {translations} have marks such as {found[0].strip()!r}: scores "
            "count them as words, and are higher than those of the text"
        )


def marks_apart(references: Sequence[str], reference: Path) -> int:
    """Count the references with punctuation apart from its word; say if they look like tokens."""
    # Also of a file such as test.fr.gz: French has blanks before some marks.
    language = "fr" if ".fr" in reference.suffixes else reference.suffix[1:]
    number = sum(is_detached(line, language) for line in references)
    if are_tokens(number, len(references)):
        say(
            f"warning: {number} of {len(references)} lines of {reference} have punctuation apart "
            "from its word, as tokens do: scores are not those of ordinary text"
        )
    return number


def tag_of(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """The first word of nine translations in ten, if hardly any reference begins with it."""
    ours, theirs = (
        Counter(words[0] for line in text if (words := line.split()))
        for text in (hypotheses, references)
    )
    for word, count in ours.most_common(1):
        if count >= 0.9 * len(hypotheses) and theirs[word] <= 0.1 * len(references):
            return word
    return None


def say_if_in_pieces(texts: Texts) -> None:
    """Say if a quarter of the lines of one text have a word of the other in pieces.

    Subwords look so if their marks were deleted, but not the blanks between them.  Other
    translations have such a word in less than 1% of their lines.  Where words have no blanks
    between them, blanks do not count in scores.
    """
    hypotheses, references, translations, reference = texts
    if tokenizer(references) != "13a":
        return
    sides = ((translations, hypotheses, references), (reference, references, hypotheses))
    for path, ours, theirs in sides:
        found = [*filter(None, map(word_in_pieces, ours, theirs))]
        if 4 * len(found) >= len(references):
            say(
                f"warning: {len(found)} of {len(references)} lines of {path} have a word of the "
                f"other text in pieces ({found[0]}): were marks of subwords deleted, but not the "
                "blanks between them?"
            )


def word_in_pieces(line: str, other: str) -> str | None:
    """The first two or three words of a line that are one word of the other; None without any."""
    parts = _PART.findall(line)
    words = set(_PART.findall(other)) - set(parts)
    runs = (parts[i : i + number] for i in range(len(parts)) for number in (2, 3))
    return next((" ".join(run) for run in runs if "".join(run) in words), None)


def say_if_characters_differ(texts: Texts) -> None:
    """Say which characters are in a quarter of the lines of one text and hardly any of the other.

    Examples are marks of subwords, of languages and of ends of sentences; punctuation that a
    tokeniser has rewritten, for example full-width marks; characters without width; and tabs
    between columns, for example after the sources.  Upper and lower case count as one character,
    and so do letters together with and separate from their accents, because other warnings report
    these.
    """
    hypotheses, references, translations, reference = texts
    ours, theirs = (
        Counter(chain.from_iterable(set(unicodedata.normalize("NFC", line)) for line in text))
        for text in (hypotheses, references)
    )
    number = len(references)
    sides = ((translations, ours, reference, theirs), (reference, theirs, translations, ours))
    for path, counts, other, others in sides:
        found = {
            char: (count, hardly)
            for char, count in counts.most_common()
            if 4 * count >= number and (char == "\t" or not char.isspace())
            if (hardly := max(others[char], others[char.lower()], others[char.upper()]))
            <= number // 100
        }
        if found:
            named = ", ".join(f"{char!r} ({a} and {b})" for char, (a, b) in [*found.items()][:5])
            say(
                f"warning: {path} has characters that {other} hardly ever has: {named} of {number} "
                "lines: is one of the two not ordinary text?"
            )


def begun_with(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of translations that begin with the first character of their reference.

    It is 1 if the model was given the first subwords of each reference.  Otherwise it is 35 to 66%
    for captions, news and manuals.  First words that many references share do not count, because
    any model guesses them, nor do those that the dictionary lacks: the model is given <unk>.

    Returns:
        The share; 0 if too few sentences are left to judge, or if nearly as many translations also
        end with their reference's last word, because then they are simply good.
    """
    first_words = Counter(line.split()[0] for line in references if line.strip())
    most = max(1, len(references) // 50)
    every = [pair for pair in zip(hypotheses, references, strict=True)
             if len(pair[1].strip()) >= SHORTEST and not pair[0].startswith("<unk>")]  # fmt: skip
    rare = [pair for pair in every if first_words[pair[1].split()[0]] <= most]
    shares = [0.0]
    for pairs, begin, least in ((rare, _first_character, BEGUN), (every, _two_words, 0.95)):
        if len(pairs) >= LEAST_BEGUN:
            begun, ended = (
                sum(of(ours) == of(theirs) for ours, theirs in pairs) / len(pairs)
                for of in (begin, _last_word)
            )
            shares += [begun] if begun >= least and ended < 0.8 * begun else []
    return max(shares)


def _first_character(line: str) -> str:
    return line[:1]


def _two_words(line: str) -> list[str]:
    return line.split()[:2]


def backwards(lines: Sequence[str]) -> list[str]:
    """Lines from their last letter to the first, without the marks at their ends."""
    return [re.sub(r"\W+$", "", line)[::-1] for line in lines]


def _last_word(line: str) -> list[str]:
    """The last word without marks (of text without blanks: its last two characters), if any."""
    words = re.findall(r"\w+", line)
    return [word[-2:] if len(words) == 1 else word for word in words[-1:]]
