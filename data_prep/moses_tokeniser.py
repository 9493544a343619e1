"""tokenizer.perl of Moses: what it does to a sentence, and what it need not do twice.

Nearly all that the script does to a sentence it does to the words between blanks, one by one. So
we remember what became of each such word, and look twice only at full stops, whose fate depends
on the next word. A line on which rules reach across blanks is done rule by rule.

Letters, numerals and white space are what the `regex` package takes for them, which agrees with
Perl's classes. `data_prep.moses` says where the script is not followed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import regex
from sacremoses.corpus import NonbreakingPrefixes

from collab_common.errors import UserError

# with a blank behind them in Moses' lists, which the script keeps: no token is ever equal to them
NEVER = {
    "es": {"Fil", "gr"},
    "it": {"Amn", "Arch", "a.c", "all", "es"},
    "nl": {"Nrs"},
    "sk": {"Pf"},
    "ml": {"\u0d2a\u0d3f"},
    **{lang: {"\u09ad\u09bf"} for lang in ("as", "bn", "mni")},
}
ELSEWHERE = ("fi", "sv", "ca", "so", "tdt")  # languages with rules that are not here


class Word(NamedTuple):
    """What became of the characters between two blanks.

    The last token may end in a full stop whose fate the next word decides: then `split` is the
    text with the stop split off.
    """

    text: str
    split: str = ""
    # the stop stays on before a lower-case letter anyway, and ...
    before_anything: bool = False  # it is an abbreviation
    before_digit: bool = False  # it is one that stands before numbers, such as No.

    def then(self, after: str) -> str:
        """The text, its full stop on or split off by the word after it; "" ends the line."""
        stays = after and (
            self.before_anything
            or _LOWER.match(after)
            or (self.before_digit and _DIGIT.match(after))
        )
        return self.text if stays or not self.split else self.split


ENTITIES = str.maketrans(
    {"&": "&amp;", "|": "&#124;", "<": "&lt;", ">": "&gt;"}
    | {"'": "&apos;", '"': "&quot;", "[": "&#91;", "]": "&#93;"}
)
_SPACE = regex.compile(r"\s+")
_CONTROL = re.compile(r"[\x00-\x1f]")
_LOWER = regex.compile(r"\p{Lowercase}")
_LETTER = regex.compile(r"\p{Alphabetic}")
_DIGIT = re.compile("[0-9]")

_SPECIAL = regex.compile(r"([^\p{Alnum}\s.'`,\-])")
_HYPHEN = regex.compile(r"(\p{Alnum})-(?=\p{Alnum})")
_DOTS = (regex.compile(r"(\.{2,})"), r" \1 ")
# a comma stays where it is only between two numerals
_COMMAS = [
    (regex.compile(r"(\P{N}),"), r"\1 , "),
    (regex.compile(r",(\P{N})"), r" , \1"),
    (regex.compile(r"(\p{N}),$"), r"\1 ,"),
]
# apostrophes, in this order: between no letters, before a letter, after one, between two
_LETTERS = r"\p{Alphabetic}"
_ALONE = (regex.compile(rf"([^{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2")
_AFTER = (regex.compile(rf"([{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2")
_BETWEEN = regex.compile(rf"([{_LETTERS}])'([{_LETTERS}])")
_ENGLISH = [
    _ALONE,
    (regex.compile(rf"([^{_LETTERS}\p{{N}}])'([{_LETTERS}])"), r"\1 ' \2"),
    _AFTER,
    (_BETWEEN, r"\1 '\2"),
    (regex.compile(r"(\p{N})'(s)"), r"\1 '\2"),  # the 1990's
]
_FRENCH = [
    _ALONE,
    (regex.compile(rf"([^{_LETTERS}])'([{_LETTERS}])"), r"\1 ' \2"),
    _AFTER,
    (_BETWEEN, r"\1' \2"),
]
_APOSTROPHES = {"en": _ENGLISH, "fr": _FRENCH, "it": _FRENCH, "ga": _FRENCH}
_ANY_APOSTROPHE = [(regex.compile("'"), " ' ")]


class Tokeniser:
    """tokenizer.perl -l LANG [-a]."""

    def __init__(
        self, lang: str, aggressive_hyphens: bool = False, remembered: int = 1 << 17
    ) -> None:
        if lang in ELSEWHERE:
            raise UserError(f"no tokeniser for {lang}", todo="tokenise the text with Moses")
        self._rules: list[tuple[regex.Pattern[str], str]] = [(_SPECIAL, r" \1 ")]
        if aggressive_hyphens:
            self._rules.append((_HYPHEN, r"\1 @-@ "))
        self._rules.append(_DOTS)
        self._rules += _COMMAS + _APOSTROPHES.get(lang, _ANY_APOSTROPHE)
        self._prefixes, self._numeric_prefixes = _prefixes(lang)
        self._known = lru_cache(remembered)(self._word)  # a word takes some 300 bytes

    def __call__(self, line: str) -> str:
        if _CONTROL.search(line):
            line = _CONTROL.sub("", _SPACE.sub(" ", line))
        words = line.split()
        if not words:
            return ""
        if words[0][0] in "'," or words[-1][-1] == "'" or ("'" in line and _reaching(words)):
            return self.by_rules(" ".join(words))
        found = zip(map(self._known, words), [*words[1:], ""], strict=True)
        return " ".join([word.then(after) if word.split else word.text for word, after in found])

    def by_rules(self, line: str) -> str:
        """The whole line, whose white space is single blanks, the way the script does it."""
        tokens = self._apply(line).split()
        found = zip(map(self._full_stop, tokens), [*tokens[1:], ""], strict=False)  # or no token
        text = " ".join(word.then(after) for word, after in found)
        if text.endswith(".'"):  # only where the apostrophe ends the line and is still on
            text = text[:-2] + " . '"
        return " ".join(text.split()).translate(ENTITIES)

    def _apply(self, text: str) -> str:
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text

    def _word(self, text: str) -> Word:
        """What becomes of a word in the middle of a line."""
        if text.isalpha() or (text.isalnum() and text.isascii()):
            return Word(text)  # no rule applies
        tokens = self._apply(f" {text} ").split()
        *others, last = map(self._full_stop, tokens)
        found = zip(others, tokens[1:], strict=True)
        before = "".join(f"{word.then(after)} " for word, after in found)
        return last._replace(
            text=(before + last.text).translate(ENTITIES),
            split=last.split and (before + last.split).translate(ENTITIES),
        )

    def _full_stop(self, token: str) -> Word:
        """A token, which may end in a full stop that is not a token of its own."""
        stem = token[:-1]
        if not stem or token[-1] != "." or stem[-1] == ".":
            return Word(token)
        return Word(
            token,
            f"{stem} .",
            ("." in stem and bool(_LETTER.search(stem))) or stem in self._prefixes,
            stem in self._numeric_prefixes,
        )


def _reaching(words: list[str]) -> bool:
    """Whether a rule for one apostrophe uses up the blank that the next one's rule needs."""
    return any(one[-1] == "'" and other[0] == "'" for one, other in pairwise(words))


def _prefixes(lang: str) -> tuple[frozenset[str], frozenset[str]]:
    """Words whose full stop is no end of a sentence: always, and before numbers only.

    The lists are sacremoses'. A language without a list has the English one.
    """
    kinds: dict[str, bool] = {}
    for item in NonbreakingPrefixes().words(lang):
        word, marked, _ = item.partition("#NUMERIC_ONLY#")
        if word not in NEVER.get(lang, ()):
            kinds[word.strip()] = bool(marked)
    return (
        frozenset(word for word, numeric in kinds.items() if not numeric),
        frozenset(word for word, numeric in kinds.items() if numeric),
    )


#: The tokeniser of a language and options, with all that it remembers: one for all callers.
tokeniser = lru_cache(maxsize=8)(Tokeniser)
