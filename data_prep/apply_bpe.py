"""Text in subword units, by codes of byte-pair encoding, as subword-nmt's apply_bpe writes it.

Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units":

    codes        merges in their order (`data_prep.bpe`): a word is the units that they leave
    vocabulary   how often each unit is in the training text of one language. A unit that is rarer
                 than a threshold is taken apart again, as its merge had put it together, until
                 all its parts are frequent or single characters: a unit that is common in the
                 one language does not come up, hardly trained, in the other (its section 5.1)
    glossaries   regular expressions: what one matches of a word is a unit, whatever the codes say

The program's own code does it, each word once; what became of it is remembered.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from subword_nmt.apply_bpe import BPE, read_vocabulary

from collab_common.errors import UserError
from collab_common.folder import Json
from data_prep.bpe import VERSION, count_text, learn
from data_prep.parallel_text import Pair, lines_of, write_lines
from data_prep.streams import parallel_lines, words_to_remember

SEPARATOR = "@@"
CODES = "code"  # the file's name, as in fairseq's scripts
_FASTBPE = re.compile(r"\S+ \S+ \d+")  # a line of codes of fastBPE: a merge, and its count


@dataclass(frozen=True)
class BpeOptions:
    """Beside the codes: subword-nmt's --vocabulary-threshold and --glossaries.

    Args:
        threshold: units that are in the training text of their language less often are taken apart
        glossaries: regular expressions without groups that capture
    """

    threshold: int | None = None
    glossaries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for glossary in self.glossaries:
            _check_glossary(glossary)

    def as_json(self) -> Json:
        """For a manifest; nothing where there is none."""
        told: Json = {}
        if self.threshold is not None:
            told["vocabulary_threshold"] = self.threshold
        if self.glossaries:
            told["glossaries"] = list(self.glossaries)
        return told

    @staticmethod
    def from_json(told: Json) -> BpeOptions:
        """Of a manifest, or of a command's options."""
        return BpeOptions(told.get("vocabulary_threshold"), tuple(told.get("glossaries", ())))


CODES_ALONE = BpeOptions()


def _check_glossary(glossary: str) -> None:
    """Raises UserError for what subword-nmt would end in a traceback, or double the text with."""
    where = f"--glossaries {glossary!r}"
    try:
        pattern = re.compile(glossary)
        re.compile(f"^({glossary})$")  # as the program has it
    except re.error as error:
        raise UserError(f"no regular expression ({error})", where) from None
    if pattern.groups:
        raise UserError("a group would be written twice", where, "write (?:...) instead of (...)")
    if pattern.search("") is not None:
        raise UserError("matches where nothing stands", where, "write + instead of *")


@dataclass(frozen=True)
class JointBpe:
    """Codes of both sides of a text: `folder`/code and, with a threshold, `folder`/vocab.LANG."""

    folder: Path
    languages: tuple[str, str]
    options: BpeOptions
    jobs: int

    def learn(self, texts: Pair, merges: int) -> Json:
        """Learns on both sides, in this order, and writes the files; counts of them.

        They are as subword-nmt's learn_joint_bpe_and_vocab writes them: vocabularies have the units
        that the codes alone leave.
        """
        codes = self.folder / CODES
        counts: Json = dict(learn(list(texts), merges, codes, jobs=self.jobs))
        if self.options.threshold is not None:
            for text, lang in zip(texts, self.languages, strict=True):
                found = vocabulary(codes, text, jobs=self.jobs)
                ranked = sorted(found.items(), key=lambda unit: unit[1], reverse=True)
                path = vocabulary_file(codes, lang)
                write_lines(path, (f"{unit} {count}" for unit, count in ranked))
                counts[path.name] = len(ranked)
        return counts

    def apply(self, sources: Pair, targets: Pair) -> Json:
        """Segments both sides; "read" lines, and counts by the name of each target."""
        codes, options = self.folder / CODES, self.options
        counts: Json = {}
        for lang, source, target in zip(self.languages, sources, targets, strict=True):
            counts[target.name] = apply(codes, source, target, lang, options, jobs=self.jobs)
            counts["read"] = counts[target.name]["lines"]
        return counts


def vocabulary_file(codes: Path, lang: str) -> Path:
    """Where the vocabulary of a language is, beside the codes."""
    return codes.with_name(f"vocab.{lang}")


def vocabulary(codes: Path, text: Path, *, jobs: int = 1) -> Counter[str]:
    """How often each unit is in a text once the codes have segmented it, first come first."""
    segmenter = Segmenter(codes)
    found = Counter[str]()
    for word, count in count_text([text], jobs)[1].items():
        for unit in segmenter([word])[0].split(" "):
            found[unit] += count
    return found


def apply(
    codes: Path,
    source: Path,
    target: Path,
    lang: str = "",
    options: BpeOptions = CODES_ALONE,
    *,
    jobs: int = 1,
) -> dict[str, int]:
    """Writes `source` in subword units, all but the last of a word marked with '@@'.

    Blanks at the ends of a line go. Returns "lines" and "tokens" (subwords). Raises UserError for
    codes or a vocabulary that cannot be read, and for a text that cannot, with file, line and byte.

    Args:
        lang: whose vocabulary is looked up, beside the codes, if `options` has a threshold
    """
    segmenter = Segmenter(codes, lang, options, words_to_remember(jobs))
    counts = parallel_lines(source, target, segmenter, jobs)
    return {"lines": counts["lines"], "tokens": counts["tokens"]}


class Segmenter:
    """Segments lines; remembers words, up to a limit."""

    def __init__(
        self,
        codes: Path,
        lang: str = "",
        options: BpeOptions = CODES_ALONE,
        remembered: int = 1 << 17,
    ) -> None:
        self._remembered = remembered
        frequent = None
        if options.threshold is not None:
            frequent = _read_vocabulary(vocabulary_file(codes, lang), options.threshold)
        self._bpe = _read_codes(codes, frequent, options)
        self._known: dict[str, str] = {}

    def __call__(self, lines: list[str]) -> list[str]:
        if len(self._known) > self._remembered:
            self._known.clear()
        return [self.segment(line) for line in lines]

    def segment(self, line: str) -> str:
        known = self._known
        units = []
        for word in line.split(" "):
            found = known.get(word)
            if found is None:
                found = known[word] = " ".join(self._bpe.segment_tokens([word]))
                self._bpe.cache.clear()  # we remember for it
            if found:
                units.append(found)
        return " ".join(units)


def are_codes(path: Path) -> bool:
    """Whether a file starts as codes do, of subword-nmt or of fastBPE."""
    with path.open("rb") as file:
        first = file.readline(1000).decode(errors="replace").strip()
    return first.startswith("#version:") or _FASTBPE.fullmatch(first) is not None


def _read_codes(codes: Path, frequent: set[str] | None, options: BpeOptions) -> BPE:
    """subword-nmt's reader, which would leave the program when something is wrong."""
    todo = "learn them again, or give a file that subword-nmt wrote"
    lines = list(lines_of(codes))
    if lines and _FASTBPE.fullmatch(lines[0].strip()):  # the same merges, without counts
        lines = [VERSION, *(line.strip().rpartition(" ")[0] for line in lines)]
    if not lines or lines[0].strip() != VERSION:
        raise UserError(f"does not start with {VERSION!r}", codes, todo)
    if len(lines) == 1:
        raise UserError("no merges", codes, todo)
    for number, line in enumerate(lines[1:], 2):
        if len(line.strip("\r ").split(" ")) != 2:
            raise UserError("not two symbols with a blank between them", f"{codes}:{number}", todo)
    text = io.StringIO("\n".join(lines))
    return BPE(text, separator=SEPARATOR, vocab=frequent, glossaries=list(options.glossaries))


def _read_vocabulary(path: Path, threshold: int) -> set[str]:
    """The units that are frequent enough: subword-nmt's reader, and no empty set.

    Of an empty one the program thinks that there is none, and takes nothing apart.
    """
    try:
        found: set[str] = read_vocabulary(lines_of(path), threshold)
    except ValueError:
        todo = "make it again, with the codes beside it"
        raise UserError("not a unit and its count on every line", path, todo) from None
    if not found:
        todo = "give a lower --vocabulary-threshold"
        raise UserError(f"no unit occurs {threshold:,} times", path, todo)
    return found
