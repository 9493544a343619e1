"""Corpus scores of translations (0 to 100) by sacreBLEU, each with its signature.

BLEU (cased; tokenizer 13a, or see :func:`.tokenizer`) and chrF compare ordinary text with the
untouched reference.  Two more scores serve only to compare with papers:

    tokenised       BLEU of the data's own Moses tokens, as fairseq-generate counts
    compound-split  tokenised BLEU with hyphenated compounds split (``rich-text`` counts as
                    ``rich ##AT##-##AT## text``), as papers on WMT14 English-German count since
                    Vaswani et al. 2017, and fairseq's scripts/compound_split_bleu.sh.  It is
                    higher (29.29 instead of 28.6 in fairseq's scaling recipe).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

from collab_common.errors import UserError

#: Scripts without spaces between words: Han, and those that are scored by characters here (Thai,
#: Lao, Tibetan, Burmese, Khmer, kana).
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_BY_CHARACTER = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
_WORD = re.compile(r"[^\W\d_]+")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
#: Subwords of other programs; BERT's begin no line.  U+0120 begins the words of GPT-2's, and some
#: of Maltese, of which hardly three stand in a row.
_OTHERS = re.compile(r"\uffed|\uff5f|\S ##\w|\u0120\S* ?\u0120\S* ?\u0120|[a-z]\u0120")
#: Traces of subwords or tokens in text: their name, and the advice of the error.
_TRACES = {
    re.compile(r"\w@@( |$)|(^| )\u2581\w|\w</w>( |$)"): "subwords; translate with --remove-bpe",
    _OTHERS: "subwords; join them as their tokeniser does",
    _BYTE: "subwords; join the bytes of characters",
    re.compile(r"(^| )-[LR][RSC]B-( |$)", re.IGNORECASE): "tokens of the Penn Treebank; detokenise",
    re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);|(^| )@-@( |$)"): "Moses' tokens; detokenise",
}
_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """Corpus scores (0 to 100) with their signatures."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    length_ratio: float
    sentences: int


def score(hypotheses: list[str], references: list[str], of_tokens: bool = False) -> Score:
    """Corpus BLEU (cased) and chrF.

    Args:
        of_tokens: whether the texts are already tokenised, so that BLEU must not tokenise them.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references",
            todo="give the reference of the set that was translated",
        )
    if not any(map(str.strip, references)):
        raise UserError("the reference has no words", todo="give the text of the test set")
    check_ordinary(hypotheses, references, of_tokens)
    bleu, chrf = bleu_metric(references, of_tokens), CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references])
    chrf_score = chrf.corpus_score(hypotheses, [references])
    return Score(
        bleu=bleu_score.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf_score.score,
        chrf_signature=str(chrf.get_signature()),
        length_ratio=bleu_score.sys_len / bleu_score.ref_len,
        sentences=len(references),
    )


def bleu_metric(text: Sequence[str], of_tokens: bool = False, **more: Any) -> BLEU:
    """sacreBLEU's BLEU metric for ordinary text, or for tokens joined by spaces."""
    if of_tokens:
        return BLEU(tokenize="none", force=True, **more)  # force: no warning of tokens
    return BLEU(tokenize=tokenizer(text), **more)


def summary(result: Score) -> str:
    """Two lines: BLEU and chrF, each with its signature."""
    return (
        f"BLEU {result.bleu:.2f}  (length ratio {result.length_ratio:.3f}, "
        f"{result.sentences} sentences)  {result.bleu_signature}\n"
        f"chrF {result.chrf:.2f}  {result.chrf_signature}"
    )


def tokenised(hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """Both scores of Moses tokens joined by spaces, under their names in a run's record."""
    plain, signature = bleu_of_tokens(hypotheses, references)
    ours, theirs = ([*map(split_compounds, text)] for text in (hypotheses, references))
    split, how = bleu_of_tokens(ours, theirs, smoothing="none")  # fairseq-score does not smooth
    return {
        "tokenised_bleu": plain,
        "tokenised_signature": signature,
        "compound_split_bleu": split,
        "compound_split_signature": f"moses:data|compounds:split|{how}",
    }


def split_compounds(tokens: str) -> str:
    """``a-b`` becomes ``a ##AT##-##AT## b``, from left to right."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


def bleu_of_tokens(
    hypotheses: list[str], references: list[str], smoothing: str = "exp"
) -> tuple[float, str]:
    """BLEU (0 to 100) of tokens joined by spaces, and sacreBLEU's signature."""
    bleu = BLEU(tokenize="none", force=True, smooth_method=smoothing)  # force: no warning of tokens
    return bleu.corpus_score(hypotheses, [references]).score, str(bleu.get_signature())


# ---- script and traces of text ---------------------------------------------------


def tokenizer(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for the script of most of the references' words.

    ``13a``; for scripts without spaces between words ``zh`` (Chinese) or ``char`` (Japanese, for
    which sacreBLEU needs MeCab otherwise, Thai, Lao, Tibetan, Burmese and Khmer).  Each character
    of these scripts counts as a word: the names of menus and commands in a Chinese manual have more
    letters than it has characters.
    """
    text = "\n".join(references)
    han, by_character = (len(script.findall(text)) for script in (_HAN, _BY_CHARACTER))
    others = len(_WORD.findall(_HAN.sub(" ", _BY_CHARACTER.sub(" ", text))))
    if han + by_character <= others:
        return "13a"
    return "zh" if han > 9 * by_character else "char"


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
        is_written = trace is _BYTE  # text may be about bytes, but hardly about other subwords
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
    if byte := next(filter(_BYTE.match, symbols), None):
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
