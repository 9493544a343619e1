"""Tatoeba: how the pairs are split."""

from __future__ import annotations

from pathlib import Path

from data_prep.tatoeba import split_pairs
from data_prep.work import SPLITS, Work

LANGUAGES = ("en", "de")


def split(folder: Path, pairs: list[tuple[str, str]]) -> tuple[dict[str, int], dict[str, list]]:
    """The counts, and the pairs of each set."""
    work = Work(folder / "original", folder / "text", folder / "scratch", LANGUAGES, 1)
    for path in (work.original, work.folder, work.scratch):
        path.mkdir()
    for side, path in enumerate(work.originals("all")):
        path.write_text("".join(pair[side] + "\n" for pair in pairs))
    counts = split_pairs(work)["split"]
    sets = {
        name: list(
            zip(*(path.read_text().splitlines() for path in work.scratches(name)), strict=True)
        )
        for name in SPLITS
    }
    return counts, sets


def test_every_pair_goes_to_one_set(tmp_path: Path) -> None:
    pairs = [(f"This is {i}.", f"Das ist {i}.") for i in range(3000)]
    counts, sets = split(tmp_path, pairs)
    assert sorted(pair for found in sets.values() for pair in found) == sorted(pairs)
    assert counts["read"] == 3000 == sum(counts[name] for name in SPLITS)
    assert all(5 < counts[name] < 50 for name in ("valid", "test")), "one in 150"


def test_no_sentence_of_valid_or_test_stands_in_train(tmp_path: Path) -> None:
    """Neither in English nor in German; duplicates and empty lines go."""
    pairs = [(f"Yes {i}.", "Ja.") for i in range(1000)]
    pairs += [(f"This is {i}.", f"Das ist {i}.") for i in range(1000)]
    pairs += [(f"This is {i}.", f"Dies ist {i}.") for i in range(1000)]
    counts, sets = split(tmp_path, [*pairs, *pairs[1000:1010], ("Empty", ""), ("", "Leer")])
    assert counts["empty"] == 2
    assert counts["duplicate"] == 10
    assert counts["held_out"] > 900, "a German sentence that is also in another set"
    held_out = {sentence for name in ("valid", "test") for pair in sets[name] for sentence in pair}
    assert "Ja." in held_out
    assert not [pair for pair in sets["train"] if held_out & set(pair)]


def test_order_and_direction_change_nothing(tmp_path: Path) -> None:
    pairs = [(f"This is {i}.", f"Das ist {i}.") for i in range(2000)]
    sets = []
    for number, given in enumerate((pairs, pairs[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        sets.append({name: sorted(found) for name, found in split(folder, given)[1].items()})
    assert sets[0] == sets[1]
