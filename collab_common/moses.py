"""Moses' normalisation, tokenisation and detokenisation, as its Perl scripts do them.

The functions do to one line what the scripts of github.com/moses-smt/mosesdecoder do:
normalize-punctuation.perl, lowercase.perl, remove-non-printing-char.perl, tokenizer.perl [-a].  The
lists of abbreviations, the rules of the normaliser and the detokeniser are those of sacremoses
(MIT). sacremoses itself differs from the scripts in abbreviations at the end of a line, letters and
digits of Unicode, control characters, ." at the end of a German line, Italian quotes, and the final
sigma; these functions do not.

Three faults of the scripts are not repeated: a literal DOTMULTI becomes a full stop, a line of
white space is copied, and a blank stays after a final .' What a letter is follows the Unicode
version of the ``regex`` package, in the scripts that of Perl.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, reduce

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer
from sacremoses.corpus import NonbreakingPrefixes

from collab_common.errors import UserError
from collab_common.folder import Json

# ---- whole lines ---------------------------------------------------------------------------------


def detokenise(lines: list[str], lang: str) -> list[str]:
    """Join tokens to text, as detokenizer.perl does.

    Entities become characters, @-@ becomes a hyphen, and upper and lower case stay.
    """
    detokeniser = MosesDetokenizer(lang=lang)
    return [detokeniser.detokenize(line.split()) for line in lines]


def ordinary_text(lines: list[str], form: Json, lang: str) -> list[str]:
    """Return ordinary text for a model's tokens, whose subwords are joined already.

    Args:
        form: form of the data folder's text, from its manifest: ``hyphens`` is the token that a
            split hyphen became, or None; ``moses`` says whether the text is tokenised
    """
    if form["hyphens"] is not None:
        lines = [line.replace(f" {form['hyphens']} ", "-") for line in lines]
    return detokenise(lines, lang) if form["moses"] else lines


def pipeline(
    lang: str, lower: bool = False, normalise: bool = True, aggressive_hyphens: bool = False
) -> Callable[[str], str]:
    """Return a function that applies the scripts to a line, one after another.

    Args:
        lang: one of LANGUAGES; it decides about apostrophes, abbreviations and quotes
        lower: apply lowercase.perl at the end
        normalise: apply normalize-punctuation.perl and remove-non-printing-char.perl first
        aggressive_hyphens: tokenise like tokenizer.perl -a: well-known becomes well @-@ known
    """
    steps: list[Callable[[str], str]] = []
    if normalise:
        steps += [normaliser(lang), remove_non_printing]
    steps.append(tokeniser(lang, aggressive_hyphens))
    if lower:
        steps.append(lowercase)
    return lambda line: reduce(lambda text, step: step(text), steps, line)


# ---- normalisation -------------------------------------------------------------------------------

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def lowercase(line: str) -> str:
    """Lower-case a line, as lowercase.perl does with Perl's lc()."""
    # except for the final sigma, Python and Perl have the same lower-case letters
    return line.replace("\N{GREEK CAPITAL LETTER SIGMA}", _SIGMA).lower()


_OTHER = regex.compile(r"\p{C}")  # control, format, private use and unassigned characters


def remove_non_printing(line: str) -> str:
    """Replace each non-printing character by a blank, as remove-non-printing-char.perl does."""
    return line if line.isascii() and line.isprintable() else _OTHER.sub(" ", line)


@lru_cache(maxsize=8)
def normaliser(lang: str) -> Callable[[str], str]:
    """Return a function that does to a line what ``normalize-punctuation.perl LANG`` does."""
    theirs = MosesPunctNormalizer(lang=lang, perl_parity=True)
    rules = list(theirs.substitutions)
    if lang == "it":  # the script knows English, Czech, and the rest
        rules[-1:-1] = theirs.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
    # the script reads bytes, for which \d and \s are ASCII's
    compiled = [(re.compile(old, re.ASCII), new) for old, new in rules]

    def normalise(line: str) -> str:
        line += "\n"  # the script keeps the newline, and one rule depends on it
        for pattern, replacement in compiled:
            line = pattern.sub(replacement, line)
        return line.removesuffix("\n")

    return normalise


# ---- tokenizer.perl, rule by rule ----------------------------------------------------------------

LANGUAGES = ("en", "de", "fr", "it")  # of the corpora; others have further rules
# Moses' Italian list has a blank after these, which the script keeps, so that they match no token
NEVER = {"Amn", "Arch", "a.c", "all", "es"}


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
_APOSTROPHES = {"en": _ENGLISH, "fr": _FRENCH, "it": _FRENCH}
_ANY_APOSTROPHE = [(regex.compile("'"), " ' ")]


class Tokeniser:
    """Splits a line into tokens, as ``tokenizer.perl -l LANG [-a]`` does."""

    def __init__(self, lang: str, aggressive_hyphens: bool = False) -> None:
        if lang not in LANGUAGES:
            raise UserError(
                f"there is no tokeniser for {lang!r}", todo="tokenise the text with Moses"
            )
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
        if text.endswith(".'"):  # only if the apostrophe ends the line and is not split off
            text = text[:-2] + " . '"
        return " ".join(text.split()).translate(ENTITIES)

    def _full_stop(self, token: str, after: str) -> str:
        """Return a token with its full stop kept on or split off.

        The full stop stays on in abbreviations, before a lower-case letter, and in some words
        before digits.

        Args:
            after: the next token; "" at the end of the line
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
    """Return words whose full stop does not end a sentence: always, and only before numbers.

    The lists are those of sacremoses.
    """
    kinds: dict[str, bool] = {}
    for item in NonbreakingPrefixes().words(lang):
        word, marked, _ = item.partition("#NUMERIC_ONLY#")
        if lang != "it" or word not in NEVER:
            kinds[word.strip()] = bool(marked)
    return (
        frozenset(word for word, numeric in kinds.items() if not numeric),
        frozenset(word for word, numeric in kinds.items() if numeric),
    )


#: The tokeniser of a language and options: one for all callers.
tokeniser = lru_cache(maxsize=8)(Tokeniser)
