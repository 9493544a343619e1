"""Text out of the mark-up that WMT and IWSLT wrap their corpora in, a line at a time.

Neither is well-formed XML: characters stand unescaped, and scripts have always cut the tags off
with line-wise patterns. So do we, or the sentences would not be those of published results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from data_prep.parallel_text import Pair, check_equal, lines_of, write_lines

_SEGMENT_START = re.compile(r'<seg id="[0-9]*">\s*')
_SEGMENT_END = re.compile(r"\s*</seg>\s*")
# WIT3's training files carry these lines, one of each kind a talk, on both sides.
_METADATA = ("<url>", "<talkid>", "<keywords>")
_WRAPPING = re.compile("</?(?:title|description)>")


def segments(path: Path) -> Iterator[str]:
    """The segments of a test set in SGM or XML, as they stand there (nothing is unescaped)."""
    for line in lines_of(path):
        if "<seg id" in line:
            yield _SEGMENT_END.sub("", _SEGMENT_START.sub("", line)).strip()


def write_segments(originals: Pair, targets: Pair) -> int:
    """Writes the segments of both sides; their number. Raises UserError if it is not the same."""
    pairs = zip(originals, targets, strict=True)
    counts = [write_lines(target, segments(source)) for source, target in pairs]
    return check_equal(originals, counts, "segments")


def talk_lines(path: Path) -> Iterator[str]:
    """The sentences of a train.tags file of IWSLT14; titles and descriptions count as sentences.

    So do names of speakers, as in fairseq's script.
    """
    for line in lines_of(path):
        if not any(tag in line for tag in _METADATA):
            yield _WRAPPING.sub("", line)
