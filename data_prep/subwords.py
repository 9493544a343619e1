"""Joint subwords of both languages: sentencepiece for ordinary text, subword-nmt for tokens.

sentencepiece   one BPE model of raw text (Kudo and Richardson 2018), which changes no character:
                sentencepiece's own rule (NFKC) would turn m² into m2, and full-width marks into
                ASCII, so that a perfect translation would not equal its reference
subword_nmt     merges of characters within tokens (Sennrich, Haddow, Birch 2016); '@@' marks every
                unit of a word but its last one; the papers' recipes use this program
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from collab_common import BREAK
from collab_common.encodings import is_attached, is_detached
from collab_common.errors import UserError
from data_prep.check import MOST_CHARACTERS, SetReport
from data_prep.parallel_text import Pair, lines_of

MODEL, CODES = "spm.model", "code"  # the latter's name is that of fairseq's scripts
# sentencepiece leaves longer sentences out of its training (not out of the corpus); its default of
# 4,192 bytes leaves out documents, and Thai, which has no blanks
LONGEST_FOR_TRAINING = 4 * MOST_CHARACTERS  # bytes
SEPARATOR = "@@"
NO_PIECES = "empty after normalisation"
_OF_FASTBPE = "of fastBPE's codes, keep two columns, below a first line `#version: 0.2`"
#: What sentencepiece writes for a blank.
BLANK = "\u2581"
#: White space other than a blank, at which fairseq also splits a line into words: models read it as
#: a blank, because fairseq would drop it within a piece.
WHITE_SPACE = [
    char for char in map(chr, range(sys.maxunicode + 1)) if re.match(r"\s", char) and char != " "
]
#: The symbols that fairseq's dictionaries begin with; fairseq reads equal words as symbols.
SYMBOLS = frozenset({"<s>", "<pad>", "</s>", "<unk>"})

#: Symbols with which texts of many languages say which one is wanted; ``<0xE4>`` is a byte.
_TAG = re.compile(r"<(?!0x[0-9A-F]{2}>)[^<>\s]+>|>>[^<>\s]+<<|__\w+__|\[\w+\]|[a-z]{2,3}_[A-Z]\w+")
_NO_TAGS = SYMBOLS | {BREAK, "<mask>"}


# ---- sentencepiece -------------------------------------------------------------------------------


def train_pieces(texts: Pair, vocab_size: int, model: Path, symbols: Sequence[str] = ()) -> None:
    """Train sentencepiece on all lines of ``texts``, in this order, and write the model.

    Args:
        symbols: words that are always pieces, whatever the text

    Raises:
        UserError: the text has too few different words or too many characters, or all its lines are
            too long.
    """
    _say_what_is_left_out(texts)
    written, lines = io.BytesIO(), chain.from_iterable(lines_of(path.resolve()) for path in texts)
    try:
        # the name of the file with the rule is written into the model: it must not have a folder
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            rule = Path("white_space.tsv")
            rule.write_text("".join(f"{ord(char):X}\t20\n" for char in [*WHITE_SPACE, BLANK]))
            sentencepiece.SentencePieceTrainer.train(
                # not the files' names: they would be written into the model
                sentence_iterator=lines,
                model_writer=written,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0,
                normalization_rule_tsv=str(rule),
                user_defined_symbols=list(symbols),
                num_threads=1,  # written into the model, so it must not depend on the machine
                max_sentence_length=LONGEST_FOR_TRAINING,
                minloglevel=1,
            )
    except RuntimeError as error:
        # 'Internal: src/x.cc(678) [condition] Too high.' -> 'Too high'
        reason = str(error).rpartition("] ")[2].strip().removesuffix(".")
        problem = f"sentencepiece cannot learn a vocabulary of {vocab_size} ({reason})"
        todo = (
            "give a larger --vocab-size if it is below the number of different characters, or a "
            "smaller one if the text has too few different words"
        )
        raise UserError(problem, texts[0].name, todo) from None
    model.write_bytes(written.getvalue())


def _say_what_is_left_out(texts: Pair) -> None:
    """Print how many lines are too long to learn from; raise UserError if all are."""
    number = left_out = 0
    for line in chain.from_iterable(map(lines_of, texts)):
        number += 1
        left_out += len(line.encode()) > LONGEST_FOR_TRAINING
    if left_out == number:
        problem = f"all {left_out:,} lines are longer than {LONGEST_FOR_TRAINING:,} bytes"
        raise UserError(
            f"{problem}, so there is nothing to learn subwords from", texts[0], "split the lines"
        )
    if left_out:
        print(
            f"{left_out:,} of {number:,} lines are longer than {LONGEST_FOR_TRAINING:,} bytes: "
            "subwords are learnt without them",
            flush=True,
        )


def pieces_of(model: Path) -> Callable[[str], list[str]]:
    """Return a function that splits raw lines into pieces; none of these is one of SYMBOLS.

    Raises:
        UserError: the model has byte fallback, and fairseq does not join bytes again.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    if any(processor.is_byte(number) for number in range(processor.get_piece_size())):
        problem = "writes rare characters as bytes (<0xD0>), which fairseq does not join again"
        raise UserError(problem, model, "learn subwords without byte fallback")
    return lambda line: list(processor.encode(line, out_type=str))


# ---- subword-nmt ---------------------------------------------------------------------------------


def learn_merges(texts: Pair, merges: int, codes: Path, whole: Sequence[str] = ()) -> None:
    """Learn merges on both texts together, in this order, and write them.

    Args:
        whole: words that every program which reads the codes keeps whole, such as
            fairseq-interactive: the first merges make them of their characters.

    Raises:
        UserError: the text has no word of two letters.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in texts]
        out = stack.enter_context(codes.open("w", encoding="utf-8", newline="\n"))
        if not sys.stderr.isatty():  # its progress bar would fill a log file
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        try:
            learn_bpe(map(_with_blanks, chain(*files)), out, merges)
        except ValueError as error:  # no pair of symbols
            raise UserError("has no words to learn subwords from", texts[0]) from error
    if whole:
        version, *learnt = codes.read_text("utf-8").split("\n")
        first = list(chain.from_iterable(map(_merges_of, whole)))
        codes.write_text("\n".join([version, *first, *learnt]), "utf-8")


def _merges_of(word: str) -> Iterator[str]:
    """The merges that make a word of its characters, from left to right, as lines of codes."""
    for end in range(1, len(word)):
        last = "</w>" if end == len(word) - 1 else ""
        yield f"{word[:end]} {word[end]}{last}"


def segmenter(codes: Path, whole: Sequence[str] = ()) -> Callable[[str], str]:
    """Return a function that splits a line of tokens into subwords, joined by blanks.

    Args:
        whole: tokens that are not split

    Raises:
        UserError: the file is not one of subword-nmt's codes.
    """
    try:
        with codes.open(encoding="utf-8", newline="\n") as stream:
            bpe = BPE(stream, separator=SEPARATOR, glossaries=list(whole))
    except (SystemExit, ValueError) as error:  # subword-nmt exits at a line that is not a merge
        todo = f"learn them again, or give a file that subword-nmt wrote; {_OF_FASTBPE}"
        raise UserError("is not a file of BPE codes", codes, todo) from error
    merges = codes.read_text("utf-8")
    # subword-nmt's first version writes </w> by itself, and reads so what has no first line
    if not are_codes(codes) and "</w>" in merges and " </w>" not in merges:
        problem = "would cut the ends of words into characters: its first line does not say how"
        raise UserError(problem, codes, _OF_FASTBPE)
    return lambda line: bpe.segment(_with_blanks(line))


def units_of(codes: Path, whole: Sequence[str] = ()) -> Callable[[str], list[str]]:
    """Return a function like that of ``segmenter`` that returns a list of subwords."""
    segment = segmenter(codes, whole)
    return lambda line: segment(line).split()


def _with_blanks(line: str) -> str:
    """Replace white space by blanks, because fairseq would split at it, and drop it."""
    return " ".join(line.split())


def are_codes(path: Path) -> bool:
    """Return whether a file starts like the codes of subword-nmt."""
    with path.open("rb") as file:
        return file.read(9) == b"#version:"


# ---- both ----------------------------------------------------------------------------------------


def by_sentence(segment: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return a function that splits documents as the training text was: each sentence by itself.

    Otherwise blanks around a break, or none, would give other subwords.
    """

    def segment_document(text: str) -> list[str]:
        first, *others = map(segment, text.split(BREAK))
        return [*first, *(unit for sentence in others for unit in (BREAK, *sentence))]

    return segment_document


def cut_tags(symbols: Iterable[str], segment: Callable[[str], list[str]], model: str) -> str | None:
    """Text about tags of a dictionary that are no subwords; None if there are none.

    They were put before the subwords of each line of a side, so that no segmented text has them.

    Args:
        symbols: words of the dictionary
        segment: function that splits a line into subwords
        model: name of the file with the subwords
    """
    tags = [word for word in symbols if _TAG.fullmatch(word) and word not in _NO_TAGS]
    if not (cut := [tag for tag in tags if tag not in segment(tag)]):
        return None
    named = ", ".join(cut[:3]) + (", ..." if len(cut) > 3 else "")
    return (
        f"the dictionary has tags ({named}) that {model} cuts into subwords, so that lines of text "
        "have none: give a tag as the training did, before the subwords of a source (to fairseq's "
        "own commands or CTranslate2), or as the beginning of a translation (fairseq-generate "
        "--prefix-size, CTranslate2's target_prefix)"
    )


def rejoined(units: Sequence[str], mark: str = "") -> str:
    """Return the text that fairseq makes of subwords with ``--post-process``.

    Args:
        mark: mark at the end of each unit that is not a word's last; "" for pieces of sentencepiece
    """
    line = " ".join(" ".join(units).split())  # fairseq splits a line at every white space
    if mark:
        return f"{line} ".replace(f"{mark} ", "").rstrip()
    return line.replace(" ", "").replace(BLANK, " ").strip()


def write_subwords(
    segment: Callable[[str], list[str]],
    sources: Pair,
    targets: Pair,
    report: SetReport,
    *,
    drop: bool | None,
    symbols: Collection[str] = SYMBOLS,
    mark: str = "",
) -> None:
    """Write both sides of a text as subwords joined by blanks, and count them in the report.

    Some faults appear only now.  Normalisation empties some lines, for example one of zero-width
    spaces.  A token such as ``<unk>`` is a symbol if it stays whole; a token that ends with ``@@``
    would be joined to the next one.

    Args:
        segment: function that splits a line into subwords
        drop: whether a pair with a fault is dropped (True) or an error (False); None keeps it, for
            text as published
        symbols: subwords that no text may have
        mark: mark at the end of each unit that is not a word's last, if there is one; no word of
            the text may end with it
    """
    with targets[0].open("wb") as source_out, targets[1].open("wb") as target_out:
        for number, lines in enumerate(zip(*map(lines_of, sources), strict=True), 1):
            sides = [segment(line) for line in lines]
            faults = [_fault(*pair, symbols, mark) for pair in zip(lines, sides, strict=True)]
            if any(faults) and drop is None:
                report.symbols += any(not SYMBOLS.isdisjoint(side) for side in sides)
            elif any(faults):
                faulty = 0 if faults[0] else 1
                location = f"{sources[faulty].name}:{report.number_as_given(number)}"
                if not drop:
                    raise UserError(faults[faulty], location, "correct the text")
                report.drop(faults[faulty], location)
                report.mark_unsegmented(number)
                continue
            outs = (source_out, target_out)
            for path, out, line, side in zip(sources, outs, lines, sides, strict=True):
                report.tokens += len(side)
                report.attached += bool(mark) and is_attached(line)
                report.detached += not mark and is_detached(line, path.suffix[1:])
                if rejoined(side, mark) != _with_blanks(line):
                    report.altered += 1
                    report.first_altered = report.first_altered or line
                out.write((" ".join(side) + "\n").encode())


def _fault(line: str, subwords: list[str], symbols: Collection[str], mark: str) -> str:
    if not subwords:
        return NO_PIECES
    if mark and any(word.endswith(mark) for word in line.split()):
        return f"a word ends with {mark}, the mark of its parts"
    symbol = next((unit for unit in subwords if unit in symbols), None)
    if symbol == BREAK:
        return f"{BREAK} is the symbol between sentences"
    return f"{symbol} is a symbol of fairseq's" if symbol else ""
