"""Tables and figures of pages are what the data of results/ make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import REPOSITORY
from documents import PAGES, RESULTS, links
from matplotlib.figure import Figure

from collab_common.errors import UserError
from collab_lab.results.figure import saved
from results import pages
from results.data import gains, load
from results.figures import FIGURES
from results.tables import TABLES
from results.values import VALUES

INDEX = REPOSITORY / "results" / "README.md"
# ---- tables, figures, numbers --------------------------------------------------------------------


def test_tables_are_what_the_data_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FIGURES", {})
    found = [str(path.relative_to(REPOSITORY)) for path in pages.stale()]
    assert not found, "run `python results/pages.py`"


def marks(figure: bytes) -> list[float]:
    """Where the points and the ticks of an SVG are: other matplotlibs write other bytes."""
    return [float(number) for number in re.findall(rb' [xy]="([-.\d]+)"', figure)]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_show_the_data(name: str) -> None:
    drawn = marks((REPOSITORY / "results" / name).read_bytes())
    assert len(drawn) > 20
    assert drawn == pytest.approx(marks(saved(FIGURES[name]())), abs=1), "run results/pages.py"


#: What a row of trainings has besides its scores.
FACTS = ("command", "commit", "seed", "bleu_signature", "chrf_signature", "hardware", "date",
         "data_sha256", "parameters", "valid_bits", "test_bits")  # fmt: skip


@pytest.mark.parametrize(("file", "part"), [("shared_keys", "widths"), ("distil", "rows")])
def test_rows_say_how_they_were_made(file: str, part: str) -> None:
    """Of the tables of key widths and of seconds, with losses on both sets."""
    rows = load(file)[part]
    assert len(rows) > 50
    lost = [(row["seed"], fact) for row in rows for fact in FACTS if row.get(fact) is None]
    assert not lost


def test_what_no_page_shows_is_gone() -> None:
    """No number and no table is computed for nothing."""
    text = "".join(path.read_text() for path in PAGES.values())
    names = {f"{group}.{name}" for group, values in VALUES.items() for name in values()}
    assert not {name for name in names if f"<!--={name}-->" not in text}
    assert not {name for name in TABLES if f"<!-- table: {name} -->" not in text}


def test_a_number_that_was_typed_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a figure that is not there; prose is left alone."""
    monkeypatch.setattr(pages, "FIGURES", {"decide.svg": Figure})
    (tmp_path / "results").mkdir()
    page = tmp_path / "README.md"
    table = f"-1 <!-- table: refit_ladder -->\n\n{TABLES['refit_ladder']()}\n\n<!-- end --> -1\n"
    sentence = f"It costs <!--=shrink.third-->{VALUES['shrink']()['third']}<!--/--> bits.\n"
    for right in (table, sentence):
        page.write_text(right)
        assert page not in pages.stale(tmp_path)
        page.write_text(right.replace("0.", "1.", 1))
        assert pages.stale(tmp_path)[page].decode() == right
    assert tmp_path / "results" / "decide.svg" in pages.stale(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: nothing -->\n\n<!-- end -->",
        "<!-- table: cache_shares -->\n\n| a |",
        "<!-- table: cache_shares -->\n\n<!-- table: refit_ladder -->\n\n<!-- end -->",
        "<!--=shrink.nothing-->1<!--/-->",
        "<!--=nothing.third-->1<!--/-->",
        "<!--=shrink.third-->1",
    ],
)
def test_faulty_marks_are_rejected(text: str) -> None:
    with pytest.raises(UserError):
        pages.updated(text)


def test_runs_are_paired_by_seed() -> None:
    ours = [{"seed": seed, "bleu": bleu} for seed, bleu in ((2, 31.0), (1, 30.0), (4, 99.0))]
    theirs = [{"seed": seed, "bleu": bleu} for seed, bleu in ((1, 31.0), (2, 31.0), (3, 0.0))]
    assert sorted(gains(ours, theirs, "bleu")) == [-1.0, 0.0]
    for sides in ((ours * 2, theirs), (ours, theirs * 2)):
        with pytest.raises(UserError):
            gains(*sides, "bleu")


def test_every_page_is_in_the_index_and_every_file_on_a_page() -> None:
    assert {page.name for page in RESULTS} - {INDEX.name} <= set(links(INDEX))
    linked = {Path(link).name for page in RESULTS for link in links(page)} | {INDEX.name}
    files = {
        path.name for path in INDEX.parent.iterdir() if path.suffix in (".md", ".json", ".svg")
    }
    assert files <= linked
