"""The page of ``fairseq-collab report``: its numbers are the JSON's, and every reader gets them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import lxml.html
import pytest
from commands import REPOSITORY
from run_folders import REFERENCES, spoilt, start_run, write_run, write_translations

from collab_common.errors import UserError
from fairseq_collab.commands import report as command
from fairseq_collab.metrics.significance import paired
from fairseq_collab.results.report import page
from fairseq_collab.results.report.answer import answers
from fairseq_collab.results.report.content import Content, collect
from fairseq_collab.results.report.words import (
    data_text,
    heads_text,
    label_text,
    row_texts,
    share,
    signed,
)
from fairseq_collab.results.tables import EN_DASH
from fairseq_collab.runs.translations import read_system

EVIL = "</script><b>&\"'"
VOID = {"meta", "wbr"}


class Page:
    """Words, elements, headings, and the last table of each caption.

    A second line in a cell follows a bar.
    """

    def __init__(self, text: str):
        self.tree = parsed(text.replace("<small>", " | <small>"))
        self.words = words(self.tree.body)
        self.headings = [words(found) for found in self.tree.iter("h2", "h3")]
        self.tables = {
            table.findtext("caption"): [
                [words(cell) for cell in row.iter("th", "td")] for row in table.iter("tr")
            ]
            for table in self.tree.iter("table")
        }

    def named(self, tag: str, **attributes: str) -> list[Any]:
        return [
            found.attrib
            for found in self.tree.iter(tag)
            if all(found.get(key) == value for key, value in attributes.items())
        ]


def parsed(text: str) -> Any:
    """The elements of a page, whose tags must match."""
    for tag in set(re.findall(r"<(\w+)", text)) - VOID:
        opened = re.findall(rf"<{tag}(?:\s[^<>]*[^/<>])?>", text)
        assert len(opened) == text.count(f"</{tag}>"), tag
    return lxml.html.document_fromstring(text)


def words(element: Any) -> str:
    return " ".join(element.text_content().split())


def check_alone(text: str) -> None:
    """A page fetches nothing, and links to its own sections, all of them."""
    assert not re.search(r"https?:|url\((?!#)|@import|//\w+\.", text)
    found = Page(text)
    for element in found.tree.iter("*"):
        assert not set(element.keys()) & {"src", "srcset", "data", "action"}
        assert all(element.get(name, "#")[0] == "#" for name in ("href", "xlink:href"))
    anchors = {f"#{section['id']}" for section in found.named("section")}
    assert {link["href"] for link in found.named("a")} == anchors


def translate(run: Path, wrong: int) -> Path:
    """Translations with ``wrong`` lines that are not the reference's, and a log."""
    write_translations(run, spoilt(wrong), REFERENCES)
    entries = [(100, 5.0), (200, 4.0 + wrong / 100)]
    lines = [
        f'2026 | INFO | valid | {{"valid_nll_loss": "{y}", "valid_num_updates": "{x}"}}\n'
        for x, y in entries
    ]
    (run / "train.log").write_text("".join(lines))
    return run


def trained(parent: Path, method: str, key_dim: int, seed: int, wrong: int, **facts: Any) -> Path:
    command = ["fairseq-collab", "sweep", "x.yaml", "--out", str(parent)]
    run = write_run(
        parent, method, key_dim, seed, command=command, key_bytes_per_source_token=12 * key_dim,
        **facts,
    )  # fmt: skip
    return translate(run, wrong)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments on one data set, another data set, and runs that came to nothing."""
    folder = tmp_path_factory.mktemp("home") / "runs"
    sweep, tuned, other = folder / "sweep", folder / "more" / "tuned", folder / "other"
    for key_dim, wrong in ((128, 4), (32, 12)):
        for seed in (1, 2):
            trained(sweep, "concatenated", key_dim, seed, wrong + seed)
            trained(sweep, "collab", key_dim, seed, wrong + 3 * seed, sentences_per_second=7.5)
    kept = {"encoder": [4, 3], "decoder": [2, 2], "cross": [1, 0]}
    run = trained(tuned, "grouped", 128, 1, 2, train_updates=1000, epochs=3, heads_by_site=kept)
    (run / "config.yaml").write_text("checkpoint: {finetune_from_model: /home/me/x/y/z.pt}\n")
    trained(other, EVIL, 64, 1, 9, data="other", data_sha256=None)
    reason = f"no space on {folder}/x"
    start_run(sweep, "collab_16_1", verdict="failed", reason=reason)
    start_run(sweep, "collab_16_2")
    return folder


@pytest.fixture(scope="module")
def content(runs: Path) -> Content:
    return collect([runs], "report.html")


@pytest.fixture(scope="module")
def whole(content: Content) -> Page:
    return Page(page.report(content))


def changed(content: Content) -> Any:
    """A copy, and in it the data set with two experiments."""
    copy = json.loads(json.dumps(content))
    return copy, copy["sections"][1]


def test_data_sets_are_never_mixed(content: Content) -> None:
    first, second = content["sections"]
    assert [first["data"], second["data"]] == ["other", "toy"]
    assert [len(first["rows"]), len(second["rows"])] == [1, 5]
    assert second["sentences"] == len(REFERENCES)


def test_other_references_are_another_data_set(tmp_path: Path) -> None:
    """Even where no manifest shows that the data differ."""
    for name in ("concatenated", "collab"):
        other = trained(tmp_path, name, 64, 1, 3, data_sha256=None)
    write_translations(other, REFERENCES, [*REFERENCES[:-1], "Etwas anderes."])
    first, second = collect([tmp_path], "report.html")["sections"]
    assert first["reference_sha256"] != second["reference_sha256"]


def test_rows_are_means_over_seeds(content: Content, runs: Path) -> None:
    rows = content["sections"][1]["rows"]
    assert [(row["number"], row["experiment"], row["label"], row["seeds"]) for row in rows] == [
        (1, "more/tuned", "grouped", [1]),
        (2, "sweep", "collab, key_dim=32", [1, 2]),
        (3, "sweep", "collab, key_dim=128", [1, 2]),
        (4, "sweep", "concatenated, key_dim=32", [1, 2]),
        (5, "sweep", "concatenated, key_dim=128", [1, 2]),
    ]
    seeds = [read_system(runs / "sweep" / f"collab_32_{seed}") for seed in (1, 2)]
    best = [read_system(runs / "sweep" / f"concatenated_128_{seed}") for seed in (1, 2)]
    found = [
        paired([a.hypotheses, b.hypotheses], a.references, "bootstrap")[1][0]
        for a, b in zip(best, seeds, strict=True)
    ]
    bleu = rows[1]["bleu"]
    assert bleu["values"] == [pytest.approx(one.system, abs=1e-6) for one in found]
    half = sum(one.system_ci for one in found) / 2
    mean = sum(one.system for one in found) / 2
    assert [bleu["low"], bleu["high"]] == pytest.approx([mean - half, mean + half], abs=1e-5)
    test = next(pair for pair in content["sections"][1]["tests"] if pair["row"] == 2)
    assert test["against"] == 5
    assert [one["p"] for one in test["seeds"]] == [round(one.p, 6) for one in found]
    assert rows[0]["bleu"]["sd"] is None
    assert rows[1]["reduction"] == 4.0
    assert [row["heads_in_all"] for row in rows] == [[12], [], [], [], []]


def test_methods_on_the_page_are_the_jsons(content: Content, whole: Page) -> None:
    section = content["sections"][1]
    table = whole.tables["Models: toy, test set (1)"]
    found = {cells[0].split(":")[0]: cells for cells in table if cells[0][0].isdecimal()}
    assert len(found) == len(section["rows"])
    for row in section["rows"]:
        cells = found[str(row["number"])]
        for cell, score in ((cells[1], row["bleu"]), (cells[5], row["chrf"])):
            sd = [] if score["sd"] is None else [f"SD {score['sd']:.2f}"]
            assert cell.split(" | ") == [
                f"{score['mean']:.2f}", f"{score['low']:.2f} to {score['high']:.2f}", *sd
            ]  # fmt: skip
        assert [cells[2], *cells[6:12]] == [
            f"{row[field]:,.0f}"
            for field in (
                "parameters", "heads", "key_dim", "multiply_adds", "key_bytes_per_target_token",
                "key_bytes_per_source_token", "train_tokens_per_second",
            )
        ]  # fmt: skip
        speed = row["sentences_per_second"]
        assert cells[12] == (EN_DASH if speed is None else f"{speed:,.1f}")
        assert speed == (7.5 if row["method"] == "collab" else None)
        test = next((test for test in section["tests"] if test["row"] == row["number"]), None)
        if test is None:
            assert cells[3] == "best"
            assert cells[4] == "yes"
        else:
            mark = {"all": " ●", "some": " ○", "none": ""}[test["verdict"]]
            ps = ", ".join(f"{seed['p']:.3f}" for seed in test["seeds"])
            assert cells[3] == f"{signed(test['difference'])}{mark} | p {ps}"
    assert len(section["tests"]) == 3
    groups = [cells[0] for cells in table if len(cells) == 1]
    assert groups == [
        "Trained for 16 epochs (4,240 updates) from scratch",
        "Trained for 3 epochs (1,000 updates) from trained weights, folder more",
    ]


def test_columns_without_a_value_are_left_out(content: Content, whole: Page) -> None:
    copy, section = changed(content)
    for row in section["rows"]:
        row["sentences_per_second"] = None
    before, after = (
        found.tables["Models: toy, test set (1)"] for found in (whole, Page(page.report(copy)))
    )
    assert set(before[0]) - set(after[0]) == {"decoding sentences/s"}
    assert {len(cells) for cells in after} == {1, 13}


def test_names_are_explained_and_settings_are_no_methods(content: Content) -> None:
    copy, section = changed(content)
    for row, method in zip(section["rows"], ("all-0", "all-0.03", "encoder-0.1"), strict=False):
        row["method"] = method
    text = Page(page.report(copy)).words
    assert "5 models of 3 methods" in text
    for name in (
        "pruned heads, penalty Pas many heads as gates leave in all",
        "pruned encoder heads, penalty Pas many heads as gates leave in the encoder",
        "key dimensiondimensions of",
    ):
        assert name in text
    assert "all-0" not in text
    assert "key_dim=" not in text


def test_rows_of_one_name_are_told_apart_by_their_folders() -> None:
    rows = [
        {"number": 1, "label": "all-0.1", "experiment": "early"},
        {"number": 2, "label": "collab, key_dim=32, common.warmup=9", "experiment": "early"},
        {"number": 3, "label": "all-0.1", "experiment": "late"},
    ]
    assert row_texts(rows) == {
        1: "1: pruned heads, penalty 0.1 (early)",
        2: "2: collaborative heads, key dimension 32, common.warmup 9",
        3: "3: pruned heads, penalty 0.1 (late)",
    }


def test_a_model_with_all_heads_is_not_called_pruned() -> None:
    """Those that gates leave at no penalty: what pruned ones are compared with."""
    assert label_text("all-0") == "all heads, penalty 0"
    assert label_text("encoder-0.03") == "pruned encoder heads, penalty 0.03"


@pytest.mark.parametrize(
    ("heads", "in_all", "expected"),
    [(8, [48, 48], "8"), (None, [34, 30], "34, 30 in all"), (None, [], "vary")],
)
def test_heads_that_differ_are_counted(heads: Any, in_all: list[int], expected: str) -> None:
    assert heads_text({"heads": heads, "heads_in_all": in_all}) == expected


def test_data_have_their_usual_names() -> None:
    named = [
        data_text({"data": data, "subset": subset})
        for data, subset in (("multi30k", "test"), ("mine", "test1"))
    ]
    assert named == ["Multi30k, test set", "mine, set test1"]


def test_a_cost_that_one_row_lacks_is_not_compared(content: Content) -> None:
    """Records of earlier versions lack some."""

    def saved(lacking: set[int]) -> set[str]:
        _, section = changed(content)
        for budget in section["budgets"]:
            budget["fronts"].pop(cost, None)
        for row in section["rows"]:
            row[cost] = None if row["number"] in lacking else row[cost]
        return {name for one in answers(section) for _, name in one["saved"]}

    cost, name = "key_bytes_per_target_token", "bytes of key cache"
    found = [one for one in answers(content["sections"][1]) if one["pick"]]
    assert name in saved(set())
    for which in ("pick", "best"):
        assert saved({one[which]["number"] for one in found}) == saved(set()) - {name}


def test_the_answer_is_made_of_the_numbers(content: Content, whole: Page) -> None:
    copy, section = changed(content)
    rows = section["rows"]
    best, cheap = rows[4], rows[3]
    for row in rows[1:]:
        row["parameters"] = 1000 if row["key_dim"] == 32 else 2000

    def said(gain: float, verdict: str) -> str:
        """The sentences of the first budget, where ``cheap`` is as far below the best."""
        cheap["bleu"]["mean"] = best["bleu"]["mean"] - gain
        rows[1]["bleu"]["mean"] = best["bleu"]["mean"] - 50
        test = next(one for one in section["tests"] if one["row"] == cheap["number"])
        test |= {"difference": -gain, "verdict": verdict}
        text = Page(page.report(copy)).words
        return text[text.index("Best.") : text.index("Pareto front, the cheapest first")]

    half = best["bleu"]["high"] - best["bleu"]["mean"]
    text = said(half / 2, "none")
    mean, low, high = (f"{best['bleu'][name]:.2f}" for name in ("mean", "low", "high"))
    texts = row_texts(rows)
    assert f"{texts[5]} has {mean} BLEU (95 % interval {low} to {high}) with 2,000" in text
    assert f"Cheapest with no significant loss. {texts[4]}: {signed(-half / 2)} BLEU" in text
    assert "with 50.0 % fewer parameters" in text
    assert "75.0 % fewer bytes of key cache" in text
    assert "BLEU, not significant (p" in text
    none = (
        "No cheaper model is as good. The cheapest whose score lies in the best one's interval is "
        f"{texts[4]}: {signed(-half / 2)} BLEU, "
    )
    assert f"{none}a significant loss (p of each seed: " in said(half / 2, "all")
    assert f"{none}significant for some seeds only (p" in said(half / 2, "some")
    assert "Not drawn" not in text
    text = said(2 * half, "untested")
    assert f"known to be as good. The best of the cheaper ones is {texts[4]}" in text
    assert "BLEU, not tested, since the two have no seed in common" in text
    assert f"Not drawn, since far below: {texts[2]}" in Page(page.report(copy)).words
    best["parameters"] = 500
    section["budgets"][0]["fronts"]["parameters"] = [5]
    cheap["bleu"]["mean"] = rows[2]["bleu"]["mean"] = best["bleu"]["mean"] - 50
    text = Page(page.report(copy)).words
    assert f"No model is cheaper. The second best is {texts[2]}" in text
    assert f"Not drawn, since far below: {texts[2]}; 3: " in text
    for row in rows:
        row["parameters"] = row["multiply_adds"] = 2000
    text = Page(page.report(copy)).words
    assert "No figure: all cost the same" in text
    assert "It is the only model that was trained so" in whole.words


def test_papers_on_the_page_are_the_jsons(content: Content, whole: Page) -> None:
    paper = content["sections"][1]["papers"][0]
    lines = whole.tables[f"{paper['title']}: toy, test set (1)"][1:]
    for cells, claim in zip(lines, paper["claims"], strict=True):
        assert cells[0].startswith(claim["system"])
        assert cells[2].startswith(f"{signed(claim['difference'])} BLEU")
        assert cells[3] == share(claim["size_ratio"])
        if claim["ours"]:
            [ours] = claim["ours"]
            assert cells[4].startswith(str(ours["row"]))
            assert cells[5:] == [signed(ours["difference"]), share(ours["size_ratio"])]
        else:
            assert cells[4] == "no counterpart among these runs"
    assert sum(bool(claim["ours"]) for claim in paper["claims"]) == 4  # K = d and d/4


def test_drawings_follow_the_page(content: Content, whole: Page) -> None:
    """Named, with words as text, in the page's colours, and no name stands twice."""
    text = page.report(content)
    figures = whole.named("svg")
    assert len(figures) == 4  # costs of the budget with several rows; curves of all three budgets
    assert all(found["role"] == "img" and found["aria-labelledby"] for found in figures)
    names = whole.tree.xpath("//@id")
    assert len(set(names)) == len(names)
    assert not {found["aria-labelledby"] for found in figures} - set(names)
    used = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', text))
    assert used <= set(names)
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", text[text.index("<svg") :]))
    assert colours <= {
        "none",
        *(f"var(--{name})" for name in ("text", "faint", "line", "band", "link", "page")),
    }
    assert "million parameters" in whole.words
    drawn = [words(found) for found in next(whole.tree.iter("svg")).iter("text")]
    [answer] = [one for one in answers(content["sections"][1]) if len(one["rows"]) > 1]
    assert {str(row["number"]) for row in answer["rows"]} <= set(drawn)
    assert "DejaVu" not in text
    assert not whole.named("img")


@pytest.mark.parametrize("points", [[], [[1000, 3.456]]])
def test_without_validations_there_are_no_curves(content: Content, points: list[Any]) -> None:
    copy, section = changed(content)
    for curve in section["curves"]:
        for run in curve["runs"]:
            run["points"] = points
    found = Page(page.report(copy))
    assert "No run was validated more than once." in found.words
    assert "they were still learning" not in found.words.rpartition("Answer: other")[0]


def test_notes_say_what_is_so(content: Content, whole: Page) -> None:
    one = "1 of 5 rows has one seed, so its variation between seeds is unknown."
    falling = "In 9 of 9 trainings the last validation was the best"
    for note in (
        one,
        falling,
        "of 6, about 0.3 would be below 0.05",
        "(0.00 to 0.00 million parameters)",
        "Decoding speed was not recorded for 3 of 5 rows",
        "Fine-tuned rows also had the training of the model they started from. How long that was "
        "is not recorded here",
    ):
        assert note in whole.words
    assert "Training budgets differ" not in whole.words  # rows of other budgets are not compared
    copy, section = changed(content)
    for row in section["rows"]:
        row |= {"seeds": [1, 2, 3, 4, 5], "parameters": 44_000_000, "sentences_per_second": 9.0}
    section["rows"][0]["heads"] = 4
    for run in (run for curve in section["curves"] for run in curve["runs"]):
        run["points"].append([300, 9.0])
    text = Page(page.report(copy)).words
    text = text[text.index("What this does not show") :].partition("Answer: other")[0]
    for note in (one, falling, "million parameters)", "Decoding speed was not", "seeds a row"):
        assert note not in text
    assert "different numbers of heads (4, 8)" in text
    for row in section["rows"]:
        row["seeds"] = [1]
    assert "All 5 rows have one seed, so the variation" in Page(page.report(copy)).words
    for row in section["rows"][1:]:
        row["seeds"] = [1, 2, 3, 4, 5]
    section["rows"][0]["seeds"] = [1, 2]
    assert "2 to 5 seeds a row" in Page(page.report(copy)).words


def test_tables_can_be_read_and_reached(whole: Page) -> None:
    assert all(found.get("scope") in ("col", "row", "rowgroup") for found in whole.named("th"))
    regions = whole.named("div", role="region")
    assert len(regions) == len(whole.tables) == len(whole.named("table"))
    assert all(found["tabindex"] == "0" and found["aria-label"] for found in regions)


def test_nothing_is_fetched(content: Content, whole: Page) -> None:
    text = page.report(content)
    check_alone(text)
    assert not whole.named("script")
    policy = whole.named("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy[0]["content"].startswith("default-src 'none'")
    assert "prefers-color-scheme: dark" in text


def test_names_are_data(content: Content, whole: Page) -> None:
    assert "<b>&" not in page.report(content)
    assert EVIL in whole.words


def test_nothing_tells_of_the_machine(content: Content, runs: Path) -> None:
    for text in (page.report(content), json.dumps(content)):
        assert str(runs.parent) not in text
        assert "/home/me" not in text
    assert content["command"] == "fairseq-collab report runs --out report.html"
    section = content["sections"][1]
    assert section["commands"][1]["command"].endswith("--out .../runs/sweep")
    assert len(section["commands"][1]["runs"]) == 8


def test_what_is_not_finished_is_listed(content: Content, whole: Page) -> None:
    failed, waiting = content["left_out"]
    assert failed.startswith("sweep/collab_16_1: failed (no space on .../")
    assert waiting == "sweep/collab_16_2: incomplete"
    assert waiting in whole.words


def test_the_page_is_made_of_the_json(content: Content, runs: Path, tmp_path: Path) -> None:
    """And the same runs give the same bytes."""
    out = tmp_path / "report.html"
    command.write(collect([runs], out.name), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored == json.loads(json.dumps(content))
    assert page.report(stored) == page.report(content) == out.read_text()


@pytest.fixture(scope="module")
def stored() -> str:
    return (REPOSITORY / "results" / "report.html").read_text()


def test_the_stored_page_is_made_of_its_json(stored: str) -> None:
    assert page.report(json.loads((REPOSITORY / "results" / "report.json").read_text())) == stored


def test_the_answer_comes_first_and_alone(stored: str) -> None:
    """One figure and three sentences; figures of models that were trained otherwise are folded."""
    [answer] = parsed(stored).xpath("//section[contains(@id, '-answer')]")
    assert len(answer.xpath(".//svg[not(ancestor::details)]")) == 1
    assert len(answer.xpath(".//details//svg")) == 3
    [lead] = answer.find_class("answer")
    assert [words(found) for found in lead.xpath(".//p/b")] == [
        "Best.", "Cheapest with no significant loss.", "Cheapest of all."
    ]  # fmt: skip
    said = words(lead)
    assert "with 33.3 % fewer heads, 11.3 % fewer parameters" in said
    loss = f"{signed(-4.54)} BLEU, a significant loss (p of each seed: 0.001, 0.001)"
    assert f"14: pruned heads, penalty 0.1 (scratch): {loss}" in said
    assert "Not on it: 20: concatenated heads (uniform)." in said
    assert words(answer).count("Cheapest of all.") == 1


def test_papers_without_a_counterpart_are_folded_together(stored: str) -> None:
    opened = [words(found) for found in parsed(stored).xpath("//section/details/summary")]
    papers = [text for text in opened if "counterpart" in text]
    assert papers[0].endswith("1905.09418: 4 claims of 4 with a counterpart here")
    assert papers[1:] == ["3 papers without a counterpart here"]


def test_decoding_speed_of_what_fairseq_printed(tmp_path: Path) -> None:
    run = trained(tmp_path, "collab", 64, 1, 3)
    with (run / "translations.txt").open("a") as file:
        file.write("Translated 40 sentences (400 tokens) in 2.0s (20.00 sentences/s, 200 tok/s)\n")
    found = collect([tmp_path], "report.html")
    assert found["sections"][0]["rows"][0]["sentences_per_second"] == 20.0


def test_runs_that_cannot_stand_in_a_report(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            collect([tmp_path], "report.html")

    start_run(tmp_path, "waiting")
    refused(r"no finished run; waiting: incomplete; finish them")
    run = trained(tmp_path, "collab", 64, 1, 3)
    (run / "translations.txt").rename(run / "kept")
    refused(r"translations\.txt: no such file")
    (run / "kept").rename(run / "translations.txt")
    facts = json.loads((run / "score.json").read_text())
    (run / "score.json").write_text(json.dumps({**facts, "version": 3}))
    refused(r"score\.json: version 3, not 2; score the run again")
    (run / "score.json").write_text(json.dumps({**facts, "bleu": 1.0}))
    refused(r"but the run recorded 1\.00; give the reference")
    (run / "score.json").write_text("{")
    refused(r"score\.json: not JSON")
    (run / "score.json").write_text(json.dumps(facts))
    shutil.copytree(run, tmp_path / "twin")
    refused(r"are the same model with the same seed \(1\); leave one out")
