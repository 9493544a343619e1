"""What text shows of how it must be scored: its script, and leftover subwords or tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from collab_common.errors import UserError

#: Scripts without spaces between words: Han, and those that are scored by characters here (Thai,
#: Lao, Tibetan, Burmese, Khmer, kana).
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_BY_CHARACTER = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
#: Traces of text that is not ordinary text: what they are, and what to do.
_TRACES = {
    re.compile(r"@@( |$)|\u2581"): "subwords; translate with --remove-bpe",
    re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);|(^| )@-@( |$)"): "Moses' tokens; detokenise",
}


def tokenizer(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for the script of most of the references' letters.

    ``13a``; for scripts without spaces between words ``zh`` (Chinese) or ``char`` (Japanese, for
    which sacreBLEU needs MeCab otherwise, Thai, Lao, Tibetan, Burmese and Khmer).
    """
    text = "".join(references)
    han, others = (len(script.findall(text)) for script in (_HAN, _BY_CHARACTER))
    if 2 * (han + others) <= sum(map(str.isalpha, text)):
        return "13a"
    return "zh" if han > 9 * others else "char"


def check_ordinary(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Check that hypotheses are ordinary text: subwords or tokens would get a meaningless score.

    Raises:
        UserError: more than 1 % of the hypotheses, and more than two, have traces of subwords or
            tokens, and no reference has.
    """
    for trace, what in _TRACES.items():
        found = sum(trace.search(line) is not None for line in hypotheses)
        if found > max(2, len(hypotheses) // 100) and not any(map(trace.search, references)):
            what, todo = what.split("; ")
            raise UserError(f"{found} of {len(hypotheses)} hypotheses are in {what}", todo=todo)


def subword_marks(symbols: Iterable[str]) -> str | None:
    """How words are joined from subwords, as fairseq's ``--post-process``; None for words."""
    for symbol in symbols:
        if symbol.startswith("\u2581"):
            return "sentencepiece"
        if symbol.endswith("@@"):
            return "subword_nmt"
    return None
