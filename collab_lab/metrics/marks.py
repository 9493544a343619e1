"""What programs leave in text: marks of subwords and tokens, escapes, and symbols of vocabularies.

The same mark means different things, by where it stands:

    in a text         its scores would be meaningless: an error (:func:`check_ordinary`)
    in two texts      scores count marks as words, and are higher than those of the text
    in a dictionary   they say how its subwords are joined (:func:`subword_marks`)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from collab_common.errors import UserError

#: A byte of a character, as SentencePiece writes characters that its vocabulary lacks.
BYTE = re.compile(r"<0x[0-9A-F]{2}>")
#: What stands for a word that a vocabulary lacks, in fairseq's output.
UNKNOWN = re.compile(rf"<+unk>+|{BYTE.pattern}")
#: Symbols of vocabularies, and those that name a language.
SYMBOL = re.compile(r"</?(?:s|pad|eos|bos|cls|sep)>|(?:^| )__\w+__(?: |$)|(?:^| )<2\w+>")
#: What only programs write between words or at them, also in both texts: separators of sentences,
#: marks of subwords, case and factors, and numbers of words.
MARKS = re.compile(
    r"<\|?\s?[\w/]+\s?/?\|?>|&lt;.{1,20}?&gt;|\[[A-Z]{2,}\]|\u2047|\uffe8|\|\|\||@@@|\\n"
    r"|(?:^| )_+\w+(?: |$)|\w_(?: |$)|^\d+(?: \d+)+$"
)
#: Subwords of other programs; BERT's begin no line.  U+0120 begins the words of GPT-2's, and some
#: of Maltese, of which hardly three stand in a row.
_OTHERS = re.compile(r"\uffed|\uff5f|\S ##\w|\u0120\S* ?\u0120\S* ?\u0120|[a-z]\u0120")
#: Traces of subwords or tokens in text: their name, and the advice of the error.
_TRACES = {
    re.compile(r"\w@@( |$)|(^| )\u2581\w|\w</w>( |$)"): "subwords; translate with --remove-bpe",
    _OTHERS: "subwords; join them as their tokeniser does",
    BYTE: "subwords; join the bytes of characters",
    re.compile(r"(^| )-[LR][RSC]B-( |$)", re.IGNORECASE): "tokens of the Penn Treebank; detokenise",
    re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);|(^| )@-@( |$)"): "Moses' tokens; detokenise",
}


def check_ordinary(
    hypotheses: Sequence[str], references: Sequence[str], of_tokens: bool = False
) -> None:
    """Raise UserError unless both are ordinary text: subwords would get a meaningless score.

    A few subword marks are allowed, and so are Moses' escapes if the references have them as well.

    Args:
        of_tokens: whether tokenised text is expected, so that only subwords are an error.
    """
    for trace, form in _TRACES.items():
        form, todo = form.split("; ")
        if of_tokens and form != "subwords":
            continue
        is_written = trace is BYTE  # text may be about bytes, but hardly about other subwords
        if _marked(references, trace) and form == "subwords" and not is_written:
            raise UserError("the reference is in subwords", todo="give the untouched text")
        number = _marked(hypotheses, trace)
        if number and not _marked(references, trace):
            raise UserError(f"{number} of {len(hypotheses)} hypotheses are in {form}", todo=todo)


def _marked(lines: Sequence[str], trace: re.Pattern[str]) -> int:
    """The number of lines with a trace; 0 for so few that they can be ordinary text."""
    number = sum(trace.search(line) is not None for line in lines)
    many = number > max(2, len(lines) // 100) or 2 * number > len(lines)
    return number if many else 0


def check_no_bytes(symbols: Iterable[str], where: Path) -> None:
    """Raise UserError for subwords that are single bytes, which fairseq does not join."""
    if byte := next(filter(BYTE.match, symbols), None):
        problem = f"has the subword {byte}, a part of a character that fairseq cannot join"
        raise UserError(problem, where, "learn subwords without byte fallback, and train again")


def subword_marks(symbols: Iterable[str]) -> str | None:
    """The kind of subwords, under its name in ``--post-process``; None for whole words."""
    for symbol in symbols:
        if symbol.startswith("\u2581"):
            return "sentencepiece"
        if symbol.endswith("@@"):
            return "subword_nmt"
    return None
