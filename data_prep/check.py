"""Check parallel text before fairseq reads it, and report its faults.

fairseq-preprocess accepts texts of unequal length and lines with a stray carriage return, and pairs
every later sentence with the wrong translation. The policy:

    training text            a pair with a fault is dropped and counted
    validation, test         the first fault is an error: shortened sets have scores of their own
    text as published        only a fault that fairseq cannot read is an error; nothing is dropped

Only LF ends a line. Memory does not grow with the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from tabulate import tabulate

from collab_common.encodings import ESCAPE, REPLACEMENT, is_misread
from collab_common.errors import UserError
from data_prep.parallel_text import Pair, rows_of, zipped

MOST_WORDS, MOST_CHARACTERS = 1_000, 20_000  # of a line
ALLOWED_LOSS = 0.05  # of the pairs of a set

UTF8, NUL = "invalid UTF-8", "NUL"
RETURN, SEPARATOR = "carriage return", "line separator"
BOM, EMPTY, LONG = "byte order mark", "empty", "too long"
#: Faults with which fairseq cannot read a line, or takes it for two.
UNREADABLE = (UTF8, RETURN, NUL)
_ALL = (*UNREADABLE, SEPARATOR, BOM, EMPTY, LONG)
_TODO = {
    UTF8: "with its encoding, convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW",
    NUL: r"unless the text is UTF-16, remove it: tr -d '\0' < FILE > NEW",
    RETURN: r"remove it: sed -i 's/\r$//; s/\r/ /g' FILE",
    BOM: r"remove it: sed -i 's/^\xEF\xBB\xBF//' FILE",
}
_CORRECT = "correct the line; lines of validation and test sets are never dropped"
# everything at which Python's str.splitlines() ends a line, and NUL
_CONTROL = re.compile("[\0\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_OTHER_SPACE = re.compile(r"[^\S ]")


@dataclass
class SetReport:
    """What a check has found in one set.

    Args:
        read, kept: numbers of pairs
        dropped: numbers of pairs by the reason why they were dropped
        first: place of the first dropped pair of each reason, FILE:LINE (detail)
        copies: number of pairs whose target equals the source
        in_training_text: number of pairs of a validation or test set that are also in the training
            text
        symbols: number of pairs, in text as published, with a word that is a symbol of fairseq, as
            <unk>
        longest: number of words of the longest line that is kept
        tokens: number of subwords of both sides together
        documents: number of documents that the kept pairs were joined to; 0 if they are not joined
        shortened: number of documents that end early because they would have too many subwords
        altered: number of lines, on both sides, that fairseq cannot restore from their subwords
        first_altered: the first of these lines
        unknown: number of lines, on both sides, with a subword that the dictionary lacks, which
            models read and write as <unk>
        first_unknown: the first of these subwords
        escaped: number of lines, on both sides, with escapes of Moses, HTML or the Penn Treebank,
            such as &apos;, &#39; or -LRB-; 0 for text as published
        spaced: number of lines, on both sides, with white space other than blanks, such as a
            no-break space; 0 for text as published
        first_spaced: the first of these characters
        decomposed: number of lines, on both sides, whose letters are separate from their accents
            (not in Unicode's form NFC)
        attached: number of lines, on both sides, of tokenised text that end in a word with its mark
        detached: number of lines, on both sides, of ordinary text with a full stop, a comma or
            another mark apart from its word
        misread: number of lines, on both sides, with UTF-8 that was read as Latin-1 or Windows-1252
        replaced: number of lines, on both sides, with U+FFFD, the sign of an unreadable character
        first_misread, first_replaced: place of the first of these lines, FILE:LINE
    """

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    copies: int = 0
    in_training_text: int = 0
    symbols: int = 0
    longest: int = 0
    tokens: int = 0
    documents: int = 0
    shortened: int = 0
    altered: int = 0
    first_altered: str = ""
    unknown: int = 0
    first_unknown: str = ""
    decomposed: int = 0
    escaped: int = 0
    spaced: int = 0
    first_spaced: str = ""
    attached: int = 0
    detached: int = 0
    misread: int = 0
    first_misread: str = ""
    replaced: int = 0
    first_replaced: str = ""

    def __post_init__(self) -> None:
        self._unread: list[int] = []  # numbers of the pairs that were dropped before segmentation
        self._unsegmented: set[int] = set()  # those dropped there, counted without the unread

    def drop(self, reason: str, location: str) -> None:
        """Count a dropped pair."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.first.setdefault(reason, location)

    def count_encodings(self, line: str, location: str) -> None:
        """Count a line if its letters were lost, or changed, between two encodings."""
        if is_misread(line):
            self.misread += 1
            self.first_misread = self.first_misread or location
        if REPLACEMENT in line:
            self.replaced += 1
            self.first_replaced = self.first_replaced or location

    def mark_unread(self, number: int) -> None:
        """Note that a pair was dropped before the text is segmented."""
        self._unread.append(number)

    def mark_unsegmented(self, number: int) -> None:
        """Note that a pair, counted in the text that is segmented, was dropped after segmenting."""
        self._unsegmented.add(number)
        self.kept -= 1

    def starts(self) -> Iterator[bool]:
        """Yield for each kept pair whether the line before it is blank, dropped or missing."""
        unread, given, starts = {*self._unread}, 0, True
        for number in range(1, self.kept + len(self._unsegmented) + 1):
            given += 1
            while given in unread:
                given, starts = given + 1, True
            if number in self._unsegmented:
                starts = True
                continue
            yield starts
            starts = False

    def number_as_given(self, number: int) -> int:
        """Return the number of a kept pair, counted from 1, in the text as the user gave it."""
        for unread in self._unread:
            number += unread <= number
        return number


#: The reports of the validation and test sets that a pair is in, once for each time.
HeldOut = dict[bytes, list[SetReport]]


def inspect(line: bytes) -> tuple[str, str]:
    """Return the fault of a line ("" if it has none), and a detail of the fault."""
    try:
        text = line.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        return UTF8, f"byte 0x{line[error.start]:02X} at byte {error.start + 1}"
    if text.startswith("\ufeff"):  # of the file, or of one of those that it was joined from
        return BOM, ""
    if control := _CONTROL.search(text):
        kind = {"\r": RETURN, "\0": NUL}.get(control[0], SEPARATOR)
        return kind, f"U+{ord(control[0]):04X} at character {control.start() + 1}"
    words = len(text.split())
    if not any(char.isprintable() and not char.isspace() for char in text):
        return EMPTY, ""  # as is a line of zero-width spaces
    if words > MOST_WORDS or len(text) > MOST_CHARACTERS:
        return LONG, f"{words:,} words, {len(text):,} characters"
    return "", ""


def check_sets(
    texts: Mapping[str, Pair],
    outputs: Mapping[str, Pair] | None,
    allowed: float,
    blank_lines: bool = False,
) -> dict[str, SetReport]:
    """Check all sets of a corpus and write the kept pairs.

    Args:
        outputs: files for the kept pairs; None for text as published
        allowed: largest share of a set that may be dropped
        blank_lines: whether a line that is blank on both sides ends a document, and is not a pair
    """
    held_out: HeldOut = {}
    reports = dict.fromkeys(texts, SetReport())
    for split in sorted(texts, key="train".__eq__):  # it comes last, compared with the others
        print(f"checking {split} ...", flush=True)
        out = outputs[split] if outputs else None
        reports[split] = check_set(split, texts[split], out, held_out, blank_lines)
    check_losses(reports, allowed)
    return reports


def check_set(
    split: str, text: Pair, out: Pair | None, held_out: HeldOut, blank_lines: bool = False
) -> SetReport:
    """Read a set, write the pairs that are kept to ``out``, and report.

    Args:
        out: files for the kept pairs; None for text as published
        held_out: pairs of validation and test sets, which these sets fill in; the training text
            comes last, takes out the pairs that it also has, and so counts each of them once

    Raises:
        UserError: the sides have unequal numbers of lines, a validation or test set has a fault,
            the set is empty, or a text equals its translation.
    """
    report, faults = SetReport(), _ALL if out else UNREADABLE
    with ExitStack() as stack:
        outputs = [stack.enter_context(path.open("wb")) for path in out or ()]
        for number, rows in enumerate(zipped(text, rows_of), 1):
            if blank_lines and not any(row.strip() for row in rows):
                report.mark_unread(number)
                continue
            report.read += 1
            inspected = [inspect(row) for row in rows]
            if faulty := [side for side in (0, 1) if inspected[side][0] in faults]:
                fault, detail = inspected[faulty[0]]
                location = f"{text[faulty[0]]}:{number}"
                if split != "train" or out is None:
                    raise UserError(_described(fault, detail), location, _TODO.get(fault, _CORRECT))
                report.drop(fault, _described(location, detail))
                report.mark_unread(number)
                continue
            source, target = (row.rstrip(b"\n") for row in rows)
            report.kept += 1
            report.longest = max(report.longest, *(len(row.split()) for row in rows))
            report.decomposed += sum(not _is_composed(row) for row in (source, target))
            if out:  # text as published is in Moses' tokens, which scores undo
                for line in (source.decode(), target.decode()):
                    report.escaped += bool(ESCAPE.search(line))
                    if other := _OTHER_SPACE.search(line):
                        report.spaced += 1
                        report.first_spaced = report.first_spaced or other[0]
            for path, row in zip(text, (source, target), strict=True):
                report.count_encodings(row.decode("utf-8"), f"{path}:{number}")
            report.copies += source.strip() == target.strip() != b""
            pair = source.strip() + b"\n" + target.strip()
            if split == "train":
                for held in held_out.pop(pair, []):
                    held.in_training_text += 1
            else:
                held_out.setdefault(pair, []).append(report)
            for output, row in zip(outputs, (source, target), strict=False):
                output.write(row + b"\n")
    if not report.read:
        raise UserError(f"the {split} set has no sentence pair", text[0], "add at least one pair")
    if out and report.copies == report.kept > 0:
        problem = f"is equal to {text[0]}, so there is nothing to translate"
        raise UserError(problem, text[1], "give the translation")
    return report


def _is_composed(row: bytes) -> bool:
    """Return whether each letter with an accent is one character, if there is such a character."""
    return unicodedata.is_normalized("NFC", row.decode("utf-8", "replace"))


def _described(problem: str, detail: str) -> str:
    return f"{problem} ({detail})" if detail else problem


def check_losses(reports: Mapping[str, SetReport], allowed: float) -> None:
    """Print the report and raise UserError if more than the share ``allowed`` of a set is lost."""
    for split, report in reports.items():
        dropped = sum(report.dropped.values())
        if dropped <= allowed * report.read:
            continue
        print(*report_lines(reports), sep="\n", flush=True)
        reason, count = max(report.dropped.items(), key=lambda item: item[1])
        share = dropped / report.read
        raise UserError(
            f"{dropped:,} of {report.read:,} sentence pairs ({share:.0%}) are faulty and would be "
            f"dropped, more than --allow-loss {allowed:g}; most frequent fault: {reason} "
            f"({count:,} pairs, first at {report.first[reason]})",
            f"set {split}",
            f"{_TODO.get(reason, 'correct the text')}, or give --allow-loss {share + 0.005:.2f}",
        )


def report_lines(reports: Mapping[str, SetReport]) -> Iterator[str]:
    """Yield a table of all sets, and remarks about each."""
    rows = [
        {
            "set": split,
            "pairs read": f"{report.read:,}",
            "kept": f"{report.kept:,}",
            "dropped": ", ".join(f"{n:,} {reason}" for reason, n in report.dropped.items()) or "0",
            "longest line": f"{report.longest:,} words",
            "tokens": f"{report.tokens:,}" if report.tokens else "-",
            **({"documents": f"{report.documents:,}"} if report.documents else {}),
        }
        for split, report in reports.items()
    ]
    yield tabulate(rows, headers="keys", disable_numparse=True)
    for split, report in reports.items():
        for remarks in (pair_remarks, subword_remarks, token_remarks, character_remarks):
            yield from remarks(split, report)


def pair_remarks(split: str, report: SetReport) -> Iterator[str]:
    """Yield remarks about whole pairs of a set."""
    if report.in_training_text:
        yield (
            f"warning: {report.in_training_text:,} of {report.read:,} pairs of the set {split} "
            "are also in the training text, so that scores on this set are too high"
        )
    if report.shortened:
        yield (
            f"{report.shortened:,} of {report.documents:,} documents of the set {split} have "
            "fewer sentences than you asked for: with one more they would be too long"
        )


def subword_remarks(split: str, report: SetReport) -> Iterator[str]:
    """Yield remarks about lines that models cannot write as they are."""
    if report.altered:
        yield (
            f"warning: {report.altered:,} of {2 * report.kept:,} lines of the set {split} do "
            "not come back from their subwords: a perfect translation of them scores less than "
            f"100; the first is {report.first_altered[:60]!r}"
        )
    if report.unknown:
        lines = 2 * (report.documents or report.kept)
        yield (
            f"warning: {report.unknown:,} of {lines:,} lines of the set {split} have subwords "
            "that the dictionary lacks, which models read and write as <unk>: a perfect "
            f"translation of them scores less than 100; the first is {report.first_unknown!r}"
        )
    if report.symbols:
        yield (
            f"warning: {report.symbols:,} of {report.read:,} pairs of the set {split} have "
            "<s>, <pad>, </s> or <unk>, which fairseq reads as its own symbols"
        )


def token_remarks(split: str, report: SetReport) -> Iterator[str]:
    """Yield remarks about a set that was tokenised, or that should have been."""
    lines = f"of {2 * report.kept:,} lines of the set {split}"
    if report.escaped > max(2, report.kept // 50):
        yield (
            f"warning: {report.escaped:,} {lines} have escapes of Moses, HTML or the Penn Treebank "
            "(&apos;, &#39;, @-@, -LRB-): translations will also have them, and scores will count "
            "them as words; give text that is not tokenised or escaped"
        )
    if report.detached > report.kept // 4:
        yield (
            f"warning: {report.detached:,} {lines} have a full stop, a comma or another mark apart "
            "from its word, as tokens do: translations will also be tokens, and scores are not "
            "those of ordinary text; detokenise the text, or give --subwords subword_nmt"
        )
    if report.attached > report.kept:
        yield (
            f"warning: {report.attached:,} {lines} end in a word with its mark, as text that is "
            "not tokenised does: subword_nmt is for tokens, and scores count what stands between "
            "blanks; tokenise the text, or use sentencepiece"
        )


def character_remarks(split: str, report: SetReport) -> Iterator[str]:
    """Yield remarks about characters that other programs have changed."""
    lines = f"of {2 * report.kept:,} lines of the set {split}"
    if report.decomposed:
        yield (
            f"warning: {report.decomposed:,} {lines} have letters separate from their accents (not "
            "in Unicode's form NFC), so that one word may have two spellings; convert the text, "
            "for example with uconv -x any-nfc"
        )
    if report.spaced:
        yield (
            f"{report.spaced:,} {lines} have white space other than blanks (the first is "
            f"{report.first_spaced!a}): models read and write a blank in its place, and scores "
            "count the two as equal"
        )
    if report.misread:
        yield (
            f"warning: {report.misread:,} {lines} have UTF-8 that was read in another encoding "
            f"(Ã¤ for ä), first at {report.first_misread}: models learn to write that; make the "
            "text again from its source, or repair it (ftfy.fix_text of the package ftfy)"
        )
    if report.replaced:
        yield (
            f"warning: {report.replaced:,} {lines} have U+FFFD, the sign of an unreadable "
            f"character, first at {report.first_replaced}: make the text again from its source, or "
            "remove the lines"
        )
