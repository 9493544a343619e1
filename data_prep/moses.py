"""Moses' normalisation, tokenisation and detokenisation, as its Perl scripts do them.

The scripts of github.com/moses-smt/mosesdecoder (normalize-punctuation.perl, lowercase.perl,
remove-non-printing-char.perl, tokenizer.perl [-a]), a line at a time. The lists of abbreviations,
the normaliser's rules and the detokeniser are sacremoses' (MIT), a port that differs from
the scripts in abbreviations at a line's end, letters and digits of Unicode, control characters,
." at the end of a German line, Italian quotes, and the final sigma; these modules do not.

Three faults of the scripts are not repeated: a literal DOTMULTI becomes a full stop, a line of
white space is copied, and a blank stays behind a final .'
Letters are those of the `regex` package's Unicode, in Perl those of Perl's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache, reduce

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer
from sacremoses.corpus import NonbreakingPrefixes

from collab_common.errors import UserError
from collab_common.folder import Json
from data_prep.moses_tokeniser import tokeniser
from data_prep.parallel_text import Languages, Pair, convert


def tokenise_pair(sources: Pair, targets: Pair, languages: Languages, **steps: bool) -> Json:
    """Writes the tokens of both sides, joined by blanks; `steps`: options of `pipeline`.

    Returns "lines" and "tokens" by language. Raises UserError, with file and line, for text that is
    not UTF-8.
    """
    counts = {}
    for source, target, lang in zip(sources, targets, languages, strict=True):
        if lang not in NonbreakingPrefixes().available_langs:
            print(f"{source}: no rules for the language {lang}: those for English", file=sys.stderr)
        counts[lang] = convert(source, target, pipeline(lang, **steps))
    return counts


def detokenise(lines: list[str], lang: str) -> list[str]:
    """Text from tokens, as detokenizer.perl does it: entities resolved, @-@ joined, cased as is.

    Raises UserError for Czech and Irish: sacremoses looks at other neighbours than the script.
    """
    if lang in ("cs", "ga"):
        todo = "use detokenizer.perl of Moses"
        raise UserError(f"no detokeniser for {lang} that does as Moses' own", todo=todo)
    detokeniser = MosesDetokenizer(lang=lang)
    return [detokeniser.detokenize(line.split()) for line in lines]


def ordinary_text(lines: list[str], form: Json, lang: str) -> list[str]:
    """Text from a model's tokens, whose subwords are joined already.

    Args:
        form: of the data folder's text, as the manifest of a recipe has it ("hyphens": what they
            were replaced with, or None; "moses": whether it is tokenised)
    """
    if form["hyphens"] is not None:
        lines = [line.replace(f" {form['hyphens']} ", "-") for line in lines]
    return detokenise(lines, lang) if form["moses"] else lines


def pipeline(
    lang: str, lower: bool = False, normalise: bool = True, aggressive_hyphens: bool = False
) -> Callable[[str], str]:
    """The scripts one after another, on a line.

    Args:
        lang: decides about apostrophes, abbreviations and quotes: en, de, fr, it, ...
        lower: lowercase.perl at the end
        normalise: normalize-punctuation.perl and remove-non-printing-char.perl first
        aggressive_hyphens: tokenizer.perl -a: well-known becomes well @-@ known
    """
    steps: list[Callable[[str], str]] = []
    if normalise:
        steps += [normaliser(lang), remove_non_printing]
    steps.append(tokeniser(lang, aggressive_hyphens))
    if lower:
        steps.append(lowercase)
    return lambda line: reduce(lambda text, step: step(text), steps, line)


_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


def lowercase(line: str) -> str:
    """lowercase.perl: Perl's lc()."""
    # alone, every capital letter is lowered the same in Python and Perl
    return line.replace("\N{GREEK CAPITAL LETTER SIGMA}", _SIGMA).lower()


_OTHER = regex.compile(r"\p{C}")  # control, format, private use and unassigned characters


def remove_non_printing(line: str) -> str:
    """remove-non-printing-char.perl: a blank for each."""
    return line if line.isascii() and line.isprintable() else _OTHER.sub(" ", line)


@lru_cache(maxsize=8)
def normaliser(lang: str) -> Callable[[str], str]:
    """normalize-punctuation.perl LANG."""
    theirs = MosesPunctNormalizer(lang=lang, perl_parity=True)
    rules = list(theirs.substitutions)
    if lang not in ("en", "de", "es", "fr", "cs", "cz"):
        # the script knows English, Czech, and the rest
        rules[-1:-1] = theirs.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
    # the script reads bytes, for which \d and \s are ASCII's
    compiled = [(re.compile(old, re.ASCII), new) for old, new in rules]

    def normalise(line: str) -> str:
        line += "\n"  # still on in the script, and seen by one rule
        for pattern, replacement in compiled:
            line = pattern.sub(replacement, line)
        return line.removesuffix("\n")

    return normalise
