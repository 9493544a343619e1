"""Translations of a run, of another system, or of fairseq-generate, with their references.

A file of translations is either plain text, one sentence per line in the order of the corpus, or
what ``fairseq-generate --remove-bpe`` prints, of each sentence in any order:

    S-17<tab>source    T-17<tab>reference, in fairseq's tokens; and further lines
    D-17<tab>-0.31<tab>hypothesis after --tokenizer and --bpe are undone; the best has the highest
                       score
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from collab_common import BREAK
from collab_common.errors import UserError
from collab_common.files import lines_of
from collab_common.folder import manifest
from collab_common.progress import say
from collab_lab.runs.pairing import GIVE_REFERENCE, check_lines, letter_runs
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run, data_folder
from collab_lab.runs.writing import marks_apart, say_if_written_otherwise

_PRINTED = re.compile(r"[STHDPAIE]-\d+\t")
_SOURCE = re.compile(r"S-\d+\t")
_TARGET = re.compile(r"T-(\d+)\t(.*)")
_STARTED = re.compile(r"'prefix_size': [1-9]|'score_reference': True")
_CONSTRAINED = re.compile(r"C-\d+\t|.*'constraints': '")
_SCORES = re.compile(r"P-\d+\t")
#: The limit of fairseq's search, ``a x + b`` tokens for a source of x, in the options that it logs.
_LIMITS = re.compile(r"'max_len_a': ([\d.]+).*'max_len_b': (\d+)")
#: Shorter texts, such as glossaries, have many lines of the greatest length.
SHORTEST_LIMIT = 20
#: The limit by default.
LIMIT = (0.0, 200)
_BEST = re.compile(r"D-(\d+)\t([-+]?(?:[\d.]+(?:e-?\d+)?|inf|nan))\t?(.*)")


@dataclass(frozen=True)
class System:
    """Translations of a set, with the record of their run (None if no run made them).

    Breaks between the sentences of documents are left out, because they are not words.

    Attributes:
        of_tokens: whether the text is already tokenised, so that BLEU must not tokenise it.
    """

    path: Path
    hypotheses: list[str]
    references: list[str]
    record: Record | None = None
    of_tokens: bool = False


def read_system(path: Path, reference: Path | None = None) -> System:
    """Read a finished run, or a file of translations with its ``reference``."""
    if not path.is_dir():
        if reference is None:
            todo = "give its reference text (--reference)"
            raise UserError("is not a run", where=path, todo=todo)
        text = _aligned(path, reference)
        if not (of_tokens := _is_of_tokens(reference)):
            marks_apart(text[1], reference)
        return System(path, *text, of_tokens=of_tokens)
    run = Run(path)
    record = _translated(run)
    hypotheses = path / (record.hypotheses or run.translations.name)
    reference = reference or data_folder(run.config()) / str(record.reference)
    of_tokens = "tok:none" in (record.bleu_signature or "")
    return System(path, *_aligned(hypotheses, reference), record, of_tokens)


def _is_of_tokens(reference: Path) -> bool:
    """Whether a reference is the ``raw/`` text of a data folder in somebody's own tokens."""
    folder = reference.resolve().parent
    form = manifest(folder.parent).get("form") if folder.name == "raw" else None
    return form is not None and not form["moses"]


def _translated(run: Run) -> Record:
    record = run.record()
    if record is None:
        todo = f"give a run that has a {run.score_file.name}, or a file of translations"
        raise UserError(f"not a finished run: {run.state()}", run.folder, todo)
    if record.task != "translation":
        raise UserError("is a language model", run.folder, "give a run that translates")
    return record


def _aligned(translations: Path, reference: Path) -> tuple[list[str], list[str]]:
    lines, references = read_lines(translations), read_lines(reference)
    hypotheses = hypotheses_in(lines, translations)
    if len(hypotheses) != len(references):
        problem = f"{len(hypotheses)} hypotheses, but {len(references)} sentences in {reference}"
        raise UserError(problem, translations, GIVE_REFERENCE)
    targets = {int(match[1]): match[2] for match in map(_TARGET.fullmatch, lines) if match}
    if targets:
        check_reference(targets, references, translations, reference)
    else:  # plain text does not say of which references it is
        check_lines(hypotheses, references, translations, reference)
    hypotheses, references, breaks = without_breaks(hypotheses, references)
    if breaks is not None:
        say(f"{translations}: {breaks}")
    say_if_written_otherwise(hypotheses, references, translations, reference)
    return hypotheses, references


class Breaks(NamedTuple):
    """The number of breaks between the sentences of documents.

    Attributes:
        missing, extra: breaks that translations lack or have too many, summed over documents.
    """

    wanted: int
    missing: int
    extra: int

    def __str__(self) -> str:
        found = f"of {self.wanted} breaks between sentences, {self.missing} are missing"
        return f"{found}; {self.extra} are too many; no score counts them as words"


def without_breaks(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[str], Breaks | None]:
    """Translations and references without the breaks of documents; None if neither has any."""
    counts = [(ours.count(BREAK), theirs.count(BREAK))
              for ours, theirs in zip(hypotheses, references, strict=True)]  # fmt: skip
    if not any(map(any, counts)):
        return [*hypotheses], [*references], None
    missing = sum(max(0, theirs - ours) for ours, theirs in counts)
    extra = sum(max(0, ours - theirs) for ours, theirs in counts)
    # Other white space stays: references are then equal for every system.
    plain = [[re.sub(f"( *{BREAK} *)+", " ", line).strip(" ") for line in side]
             for side in (hypotheses, references)]  # fmt: skip
    return *plain, Breaks(sum(theirs for _, theirs in counts), missing, extra)  # type: ignore[return-value]


def check_reference(
    targets: Mapping[int, str],
    references: Sequence[str],
    translations: Path,
    reference: Path,
    todo: str = GIVE_REFERENCE,
) -> None:
    """Raise UserError if the reference is not the text of the translated data's target side.

    The target side consists of tokens: subwords, Moses tokens or words, which may be lower-cased or
    unknown.  So only letters and digits are compared, in sequences of :data:`.RUN`.  The
    reference's line must contain half of those of the target's line; one line in a hundred may
    differ, for example because of rules for numbers.

    Args:
        targets: lines of the binarised data, by number.
        translations: file with the translations of this data, for the message.
    """
    differing = []
    for number, target in targets.items():
        runs = letter_runs(target)
        if 2 * len(runs & letter_runs(references[number])) < len(runs):
            differing.append(number)
    if len(differing) > len(targets) // 100:
        first = min(differing)
        problem = (
            f"is not the reference of {translations}: its line {first + 1} is "
            f"{references[first]!r}, the translated set has {targets[first]!r} "
            f"({len(differing)} of {len(targets)} lines differ)"
        )
        raise UserError(problem, reference, todo)


def hypotheses_in(lines: list[str], path: Path) -> list[str]:
    """The best translation of every sentence, in the order of the corpus.

    Args:
        lines: those of the file, which are read once: it may be a pipe.
    """
    if not any(map(_PRINTED.match, lines)):
        return lines
    if any(map(_STARTED.search, lines)):  # the log of fairseq-generate, which has its options
        known = "--prefix-size or --score-reference"
        say(f"warning: {path} is of {known}: the model was given words of the reference")
    if any(map(_CONSTRAINED.match, lines)):  # fairseq-interactive prints them
        say(f"warning: {path} is of --constraints: the model was given words of its translations")
    sources = Counter(line.partition("\t")[0] for line in lines if _SOURCE.match(line))
    if twice := next((name for name, number in sources.items() if number > 1), None):
        todo = "give the output of one fairseq-generate"
        raise UserError(f"has two outputs of sentence {twice.removeprefix('S-')}", path, todo)
    best, scores = dict[int, str](), dict[int, float]()
    number = -1
    for match in filter(None, map(_BEST.fullmatch, lines)):
        before, number, score = number, int(match[1]), float(match[2])
        if number in best and number != before:
            todo = "give the output of one fairseq-generate"
            raise UserError(f"has sentence {number} in two places", path, todo)
        if number not in best or score > scores[number]:  # lines may have been sorted
            best[number], scores[number] = match[3], score
    if not best:
        problem = "no hypotheses (lines that start with D-) in it"
        raise UserError(problem, path, "give the output of fairseq-generate, run without --quiet")
    if missing := set(range(max(best) + 1)) - best.keys():
        problem = f"hypothesis {min(missing)} is missing ({len(missing)} of {max(best) + 1})"
        todo = "generate the whole set (fairseq-generate --skip-invalid-size-inputs-valid-test "
        raise UserError(problem, path, f"{todo}drops sentences)")
    say_if_cut(lines, path)
    return [best[number] for number in sorted(best)]


def say_if_cut(lines: Sequence[str], path: Path) -> None:
    """Say on standard error if translations end at the limit of the search.

    Scores of tokens show how long they are; with ``</s>`` they have one score more.  If the limit
    grows with the source, its subwords may be joined, so that its words are counted: then many
    translations must be longer than that.  Without fairseq's log, which goes to standard error, a
    length that no translation exceeds and several have is the limit.
    """
    found = next(filter(None, map(_LIMITS.search, lines)), None)
    a, b = (float(found[1]), int(found[2])) if found else LIMIT
    scored = [(line.partition("\t")[0][2:], line.count(" ")) for line in lines
              if _SCORES.match(line)]  # fmt: skip
    words = {line.partition("\t")[0][2:]: len(line.split()) for line in lines
             if _SOURCE.match(line)}  # fmt: skip
    if found is None:
        longest = max((tokens for _, tokens in scored), default=0)
        several = sum(tokens == longest for _, tokens in scored) > max(2, len(scored) // 20)
        b = longest if several and longest >= SHORTEST_LIMIT else b
    if a == 0:
        cut = {sentence for sentence, tokens in scored if tokens == b}
        # Longer ones show that the search had another limit.
        cut = cut if max((tokens for _, tokens in scored), default=0) == b else set()
        limit = f"at {b} tokens, the limit of the search,"
    else:
        cut = {one for one, tokens in scored if tokens >= a * words.get(one, tokens) + b}
        cut = cut if len(cut) > max(2, len(words) // 100) else set()
        limit = f"near the limit of the search, {a:g} x + {b} tokens, or beyond,"
    if cut:
        say(
            f"warning: {len(cut)} translations in {path} end {limit} and may be cut off: give "
            "fairseq-generate larger --max-len-a and --max-len-b (2 and 20 by default here)"
        )


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text; UserError if it is not UTF-8.

    A byte order mark and carriage returns at ends of lines, which come from Windows, are removed.
    """
    lines = [line.removesuffix("\r") for line in lines_of(path)]
    return [line.removeprefix("\ufeff") for line in lines[:1]] + lines[1:]
