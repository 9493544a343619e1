"""Check that the binarised files of a set are complete: fairseq skips a part that lacks a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from collab_common.binarised import sentences_in
from collab_common.errors import UserError
from collab_common.files import lines_of

#: The first bytes of indexes of fairseq's other forms (``--dataset-impl``), which are not checked.
_OTHER_FORMS = (b"TNTIDX\0\0", b"HUFFIDX\0\0")
_KINDS = ("idx", "bin")


def check_files(task: Any, data: str, subset: str, is_combined: bool, is_trained: bool) -> None:
    """Raise UserError if a file of the set is missing or cut off, or its sides differ in length.

    Only the tasks of translation and language models are checked: others name files differently.

    Args:
        data: the set's folder, or folders joined by colons.
        is_combined: whether ``train1``, ``train2``, ... are parts of the set ``train``.
        is_trained: whether the set needs a target side; only a source is needed to translate.
    """
    pairs, sides = [""], [""]
    if isinstance(task, TranslationTask):
        langs = [task.cfg.source_lang, task.cfg.target_lang]
        pairs = [f".{'-'.join(order)}" for order in (langs, langs[::-1])]
        sides = [f".{lang}" for lang in langs]
    elif not isinstance(task, LanguageModelingTask):
        return
    check_dictionaries_agree(data)
    for folder in map(Path, utils.split_paths(data)):
        parts = [*_parts(folder, subset, pairs, sides, is_combined)]
        needs_target = is_trained or any(_files(folder, part, sides[-1]) for part in parts)
        for part in parts:
            _check_part(folder, part, sides if needs_target else sides[:1])


def check_dictionaries_agree(data: str) -> None:
    """Raise UserError if folders joined by colons have numbers of different words.

    fairseq reads the dictionaries of the first folder, and takes the numbers in the others for
    its words.
    """
    first, *others = map(Path, utils.split_paths(data))
    for path in sorted(first.glob("dict*.txt")) if others else ():
        for other in (folder / path.name for folder in others):
            if other.is_file() and _words(other) != _words(path):
                todo = "prepare it with the first folder's (data prepare --like, --srcdict)"
                raise UserError(f"differs from {path}, by which it would be read", other, todo)


def _words(dictionary: Path) -> list[str]:
    """The words of a dictionary in their order, without how often they occur."""
    return [line.rpartition(" ")[0] for line in lines_of(dictionary)]


def _files(folder: Path, part: str, side: str) -> list[Path]:
    """The files of a side that are there."""
    paths = (folder / f"{part}{side}.{kind}" for kind in _KINDS)
    return [path for path in paths if path.is_file()]


def _parts(
    folder: Path, subset: str, pairs: Sequence[str], sides: Sequence[str], is_combined: bool
) -> Iterator[str]:
    """The parts of a set that have any file; fairseq reads them up to the first without one."""
    for number in count() if is_combined else (0,):
        names = [f"{subset}{number or ''}{pair}" for pair in pairs]
        found = [name for name in names if any(_files(folder, name, side) for side in sides)]
        if not found:
            return
        yield from found


def _check_part(folder: Path, part: str, sides: Sequence[str]) -> None:
    """Check the files of a part, by name: ``train1.en-de``."""
    numbers = []
    for side in sides:
        for kind in _KINDS:
            path = folder / f"{part}{side}.{kind}"
            if not path.is_file():
                todo = "binarise both sides again, or remove the other files of this set"
                raise UserError(f"there is no {path.name}", folder, todo)
        index = folder / f"{part}{side}.idx"
        with index.open("rb") as stream:
            if stream.read(8) in _OTHER_FORMS:
                return
        numbers.append(sentences_in(index))
    if len({*numbers}) > 1:
        problem = f"has {numbers[0]:,} sentences, but {numbers[1]:,} translations"
        raise UserError(problem, folder / part, "binarise both sides again")
