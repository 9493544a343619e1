"""tokenizer.perl of Moses, rule by rule.

Letters, numerals and white space are those of the `regex` package, which agrees with Perl's
classes. `data_prep.moses` says where the script is not followed.
"""

from __future__ import annotations

import re
from functools import lru_cache

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

    def __init__(self, lang: str, aggressive_hyphens: bool = False) -> None:
        if lang in ELSEWHERE:
            raise UserError(f"no tokeniser for {lang}", todo="tokenise the text with Moses")
        self._rules: list[tuple[regex.Pattern[str], str]] = [(_SPECIAL, r" \1 ")]
        if aggressive_hyphens:
            self._rules.append((_HYPHEN, r"\1 @-@ "))
        self._rules.append(_DOTS)
        self._rules += _COMMAS + _APOSTROPHES.get(lang, _ANY_APOSTROPHE)
        self._prefixes, self._numeric_prefixes = _prefixes(lang)

    def __call__(self, line: str) -> str:
        if _CONTROL.search(line):
            line = _CONTROL.sub("", _SPACE.sub(" ", line))
        text = " ".join(line.split())
        if not text:
            return ""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        tokens = text.split()
        text = " ".join(map(self._full_stop, tokens, [*tokens[1:], ""]))
        if text.endswith(".'"):  # only where the apostrophe ends the line and is still on
            text = text[:-2] + " . '"
        return " ".join(text.split()).translate(ENTITIES)

    def _full_stop(self, token: str, after: str) -> str:
        """A token with its full stop on or split off, as the next token decides; "" ends the line.

        It stays on in abbreviations and before a lower-case letter, and before digits in some.
        """
        stem = token[:-1]
        if not stem or token[-1] != "." or stem[-1] == ".":
            return token
        stays = after and (
            ("." in stem and _LETTER.search(stem))
            or stem in self._prefixes
            or _LOWER.match(after)
            or (stem in self._numeric_prefixes and _DIGIT.match(after))
        )
        return token if stays else f"{stem} ."


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


#: The tokeniser of a language and options: one for all callers.
tokeniser = lru_cache(maxsize=8)(Tokeniser)
