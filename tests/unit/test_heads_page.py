"""The page of an analysis of heads: its numbers, self-contained, and text that stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from html_pages import Page, check_alone
from matplotlib.colors import to_rgb

from fairseq_collab.analysis.heads import content as file
from fairseq_collab.results.heads import figures, page
from fairseq_collab.results.heads.shown import (
    MEASURES,
    PALETTE,
    SHADES,
    confident,
    labels,
    scale_of,
    shade,
)
from fairseq_collab.results.tables import EN_DASH

RESULTS = Path(__file__).parents[2] / "results"
STORED = sorted(path.name for path in RESULTS.glob("heads_*.json") if "kept" not in path.name)
SITES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
SOURCE = ["▁a", "<b>bold</b>", "</script>", "&amp;", "$x$", '"q"', "</s>"]
TARGET = ["▁ein", "<i>", "</s>"]
#: An analysis that has found nothing.
EMPTY: dict[str, Any] = {
    "version": 1, "checkpoint": "average.pt", "arch": "transformer", "data": "toy",
    "subset": "valid", "sentences": 1014, "source_tokens": 15_000, "commit": "c0ffee",
    "command": "fairseq-collab heads average.pt toy --out heads", "date": "2026-11-21",
    "hardware": "some processor", "versions": {"torch": "2.13.0"},
    "heads": {"encoder": [2, 1], "decoder": [1], "cross": [2]},
}  # fmt: skip


def even(rows: int, columns: int, place: int) -> list[list[float]]:
    """Attention that looks mostly at one place."""
    return [[0.6 if s == place else 0.05 for s in range(columns)] for _ in range(rows)]


def full() -> dict[str, Any]:
    """An analysis with everything in it."""
    number, pairs = {"pairs": 1234}, len(SOURCE)
    return {
        **EMPTY,
        "measures": {
            "confidence": {"encoder": [[0.5, 0.125], [None]], "decoder": [[1]], "cross": None},
            "rare": {"encoder": [[0.25, 0.75], [0.5]]},
            "some_other": {"encoder": [[0.00123, -2], [None]]},
        },
        "offsets": {
            "offsets": [-1, 0, 1],
            "encoder": [[[0.25, 0.5, 0.125], [0.75, 0.5, None]], [[None, None, None]]],
        },
        "rare": {"sentences": 900, "chance": 0.11, "chance_of_two": 0.2},
        "syntax": {
            "trees": "trees.conllu", "sentences": 50, "too_long": 2, "pairs_within_a_unit": 0,
            "relations": {
                "nsubj": {
                    "dependent->head": {**number, "baseline": {"offset": 1, "accuracy": 0.4},
                                        "encoder": [[0.3, 0.5], [0.2]]},
                    "head->dependent": {**number, "baseline": {"offset": -1, "accuracy": 0.4},
                                        "encoder": [[0.1, 0.2], [0.41]]},
                },
                "obj": {"dependent->head": {"pairs": 0, "baseline": None,
                                            "encoder": [[None, None], [None]]}},
            },
        },
        "similarity": {"weights": {"encoder": [[[0, 0.5], [0.5, 0]], [[0]]]}},
        "roles": {
            "encoder": [[["positional -1"], ["syntactic nsubj dependent->head"]],
                        [["rare tokens", "positional +1"]]],
            "decoder": [[[]]], "cross": [[[], []]],
        },
        "examples": [
            {"line": 12, "source": SOURCE, "target": TARGET,
             "weights": {"encoder": [[even(pairs, pairs, 1), even(pairs, pairs, pairs - 1)],
                                     [even(pairs, pairs, 2)]],
                         "cross": [[even(3, pairs, pairs - 1), even(3, pairs, 0)]]}}
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> Page:
    return Page(page.report(full()))


@pytest.mark.parametrize("name", STORED)
def test_every_number_of_a_stored_analysis_is_on_its_page(name: str) -> None:
    found = file.read(RESULTS / name)
    made = Page(page.report(found))
    titles = {found.get("title") for found in made.named("td")}
    for sites in found["measures"].values():
        for layers in filter(None, sites.values()):
            for i, layer in enumerate(layers):
                for j, value in enumerate(layer):
                    assert value is None or f"layer {i}, head {j}: {value}" in titles
    assert made.headings[0] == "Roles"
    assert "Syntax" in made.headings


def test_sections_and_their_links(whole: Page) -> None:
    expected = ["Roles", "Measures", "Confidence", "Rare-token score", "some other", "Positions",
                "Syntax", "Similarity", "Distance of attention weights",
                "Attention on single sentences", "Sentence 12", "Circumstances"]  # fmt: skip
    assert whole.headings == expected
    check_alone(page.report(full()))


def test_parts_that_scroll_have_names_and_can_be_reached(whole: Page) -> None:
    regions = [found.attrib for found in whole.tree.iterfind('.//*[@role="region"]')]
    assert len(regions) > 10
    for region in regions:
        assert region["tabindex"] == "0"
        # The script names the one it fills.
        assert region.get("aria-label") in whole.tables or region["id"] == "chosen"
    assert all(found["scope"] in ("col", "row") for found in whole.named("th"))


def test_numbers_are_those_of_the_file() -> None:
    alone = {**EMPTY, "measures": {"confidence": full()["measures"]["confidence"]}}
    tables = Page(page.report(alone)).tables
    assert tables == {
        SITES["encoder"]: [["layer \\ head", "0", "1"], ["0", "0.50", "0.12"], ["1", EN_DASH, ""]],
        SITES["decoder"]: [["layer \\ head", "0"], ["0", "1.00"]],
    }
    alone["measures"] = {"some_other": full()["measures"]["some_other"]}
    assert Page(page.report(alone)).tables[SITES["encoder"]][1] == ["0", "0.00123", "-2"]


def test_relations_name_the_best_head_beside_the_baseline(whole: Page) -> None:
    assert whole.tables["Relations"][1:] == [
        ["nsubj dependent→head", "1,234", "0.1", "0.50", "0.40", "+1", "+25%", "yes"],
        ["nsubj head→dependent", "1,234", "1.0", "0.41", "0.40", "-1", "+2%", "no"],
        ["obj dependent→head", "0", *[EN_DASH] * 6],
    ]
    assert "50 sentences of trees.conllu; 2 more are too long." in whole.words


def test_positions_roles_and_circumstances(whole: Page) -> None:
    best = whole.tables["encoder self-attention: best position"]
    assert best[1:] == [["0", "0", "-1"], ["1", EN_DASH, ""]]
    shares = whole.tables["Shares of all positions, encoder self-attention"]
    assert shares[2:] == [["0.1", "0.75", "0.50", EN_DASH], ["1.0", *[EN_DASH] * 3]]
    assert "3 of 6 heads have a role. None in decoder self-attention, cross-attention." in (
        whole.words
    )
    assert "900 sentences, where pointing anywhere would score 0.11." in whole.words
    for fact in ("c0ffee", "some processor", "2026-11-21", "torch 2.13.0", "15,000",
                 "fairseq-collab heads average.pt toy --out heads"):  # fmt: skip
        assert fact in whole.words


def test_tokens_are_data(whole: Page) -> None:
    text = page.report(full())
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("</script>") == 2
    script = next(whole.tree.iter("script")).text
    given, [example] = full()["examples"][0], json.loads(script)["examples"]
    assert example["labels"] == {"encoder": [SOURCE, SOURCE], "cross": [TARGET, SOURCE]}
    for site, layers in given["weights"].items():
        thousandths = [
            [[[round(1000 * w) for w in row] for row in head] for head in layer] for layer in layers
        ]
        assert example["weights"][site] == thousandths
    # Without a script: the most confident heads, of words and not of the end of sentence.
    assert whole.tables["encoder self-attention, layer 0, head 0"][0] == ["", *SOURCE]
    assert whole.tables["cross-attention, layer 0, head 1"][1:] == [
        [token, "60", *["5"] * 6] for token in TARGET
    ]


def test_a_head_that_looks_at_the_end_of_sentence_is_not_confident() -> None:
    at_the_end, at_a_word = [[0.0, 1.0], [0.0, 1.0]], [[0.6, 0.4], [0.0, 1.0]]
    assert confident([[at_the_end, at_a_word]], ["a", "</s>"], ["a", "</s>"]) == (0, 1)


def test_decoder_reads_what_it_has_predicted() -> None:
    example = {"source": ["a"], "target": ["x", "y", "</s>"], "weights": {"encoder": []}}
    assert labels(example, "decoder") == (["</s>", "x", "y"], ["</s>", "x", "y"])
    assert labels(example, "cross") == (["x", "y", "</s>"], ["a"])
    of_language_model = {"source": ["v", "x"], "target": ["x", "y"], "weights": {"decoder": []}}
    assert labels(of_language_model, "decoder") == (["v", "x"], ["v", "x"])


@pytest.mark.parametrize("part", [{}, {"measures": {}, "examples": []},
                                  {"syntax": None, "offsets": None, "similarity": None},
                                  {"measures": {"rare": None}},
                                  {"measures": {"rare": {"encoder": [[None]], "decoder": None}}},
                                  {"syntax": {"trees": "t", "sentences": 0, "relations": {}}},
                                  {"similarity": {"weights": {}}}])  # fmt: skip
def test_what_is_missing_leaves_no_heading(part: dict[str, Any], tmp_path: Path) -> None:
    given = {**EMPTY, **part}
    found = Page(page.report(given))
    assert found.headings == ["Circumstances"]
    assert not found.named("script")
    page.write(given, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_a_model_without_roles_is_said_to_have_none() -> None:
    given = {**EMPTY, "roles": {"encoder": [[[]] * 4], "decoder": [], "cross": [[[]] * 3]}}
    found = Page(page.report(given))
    assert (
        "0 of 7 heads have a role. None in encoder self-attention, cross-attention." in found.words
    )
    assert not found.tables
    assert not figures.draw(given)


@pytest.mark.slow
def test_the_same_content_gives_the_same_files(tmp_path: Path) -> None:
    page.write(full(), tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["heads_attention.png", "heads_confidence.png", "heads_rare.png",
                     "heads_roles.png", "heads_some_other.png", "heads_syntax.png",
                     "report.html"]  # fmt: skip
    again = {"report.html": page.report(full()).encode(), **figures.draw(full())}
    assert all((tmp_path / name).read_bytes() == again[name] for name in names)


def test_figures_show_every_number() -> None:
    layers = {"encoder": [[0.123, None], [0.5]]}
    drawn = figures.measure_figure(MEASURES["confidence"], layers)
    assert [text.get_text() for text in drawn.axes[0].texts] == ["0.12", "0.50"]
    assert drawn.axes[0].images[0].get_clim() == (0, 1)


def test_letters_can_be_read_on_every_shade() -> None:
    """A contrast of 4.5 at least (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
                 for p in to_rgb(colour)]  # fmt: skip
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    assert len(PALETTE) == SHADES
    for pair in PALETTE:
        dark, light = sorted(map(luminance, pair))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_scale() -> None:
    scale = scale_of([-1, 1])
    assert [shade(scale, value) for value in (-2, -1, 0, 1, 2)] == [0, 0, 50, 100, 100]
    assert shade(scale_of([0]), 0) == 0
