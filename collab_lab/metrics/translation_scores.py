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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

from collab_common.errors import UserError
from collab_lab.metrics.marks import check_ordinary

#: Scripts without spaces between words: Han, and those that are scored by characters here (Thai,
#: Lao, Tibetan, Burmese, Khmer, kana).
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_BY_CHARACTER = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
_WORD = re.compile(r"[^\W\d_]+")
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
    check_words(references)
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


def check_words(references: Sequence[str]) -> None:
    """Raise UserError if all references are empty."""
    if not any(map(str.strip, references)):
        raise UserError("the reference has no words", todo="give the text of the test set")


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


# ---- script of text -----------------------------------------------------------------------------


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
