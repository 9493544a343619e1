"""Corpus scores of translations (0 to 100), by sacreBLEU, each with the signature of how.

BLEU (cased; 13a, or what :func:`.tokenizer` says of scripts without blanks) and chrF are of
ordinary text against the untouched reference.  The two others are for comparison with papers, never
with those:

    tokens            BLEU of tokens joined by blanks, as they are: what fairseq-generate counts
    compound-split    BLEU on Moses tokens in which hyphenated compounds are split (``rich-text``
                      counts as ``rich ##AT##-##AT## text``), as papers on WMT14 English-German
                      since Vaswani et al. 2017 count.  The same output scores higher so (0.7 in
                      fairseq's scaling recipe: 29.29 and 28.6).  Of the model's own tokens it is
                      what fairseq's scripts/compound_split_bleu.sh prints; ordinary text is
                      tokenised first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacremoses import MosesTokenizer

from collab_common.errors import UserError
from fairseq_collab.metrics.text import check_ordinary, tokenizer

_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """Corpus scores (0 to 100) with the signatures that say how they were computed."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    length_ratio: float
    sentences: int


def score(hypotheses: list[str], references: list[str]) -> Score:
    """Corpus BLEU (cased) and chrF.

    Raises:
        UserError: there are not as many hypotheses as references, the references have no words, or
            the hypotheses are no ordinary text.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references",
            todo="give the reference of the set that was translated",
        )
    if not any(map(str.strip, references)):
        raise UserError("the reference has no words", todo="give the text of the test set")
    check_ordinary(hypotheses, references)
    bleu, chrf = BLEU(tokenize=tokenizer(references)), CHRF()
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


def summary(result: Score) -> str:
    """Two lines: BLEU and chrF, each with its signature."""
    return (
        f"BLEU {result.bleu:.2f}  (length ratio {result.length_ratio:.3f}, "
        f"{result.sentences} sentences)  {result.bleu_signature}\n"
        f"chrF {result.chrf:.2f}  {result.chrf_signature}"
    )


def split_compounds(tokens: str) -> str:
    """``a-b`` becomes ``a ##AT##-##AT## b``, from left to right."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens)


def compound_split_bleu(
    hypotheses: list[str], references: list[str], tokens: str
) -> dict[str, Any]:
    """BLEU (0 to 100) of tokens joined by blanks, compounds split; 0 if no four in a row agree.

    Args:
        tokens: whose they are, for the signature.
    """
    ours, theirs = ([*map(split_compounds, text)] for text in (hypotheses, references))
    bleu, signature = bleu_of_tokens(ours, theirs, smoothing="none")  # fairseq-score has none
    return {
        "compound_split_bleu": bleu,
        "compound_split_signature": f"{tokens}|compounds:split|{signature}",
    }


def moses_tokens(sentences: list[str], language: str) -> list[str]:
    """Ordinary text as Moses tokens joined by blanks."""
    moses = MosesTokenizer(lang=language)
    return [moses.tokenize(sentence, return_str=True, escape=False) for sentence in sentences]


def bleu_of_tokens(
    hypotheses: list[str], references: list[str], smoothing: str = "exp"
) -> tuple[float, str]:
    """BLEU (0 to 100) of tokens joined by blanks, as they are, and sacreBLEU's signature."""
    # force: sacreBLEU warns of tokenised text otherwise, and this is meant to be.
    bleu = BLEU(tokenize="none", force=True, smooth_method=smoothing)
    return bleu.corpus_score(hypotheses, [references]).score, str(bleu.get_signature())
