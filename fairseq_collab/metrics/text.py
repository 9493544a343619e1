"""What lines of text show of how they want to be counted: their script, and traces of tokens.

Apart from the scores themselves, since comparing scores needs this and not what they import.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from collab_common.errors import UserError

#: Scripts whose words are not apart: Han, and those that sacreBLEU counts by characters here (Thai,
#: Lao, Tibetan, Burmese, Khmer, kana).
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_BY_CHARACTER = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
#: What is in a translation before it is ordinary text, and how it becomes that.
_TRACES = {
    re.compile(r"@@( |$)|\u2581"): "subwords; translate with --remove-bpe",
    re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);|(^| )@-@( |$)"): "Moses' tokens; detokenise",
}


def tokenizer(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for the script that most of the references' letters are of.

    ``13a``, or, where no blanks are between words: ``zh`` of Chinese, and ``char`` of Japanese
    (whose words sacreBLEU has by MeCab only), Thai, Lao, Tibetan, Burmese and Khmer.
    """
    text = "".join(references)
    han, others = (len(script.findall(text)) for script in (_HAN, _BY_CHARACTER))
    if 2 * (han + others) <= sum(map(str.isalpha, text)):
        return "13a"
    return "zh" if han > 9 * others else "char"


def check_ordinary(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Hypotheses are ordinary text, as references are; else a score would be of something else.

    Raises:
        UserError: more than one of a hundred, and than two in all, have traces of subwords or
            tokens, and no reference.
    """
    for trace, what in _TRACES.items():
        found = sum(trace.search(line) is not None for line in hypotheses)
        if found > max(2, len(hypotheses) // 100) and not any(map(trace.search, references)):
            what, todo = what.split("; ")
            raise UserError(f"{found} of {len(hypotheses)} hypotheses are in {what}", todo=todo)
