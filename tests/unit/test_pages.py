"""Tables and figures of pages are what the data of results/ make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import REPOSITORY
from documents import FENCED, RESULTS, links
from matplotlib.figure import Figure

from collab_common.errors import UserError
from collab_lab.results.figure import saved
from results import pages, sentences
from results.data import gains, signed
from results.figures import FIGURES
from results.tables import TABLES

INDEX = REPOSITORY / "results" / "README.md"
#: The most bytes of a page, or of all pages of a folder.
BYTES = {
    "README.md": 7_500,
    "docs/choose.md": 6_000,
    "docs/commands.md": 12_000,
    "docs/*.md": 60_000,
} | {f"results/{page.name}": 10_000 for page in RESULTS}
BYTES["results/long.md"] = 8_000


@pytest.mark.parametrize(("pages", "most"), BYTES.items())
def test_pages_are_short(pages: str, most: int) -> None:
    assert 0 < sum(page.stat().st_size for page in REPOSITORY.glob(pages)) <= most


# ---- how many numbers a sentence has -------------------------------------------------------------

#: Pages whose sentences have at most four numbers, and those that are not held to it yet.
COUNTED = [*RESULTS, REPOSITORY / "README.md", REPOSITORY / "docs" / "choose.md"]
NOT_YET = {REPOSITORY / "README.md"}
#: Code, targets of links; papers, dates, commits; years of papers; H100, n = 3, 16-bit.
NO_NUMBERS = re.compile(
    r"`[^`]*`|\]\([^)]*\)|https?://\S+|\b\d{4}\.\d{4,5}\b|\b\d{4}-\d\d-\d\d\b"
    r"|\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,}\b|\b(al\.|[A-Z]\w+) (19|20)\d\d\b"
    r"|\b[A-Za-z] ?= ?\d[\d.]*|\b\d+-bit\b|\b[A-Z][A-Za-z]*\d+[A-Za-z]*\b"
)
#: An estimate with its interval is one number.
INTERVAL = re.compile(
    r"([-+\u2212]?\d[\d.,]*%?) \([-+\u2212]?\d[\d.,]*%? to [-+\u2212]?\d[\d.,]*%?"
)
END = re.compile(r"(?<!al\.)(?<=[.!?:;])\**\)?\*? +(?=[A-Z*_`\"(+\u2212\d])|(?<=[.!?])\*\* ")


def sentences_of(text: str) -> Iterator[str]:
    """Sentences, and parts of them that end in a colon or semicolon; no tables, no headings."""
    text = re.sub(r"<!--.*?-->", "", FENCED.sub("", text), flags=re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#"))]
    for block in re.split(r"\n\s*\n|\n(?=[-*] |\d\. )", "\n".join(lines)):
        yield from END.split(re.sub(r"^([-*]|\d\.) ", "", " ".join(block.split())))


def numbers_in(sentence: str | None) -> list[str]:
    plain = INTERVAL.sub(r"\1 (", NO_NUMBERS.sub("", sentence or ""))
    return re.findall(r"(?<![\w.])[-+\u2212\u00b1]?\d[\d.,]*%?", plain)


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        ("It costs 0.1 (0.0 to 0.2) bits at d = 128, and 3% (n = 3).", 2),
        ("See Michel et al. 2019, commit 1fcdc7d of 2026-11-25, and `--beam 5` on an H100.", 0),
        ("From 1 to 2, 3,000 and \u22124.", 4),
    ],
)
def test_numbers_are_counted(sentence: str, number: int) -> None:
    assert len(numbers_in(sentence)) == number


@pytest.mark.parametrize("page", COUNTED, ids=lambda page: page.name)
def test_sentences_have_few_numbers(page: Path) -> None:
    found = [one for one in sentences_of(page.read_text()) if len(numbers_in(one)) > 4]
    assert not found or page in NOT_YET


@pytest.mark.parametrize(
    "page", [one for one in RESULTS if one != INDEX], ids=lambda page: page.name
)
def test_the_headline_is_one_sentence(page: Path) -> None:
    """Of two numbers at most; it follows the title."""
    _, headline, *_ = page.read_text().split("\n\n")
    bold = headline.split("**")
    assert bold[0] == ""
    assert bold[1].endswith(".") or bold[2].lstrip().startswith("(")
    assert len([*sentences_of(bold[1])]) == 1
    assert len(numbers_in(bold[1])) <= 2


# ---- tables, figures, sentences ------------------------------------------------------------------


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


def test_numbers_in_sentences_are_those_of_the_data() -> None:
    assert not sentences.wrong(), "`python results/pages.py --check` has the right ones"


@pytest.mark.parametrize("page", sentences.SENTENCES)
def test_a_wrong_number_in_a_sentence_is_found(page: str, tmp_path: Path) -> None:
    """Each number of each sentence is compared; the message has the right one."""
    for name in sentences.SENTENCES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(signed((REPOSITORY / name).read_text()))
    right = (tmp_path / page).read_text()
    for text in map(signed, sentences.SENTENCES[page]()):
        number = list(re.finditer(r"\d+\.\d+", text))[-1]
        changed = text[: number.start()] + "9.87" + text[number.end() :]
        (tmp_path / page).write_text(right.replace(text, changed))
        assert (tmp_path / page, text) in sentences.wrong(tmp_path)


def test_a_wrong_number_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sentences, "SENTENCES", {"README.md": lambda: ["costs 9.876 bits"]})
    monkeypatch.setattr(pages, "FIGURES", {})
    assert pages.main(["--check"]) == 1
    assert "9.876" in capsys.readouterr().out


def test_every_table_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in [REPOSITORY / "README.md", *RESULTS])
    assert all(f"<!-- table: {name} -->" in text for name in TABLES)


def test_a_number_that_was_typed_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a figure that is not there; prose is left alone."""
    monkeypatch.setattr(pages, "FIGURES", {"decide.svg": Figure})
    (tmp_path / "results").mkdir()
    page = tmp_path / "README.md"
    right = f"-1 <!-- table: refit_ladder -->\n\n{TABLES['refit_ladder']()}\n\n<!-- end --> -1\n"
    page.write_text(right)
    assert page not in pages.stale(tmp_path)
    assert tmp_path / "results" / "decide.svg" in pages.stale(tmp_path)
    page.write_text(right.replace("0.", "1.", 1))
    assert pages.stale(tmp_path)[page].decode() == right


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: nothing -->\n\n<!-- end -->",
        "<!-- table: cache_shares -->\n\n| a |",
        "<!-- table: cache_shares -->\n\n<!-- table: refit_ladder -->\n\n<!-- end -->",
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
