"""The report of an analysis of heads: whole, self-contained, for every reader; and its numbers."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from collab_common.errors import UserError
from fairseq_collab.results.heads import figures, page, page_text
from fairseq_collab.results.heads.page_examples import confident, labels
from fairseq_collab.results.heads.palette import PALETTE, SHADES, Scale, contrast
from fairseq_collab.results.markup import Markup, element
from fairseq_collab.results.page import NOTHING

HEADS = {"encoder": [4, 2], "decoder": [4, 4], "cross": [3, 4]}
SELF = {"encoder", "decoder"}
SOURCE = ["▁a", "<b>bold</b>", "</script>", "&amp;", "$x$", '"q"', "</s>"]
TARGET = ["▁ein", "<i>", "</s>"]


class Numbers:
    """Numbers of every part of ``heads.json``, the same every time."""

    def __init__(self) -> None:
        self.chance = random.Random(1)

    def per_head(self, sites: set[str]) -> dict[str, Any]:
        return {
            site: [[round(self.chance.random(), 6) for _ in range(n)] for n in counts]
            if site in sites
            else None
            for site, counts in HEADS.items()
        }

    def shares(self, count: int) -> list[float]:
        drawn = [self.chance.random() ** 4 for _ in range(count)]
        return [round(x / sum(drawn), 3) for x in drawn]

    def maps(self, rows: int, columns: int, heads: int) -> list[list[list[float]]]:
        return [[self.shares(columns) for _ in range(rows)] for _ in range(heads)]


def content() -> dict[str, Any]:
    """An analysis with everything in it."""
    made = Numbers()
    lengths = {"encoder": (len(SOURCE),) * 2, "decoder": (len(TARGET),) * 2}
    lengths["cross"] = (len(TARGET), len(SOURCE))
    everywhere = set(HEADS)
    return {
        "version": 1,
        "checkpoint": "average.pt",
        "arch": "transformer",
        "data": "toy",
        "subset": "valid",
        "sentences": 1014,
        "source_tokens": 15_000,
        "command": "fairseq-collab heads average.pt toy --out heads",
        "commit": "c0ffee",
        "versions": {"torch": "2.13.0"},
        "hardware": "some processor",
        "date": "2026-11-21",
        "heads": HEADS,
        "measures": {
            "confidence": made.per_head(everywhere),
            "positional": made.per_head(SELF),
            "rare": made.per_head({"encoder"}),
            "entropy": made.per_head(everywhere),
            "relevance": made.per_head(everywhere),
            "importance_token_normalised": made.per_head(everywhere),
            "some_other": made.per_head(everywhere),
        },
        "offsets": {
            "offsets": [-1, 0, 1],
            "encoder": [[made.shares(3) for _ in range(n)] for n in HEADS["encoder"]],
            "decoder": [[[*made.shares(2), None] for _ in range(n)] for n in HEADS["decoder"]],
        },
        "rare": {"sentences": 900, "chance": 0.11, "chance_of_two": 0.2},
        "syntax": {
            "trees": "trees.conllu",
            "sentences": 50,
            "side": "source",
            "too_long": 2,
            "pairs_within_a_unit": 0,
            "relations": {
                "nsubj": {
                    "dependent->head": {
                        "pairs": 1234,
                        "baseline": {"offset": 1, "accuracy": 0.4},
                        "encoder": [[0.1, 0.2, 0.5, 0.3], [0.1, 0.2]],
                    },
                    "head->dependent": {
                        "pairs": 1234,
                        "baseline": {"offset": -1, "accuracy": 0.4},
                        "encoder": [[0.1, 0.2, 0.3, 0.3], [0.1, 0.41]],
                    },
                },
                "obj": {
                    "dependent->head": {
                        "pairs": 0,
                        "baseline": None,
                        "encoder": [[None] * 4, [None] * 2],
                    }
                },
            },
        },
        "similarity": {
            kind: {
                site: [[made.shares(n) for _ in range(n)] for n in counts]
                for site, counts in HEADS.items()
            }
            for kind in ("weights", "projections")
        },
        "roles": {
            "encoder": [[["positional -1"], [], ["syntactic nsubj dependent->head"], []],
                        [["rare tokens", "positional +1"], []]],
            "decoder": [[[]] * 4] * 2,
            "cross": [[[]] * 3, [[]] * 4],
        },
        "examples": [
            {
                "line": 12,
                "source": SOURCE,
                "target": TARGET,
                "weights": {
                    site: [made.maps(*lengths[site], n) for n in counts]
                    for site, counts in HEADS.items()
                },
            }
        ],
    }  # fmt: skip


class Page(HTMLParser):
    """Checks that tags match; keeps tables, headings, attributes and text."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.headings: list[str] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._rows: list[list[str]] = []
        self._caption = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.VOID:
            return
        self.open.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.tables.setdefault(self._caption, []).extend(self._rows)

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
            return
        self.words.append(data)
        if "table" in self.open and ("td" in self.open or "th" in self.open):
            self._rows[-1][-1] += data
        elif self.open[-1:] == ["caption"]:
            self._caption += data
        elif self.open[-1:] in (["h2"], ["h3"]):
            self.headings.append(data)

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.tags
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]


@pytest.fixture(scope="module")
def full() -> Page:
    return Page(page.report(content()))


def test_sections(full: Page) -> None:
    expected = ["Roles", "Measures", "Confidence", "Positional score", "Rare-token score",
                "Entropy", "Relevance", "Gradient importance, per token, normalised", "some other",
                "Positions", "Syntax", "Similarity", "Distance of attention weights",
                "Similarity of query and key projections", "Attention on single sentences",
                "Sentence 12", "Circumstances"]  # fmt: skip
    assert full.headings == expected
    anchors = {found["id"] for found in full.named("section")}
    assert {found["href"] for found in full.named("a")} == {f"#{anchor}" for anchor in anchors}


def test_nothing_is_fetched(full: Page) -> None:
    text = page.report(content())
    assert not re.search(r"https?:|url\(|@import|//\w+\.", text)
    for _, attributes in full.tags:
        assert not attributes.keys() & {"src", "srcset", "data", "action"}
        assert (attributes.get("href") or "#").startswith("#")
    policy = full.named("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy[0]["content"].startswith("default-src 'none'")  # type: ignore[union-attr]  # its value


def test_figures_have_names_and_can_be_reached(full: Page) -> None:
    captions = full.words
    regions = full.named("div", role="region")
    assert len(regions) > 30
    for region in regions:
        assert region["tabindex"] == "0"
        assert region.get("aria-label") or region["id"] == "chosen"  # that one the script names
        assert region.get("aria-label") in [None, *captions]
    images = [found for _, found in full.tags if found.get("role") == "img"]
    assert images
    assert all(image["aria-label"].startswith("Colours: dark is") for image in images)  # type: ignore[union-attr]  # its value
    assert all(found["scope"] in ("col", "row") for found in full.named("th"))


def test_numbers_are_those_of_the_file() -> None:
    """Alone on the page, each measure's tables hold its numbers, and titles hold every digit."""
    for name, sites in content()["measures"].items():
        alone = {**base(), "measures": {name: sites}}
        found = Page(page.report(alone))
        titles = {attributes.get("title") for attributes in found.named("td")}
        for site, layers in sites.items():
            caption = {"encoder": "encoder self-attention", "decoder": "decoder self-attention",
                       "cross": "cross-attention"}[site]  # fmt: skip
            if layers is None:
                assert caption not in found.tables
                continue
            head, *rows = found.tables[caption]
            width = max(map(len, layers))
            assert head == ["layer \\ head", *map(str, range(width))]
            for i, (row, layer) in enumerate(zip(rows, layers, strict=True)):
                assert row[0] == str(i)
                assert len(row) == width + 1
                for j, value in enumerate(layer):
                    assert math.isclose(float(row[1 + j]), value, abs_tol=0.005)
                    assert f"layer {i}, head {j}: {value}" in titles
                assert row[1 + len(layer) :] == [""] * (width - len(layer))


def test_syntax_names_the_best_heads(full: Page) -> None:
    assert full.tables["Relations"][1:] == [
        ["nsubj dependent→head", "1,234", "0.2", "0.50", "0.40", "+1", "+25%", "yes"],
        ["nsubj head→dependent", "1,234", "1.1", "0.41", "0.40", "-1", "+2%", "no"],
        ["obj dependent→head", "0", *[NOTHING] * 6],
    ]


def test_what_trees_are_left_out_is_said(full: Page) -> None:
    assert "50 sentences of trees.conllu; 2 more are too long." in full.words


def test_positions(full: Page) -> None:
    found = content()["offsets"]
    rows = full.tables["encoder self-attention: best position"]
    best = [["-1", "0", "+1"][shares.index(max(shares))] for shares in found["encoder"][0]]
    assert rows[1] == ["0", *best]
    rows = full.tables["Shares of all positions, encoder self-attention"]
    assert rows[1] == ["0.0", *(f"{share:.2f}" for share in found["encoder"][0][0])]
    rows = full.tables["Shares of all positions, decoder self-attention"]
    assert [rows[-1][0], rows[-1][-1]] == ["1.3", NOTHING]  # nothing was counted there


def test_roles_are_words_not_colours_alone(full: Page) -> None:
    words = " ".join(full.words)
    assert "3 of 21 heads have a role. None in decoder self-attention, cross-attention." in words
    for role in ("positional -1", "syntactic nsubj dependent→head", "rare tokens"):
        assert role in full.words


def test_a_model_without_roles_is_said_to_have_none(tmp_path: Path) -> None:
    given = {**base(), "roles": {"encoder": [[[]] * 4], "decoder": [], "cross": [[[]] * 3]}}
    found = Page(page.report(given))
    assert (
        "0 of 7 heads have a role. None in encoder self-attention, cross-attention." in found.words
    )
    assert not found.tables
    assert not figures.draw(given)


def test_tokens_are_data() -> None:
    text = page.report(content())
    assert "<b>" not in text
    assert "<i>" not in text
    found = Page(text)
    caption = next(key for key in found.tables if key.startswith("encoder self-attention, layer"))
    assert found.tables[caption][0][1:] == SOURCE
    data, _ = found.scripts
    [example] = json.loads(data)["examples"]
    assert example["labels"]["encoder"] == [SOURCE, SOURCE]
    assert example["labels"]["cross"] == [TARGET, SOURCE]
    assert text.count("</script>") == 2


def test_every_head_is_in_the_data_of_the_script(full: Page) -> None:
    given = content()["examples"][0]
    [example] = json.loads(full.scripts[0])["examples"]
    for site, layers in given["weights"].items():
        thousandths = [
            [[[round(1000 * w) for w in row] for row in head] for head in layer] for layer in layers
        ]
        assert example["weights"][site] == thousandths


def test_maps_without_a_script_are_those_of_the_most_confident_heads(full: Page) -> None:
    """Confident of words: what a head looks at beside the end of sentence."""
    given = content()["examples"][0]
    weights = given["weights"]["cross"]
    layer, head = confident(weights, TARGET, SOURCE)
    largest = [[sum(max(row[:-1]) for row in rows[:-1]) for rows in heads] for heads in weights]
    assert largest[layer][head] == max(map(max, largest))
    rows = full.tables[f"cross-attention, layer {layer}, head {head}"]
    for row, expected in zip(rows[1:], weights[layer][head], strict=True):
        assert [int(cell or 0) for cell in row[1:]] == [
            math.floor(100 * weight + 0.5 + 1e-9) for weight in expected
        ]


def test_a_head_that_looks_at_the_end_of_sentence_is_not_confident() -> None:
    at_the_end, at_a_word = [[0.0, 1.0], [0.0, 1.0]], [[0.6, 0.4], [0.0, 1.0]]
    assert confident([[at_the_end, at_a_word]], ["a", "</s>"], ["a", "</s>"]) == (0, 1)


def test_decoder_reads_what_it_has_predicted() -> None:
    example = {"source": ["a"], "target": ["x", "y", "</s>"]}
    assert labels(example, "decoder") == (["</s>", "x", "y"], ["</s>", "x", "y"])
    assert labels(example, "cross") == (["x", "y", "</s>"], ["a"])


def base() -> dict[str, Any]:
    """An analysis that has found nothing."""
    parts = ("measures", "offsets", "rare", "syntax", "similarity", "roles", "examples")
    return {key: value for key, value in content().items() if key not in parts}


@pytest.mark.parametrize("empty", [{}, {"measures": {}, "examples": []},
                                   {"syntax": None, "offsets": None, "similarity": None},
                                   {"measures": {"rare": None}},
                                   {"measures": {"rare": {"encoder": [[None]], "decoder": None}}},
                                   {"syntax": {"trees": "t", "sentences": 0, "relations": {}}},
                                   {"similarity": {"weights": {}}}])  # fmt: skip
def test_what_is_missing_leaves_no_heading(empty: dict[str, Any], tmp_path: Path) -> None:
    given = {**base(), **empty}
    found = Page(page.report(given))
    assert found.headings == ["Circumstances"]
    assert not found.scripts
    page.write(given, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_sites_and_heads_that_are_missing() -> None:
    given = copy.deepcopy(content())
    given["measures"]["confidence"] = {"encoder": [[0.5, None], [0.25, 0.75]], "cross": None}
    given["examples"][0]["weights"]["decoder"] = None
    given["roles"] = {"encoder": given["roles"]["encoder"]}
    found = Page(page.report(given))
    rows = found.tables["encoder self-attention"]
    assert ["0", "0.50", NOTHING] in rows
    assert "decoder" not in json.loads(found.scripts[0])["examples"][0]["weights"]


def test_circumstances(full: Page) -> None:
    values = " ".join(full.words)
    for fact in ("c0ffee", "some processor", "2026-11-21", "torch 2.13.0", "15,000",
                 "fairseq-collab heads average.pt toy --out heads"):  # fmt: skip
        assert fact in values


def test_the_same_content_gives_the_same_files(tmp_path: Path) -> None:
    page.write(content(), tmp_path / "a")
    page.write(content(), tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    expected = ["heads_attention.png", *(f"heads_{name}.png" for name in content()["measures"]),
                "heads_roles.png", "heads_syntax.png", "report.html"]  # fmt: skip
    assert names == sorted(expected)
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/out: no such folder can be made: .*give another"):
        page.write(base(), tmp_path / "file" / "out")


def test_figures_show_every_number() -> None:
    layers = {"encoder": [[0.123, None], [0.5]]}
    drawn = figures.measure_figure(page_text.MEASURES["confidence"], layers)
    assert [text.get_text() for text in drawn.axes[0].texts] == ["0.12", "0.50"]
    assert drawn.axes[0].images[0].get_clim() == (0, 1)


def test_letters_can_be_read_on_every_shade() -> None:
    assert len(PALETTE) == SHADES
    assert min(contrast(*pair) for pair in PALETTE) >= 4.5
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_scale() -> None:
    scale = Scale(-1, 1)
    assert [scale.shade(value) for value in (-2, -1, 0, 1, 2)] == [0, 0, 50, 100, 100]
    assert Scale(0, 0).shade(0) == 0


def test_markup_escapes_what_it_did_not_make() -> None:
    made = element("p", "<", element("b", "&"), title='"', class_="x", hidden=True, id=None)
    assert made == '<p title="&quot;" class="x" hidden>&lt;<b>&amp;</b></p>'
    assert isinstance(made + "<", Markup)
    assert made + "<" == f"{made}&lt;"
