"""Documents: consecutive sentences joined to one line, for models of longer text.

    training text       the text once for each size N: documents of N consecutive sentences
    validation, test    documents of the largest size, once

A blank line on both sides ends a document, and so does a pair that was dropped, because only
consecutive sentences are joined. A document ends early before one of its sides would have more than
MOST_SUBWORDS subwords.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from typing import NamedTuple

from collab_common import BREAK
from data_prep.check import SetReport
from data_prep.parallel_text import Pair, lines_of, zipped

#: The most subwords of a document on each side: with the end symbol they fill fairseq's 1,024
#: positions.
MOST_SUBWORDS = 1_023


class Sentence(NamedTuple):
    """A sentence and its translation in subwords, and as text where that is kept."""

    subwords: tuple[str, str]
    text: tuple[str, str] | None


def join_documents(
    segmented: Pair, text: Pair | None, report: SetReport, sizes: Sequence[int], between: str
) -> None:
    """Replace the sentences of a set by documents, in its subwords and in its text.

    Args:
        segmented: files of subwords
        text: files of the same sentences as text; None for training text, which is not kept
        report: says which pairs were dropped, and counts the documents and their subwords
        sizes: numbers of sentences per document, ascending
        between: text between two sentences of a document
    """
    files = [*segmented, *(text or ())]
    sentences = [path.rename(path.with_name(f"{path.name}.sentences")) for path in files]
    subwords = zipped((sentences[0], sentences[1]), lines_of)
    texts = zipped((sentences[2], sentences[3]), lines_of) if text else repeat(None)
    report.tokens = 0
    with ExitStack() as stack:
        outputs = [stack.enter_context(path.open("wb")) for path in files]
        # the endless one comes last
        pairs = map(Sentence, subwords, texts)
        for document in documents(zip(report.starts(), pairs, strict=True), sizes, report):
            units, text_lines = zip(*document, strict=True)
            lines = [f" {BREAK} ".join(side) for side in zip(*units, strict=True)]
            report.tokens += sum(len(line.split(" ")) for line in lines)
            if text:
                lines += [between.join(side) for side in zip(*text_lines, strict=True)]
            for output, line in zip(outputs, lines, strict=True):
                output.write(f"{line}\n".encode())
    for path in sentences:
        path.unlink()


def documents(
    sentences: Iterable[tuple[bool, Sentence]], sizes: Sequence[int], report: SetReport
) -> Iterator[list[Sentence]]:
    """Yield the documents of all sizes; a document that several sizes share is yielded once.

    Args:
        sentences: sentences, each with whether a document starts with it
    """
    under_way: dict[int, list[Sentence]] = {size: [] for size in sizes}
    the_end: tuple[bool, Sentence | None] = (True, None)
    for starts, sentence in chain(sentences, [the_end]):
        ended = set()
        for size, document in under_way.items():
            full = starts or len(document) == size
            if document and (full or _is_too_long(document, sentence)):
                # all that end here end with the same sentence: as long is the same
                if len(document) not in ended:
                    report.shortened += not full
                    report.documents += 1
                    yield document
                ended.add(len(document))
                under_way[size] = document = []
            if sentence:
                document.append(sentence)


def _is_too_long(document: Sequence[Sentence], more: Sentence | None) -> bool:
    """Return whether one side, with a break between two sentences, would have too many subwords."""
    sentences = [sentence.subwords for sentence in (*document, more) if sentence]
    return any(
        sum(line.count(" ") + 1 for line in side) + len(document) > MOST_SUBWORDS
        for side in zip(*sentences, strict=True)
    )
