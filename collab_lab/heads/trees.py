"""Gold trees in CoNLL-U (universaldependencies.org/format.html), over the subwords of a model.

A word is a span of characters.  The words of a multi-word token share its characters: if their
forms make up the token (``do`` + ``n't``), each word has its own characters, otherwise each has all
of them (``de`` + ``le`` in ``du``).  Empty nodes have no text and are left out.

A text is segmented like the training text, by the sentencepiece model or the BPE codes of the data
folder.  Counting characters finds the subwords of a word:

    word [start, end) of the text  =  characters [n(start), n(end)) of the subwords,

where ``n(i)`` is the number of characters that segmenting the words before ``i`` gives, one by one.
So normalisation may change characters.  Words that share a subword (``can`` + ``not`` in one
piece), or characters of a multi-word token, are one *unit*: the model reads no difference.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import conllu
import sentencepiece
from conllu.exceptions import ParseException

from collab_common.errors import UserError
from collab_common.files import open_bytes
from collab_common.folder import manifest
from collab_common.moses import pipeline
from data_prep.subwords import CODES, MODEL, SEPARATOR, are_codes
from data_prep.subwords import segmenter as segmenter_of_codes

#: sentencepiece's mark of the beginning of a word.
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class GoldWord(NamedTuple):
    """A word of a tree: its characters ``start`` to ``end``, and the word that it depends on.

    Attributes:
        head: index of the word in the sentence that it depends on, from 0; None for the root.
        relation: relation to its head, for example ``nsubj`` or ``nsubj:pass``.
    """

    start: int
    end: int
    head: int | None
    relation: str


class GoldSentence(NamedTuple):
    """A sentence with its tree."""

    text: str
    words: tuple[GoldWord, ...]


def read(path: Path) -> list[GoldSentence]:
    """Read all sentences of a file, gzipped or not."""
    sentences: list[GoldSentence] = []
    with open_bytes(path) as stream, io.TextIOWrapper(stream, "utf-8-sig") as text:
        try:
            for tokens in conllu.parse_incr(text):
                sentences.append(_sentence(tokens))
        except (ParseException, ValueError) as error:
            problem = f"sentence {len(sentences) + 1} is not CoNLL-U: {error}"
            raise UserError(problem, path, "fix the file") from error
        except KeyError as error:
            problem = f"sentence {len(sentences) + 1} is not CoNLL-U: a word has no column {error}"
            raise UserError(problem, path, "fix the file") from error
    return sentences


def _sentence(tokens: conllu.TokenList) -> GoldSentence:
    """Put the text together, and the words into it."""
    text = ""
    words: list[GoldWord] = []
    # Ids are numbers, (1, "-", 2) of a multi-word token, (1, ".", 1) of an empty node.
    remaining = iter([t for t in tokens if isinstance(t["id"], int) or t["id"][1] != "."])
    for token in remaining:
        word_tokens = [token]
        if not isinstance(token["id"], int):  # its words follow
            first, _, last = token["id"]
            word_tokens = list(islice(remaining, last - first + 1))
            if len(word_tokens) <= last - first:
                raise ValueError(f"token {first}-{last} lacks words")
        ends = accumulate((len(word["form"]) for word in word_tokens), initial=len(text))
        spans = list(pairwise(ends))
        if "".join(word["form"] for word in word_tokens).lower() != token["form"].lower():
            spans = [(len(text), len(text) + len(token["form"]))] * len(word_tokens)
        for word, span in zip(word_tokens, spans, strict=True):
            _check(word, len(words) + 1, tokens)
            head = word["head"]
            words.append(GoldWord(*span, head - 1 if head else None, word["deprel"]))
        is_joined = (token["misc"] or {}).get("SpaceAfter") == "No"
        text += token["form"] + " " * (not is_joined)
    return GoldSentence(text.rstrip(), tuple(words))


def _check(token: Any, number: int, tokens: conllu.TokenList) -> None:
    """Check the order of words and their heads, which the parser does not."""
    if token["id"] != number:
        raise ValueError(f"word {token['id']} where word {number} is expected")
    total = sum(isinstance(token["id"], int) for token in tokens)
    if token["head"] is None or not 0 <= token["head"] <= total or token["head"] == number:
        raise ValueError(f"word {number} has no valid head: {token['head']}")


# ---- subwords -----------------------------------------------------------------------------------


class Subword(NamedTuple):
    """A symbol that a model reads, and how many characters of the text it covers."""

    symbol: str
    num_characters: int


#: Segments a text as the training text was.
Segmenter = Callable[[str], list[Subword]]


def sentencepiece_segmenter(model: Path) -> Segmenter:
    """A function that splits raw text into sentencepiece's subwords."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (OSError, RuntimeError) as error:
        raise UserError("is not a sentencepiece model", model, "give another file") from error
    return lambda text: [
        Subword(piece, len(piece.replace(SPACE, "")))
        for piece in processor.encode(text, out_type=str)
    ]


def bpe_segmenter(path: Path, tokenise: Callable[[str], str]) -> Segmenter:
    """A function that splits tokens into subword-nmt's subwords."""
    segment = segmenter_of_codes(path)

    def subwords(text: str) -> list[Subword]:
        line = segment(tokenise(text))
        # Escaped characters (&apos;) have one length in a part and in the whole.
        return [Subword(symbol, len(symbol.removesuffix(SEPARATOR))) for symbol in line.split()]

    return subwords


def segmenter(data: Path, language: str, subwords: Path | None = None) -> Segmenter:
    """A function that splits text into subwords as in a data folder.

    With BPE codes, the folder's manifest says whether the text is tokenised and lower-cased;
    without a manifest it counts as tokenised.

    Args:
        subwords: file with a sentencepiece model or BPE codes; default: that of the folder.
    """
    in_folder = (data / name for name in (MODEL, CODES))
    path = subwords or next((path for path in in_folder if path.is_file()), None)
    if path is None:
        todo = "give the sentencepiece model or the BPE codes of its text with --subwords"
        raise UserError(f"has neither {MODEL} nor {CODES}", data, todo)
    if not path.is_file():
        raise UserError("file not found", path)
    if not are_codes(path):
        return sentencepiece_segmenter(path)
    form = manifest(data).get("form")
    form = form or {"moses": True, "lowercased": False, "hyphens": None}
    if form["hyphens"] is not None:
        raise UserError("gold trees cannot be read on text with split hyphens", data)
    if not form["moses"]:
        return bpe_segmenter(path, str)
    return bpe_segmenter(path, pipeline(language, lower=form["lowercased"], normalise=False))


class Tree(NamedTuple):
    """The subwords of a sentence, and the relations of its units.

    Attributes:
        symbols: the subwords.
        units: the unit of each subword, counted from 0 in the order of the text.
        pairs: relation, unit of the dependent and unit of the head; pairs within a unit and pairs
            with a word that has no subwords are left out.
    """

    symbols: list[str]
    units: list[int]
    pairs: list[tuple[str, int, int]]


def align(sentence: GoldSentence, segment: Segmenter) -> Tree:
    """The tree over the subwords of a sentence."""
    text, words = sentence
    subwords = segment(text)
    cuts = sorted({0, *(end for word in words for end in (word.start, word.end))})
    parts = (segment(text[start:end]) for start, end in pairwise(cuts))
    lengths = (sum(subword.num_characters for subword in part) for part in parts)
    counts = dict(zip(cuts, accumulate(lengths, initial=0), strict=True))
    spans = [(counts[word.start], counts[word.end]) for word in words]  # of subwords' characters
    *starts, _ = accumulate((subword.num_characters for subword in subwords), initial=0)
    # A word is of another unit than the one before it if a subword starts between them.
    neighbours = pairwise([(0, 0), *spans])
    begins = [any(end <= start <= first for start in starts) for (_, end), (first, _) in neighbours]
    unit_of = [number - 1 for number in accumulate(begins)]
    # A subword is of the word of its first character; a mark of a space, of the next one.
    owners = [next((i for i, (_, end) in enumerate(spans) if start < end), -1) for start in starts]
    units = [unit_of[owner] for owner in owners]
    pairs = [
        (word.relation, unit_of[i], unit_of[word.head])
        for i, word in enumerate(words)
        if word.head is not None
    ]
    read_units = set(units)  # normalisation may leave nothing of a word
    between_units = [p for p in pairs if p[1] != p[2] and {p[1], p[2]} <= read_units]
    return Tree([subword.symbol for subword in subwords], units, between_units)
