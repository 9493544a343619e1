"""Which files of a text folder are which split: train, valid, test, test1, test2, ..."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collab_common.errors import UserError
from data_prep.parallel_text import Languages, Pair

#: fairseq's name of each split, and the stem of its text.
Splits = Mapping[str, str]


def find_files(folder: Path, splits: Splits | None, languages: Languages) -> dict[str, Pair]:
    """Source and target file of each split, in fairseq's order.

    `splits` maps the splits' names to the files' stems; None looks for the usual ones.
    """
    usual = {"train": "train", "valid": "valid", "test": "test"}
    usual |= {f"test{n}": f"test.{n}" for n in range(1, 100)}
    splits = splits or {
        name: stem
        for name, stem in usual.items()
        if any(_candidates(folder, stem, lang) for lang in languages)
    }
    for name in ("train", "valid"):
        if name not in splits:
            raise UserError(
                f"no {name} set: looked for {name}.{languages[0]}",
                folder,
                "name it so",
            )
    tests = [name for name in splits if name.startswith("test")]
    # fairseq numbers them by their order: a gap would give a set another one's name
    expected = [f"test{n or ''}" for n in range(len(tests))]
    if set(tests) != set(expected):
        what = f"the test sets are named {', '.join(tests)}"
        raise UserError(what, folder, f"name them {', '.join(expected)}")
    source, target = languages
    return {
        name: (text_file(folder, splits[name], source), text_file(folder, splits[name], target))
        for name in ("train", "valid", *expected)
    }


def _candidates(folder: Path, stem: str, lang: str) -> list[Path]:
    names = (f"{stem}.{lang}", f"{stem}.{lang}.gz")
    return [folder / name for name in names if (folder / name).is_file()]


def text_file(folder: Path, stem: str, lang: str) -> Path:
    """The file STEM.LANG or STEM.LANG.gz; UserError unless there is exactly one."""
    found = _candidates(folder, stem, lang)
    if not found:
        raise UserError("no such file (nor with .gz)", folder / f"{stem}.{lang}")
    if len(found) > 1:
        raise UserError("is there both plain and as .gz", found[0], "remove one of them")
    return found[0]
