"""The page of ``fairseq-collab report``: its numbers are the JSON's, and every reader gets them."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from run_folders import start_run, write_run, write_translations

from collab_common.errors import UserError
from fairseq_collab.commands import report as command
from fairseq_collab.results.report import bootstrap, page
from fairseq_collab.results.report.content import Content, collect
from fairseq_collab.results.report.words import share, signed
from fairseq_collab.runs.translations import read_system

REFERENCES = [f"Satz {i} hat genau {i + 3} kurze Worte und endet hier." for i in range(40)]
EVIL = "</script><b>&\"'"
VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """Tags, names of drawings, and tables by their captions."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.tables: dict[str, list[list[str]]] = {}
        self.words = ""
        self._rows: list[list[str]] = []
        self._caption = ""
        self._identity: str | None = None
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag in VOID:
            return
        self.open.append(tag)
        self._identity = found.get("id")
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "small" and self._rows and "table" in self.open:
            self._rows[-1][-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            assert self._caption
            assert self._caption not in self.tables
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        if self._identity and self.open[-1:] in (["title"], ["desc"]):
            self.texts[self._identity] = data
        if "style" not in self.open:
            self.words += data
        if "td" in self.open or "th" in self.open:
            self._rows[-1][-1] += data
        elif self.open[-1:] == ["caption"]:
            self._caption += data

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.tags
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]


def translate(run: Path, wrong: int) -> Path:
    """Translations with ``wrong`` lines that are not the reference's, and a log."""
    bad = [line.replace("kurze Worte", "viele") for line in REFERENCES[:wrong]]
    write_translations(run, bad + REFERENCES[wrong:], REFERENCES)
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
    run = trained(tuned, "grouped", 128, 1, 2, train_updates=1000, epochs=3)
    (run / "config.yaml").write_text("checkpoint: {finetune_from_model: /home/me/x/y/z.pt}\n")
    trained(other, EVIL, 64, 1, 9, data="other", data_sha256=None)
    reason = f"no space on {folder}/x"
    start_run(sweep, "collab_16_1", verdict="failed", reason=reason)
    start_run(sweep, "collab_16_2")
    return folder


@pytest.fixture(scope="module")
def content(runs: Path) -> Content:
    return collect([runs], "report.html", lambda number: lambda name: None)


@pytest.fixture(scope="module")
def whole(content: Content) -> Page:
    return Page(page.report(content))


def test_data_sets_are_never_mixed(content: Content) -> None:
    first, second = content["sections"]
    assert [first["data"], second["data"]] == ["other", "toy"]
    assert [len(first["rows"]), len(second["rows"])] == [1, 5]
    assert second["sentences"] == len(REFERENCES)


def test_other_references_are_another_data_set(tmp_path: Path) -> None:
    """Even where no manifest tells the data apart."""
    one, other = (
        trained(tmp_path, name, 64, 1, 3, data_sha256=None) for name in ("concatenated", "collab")
    )
    write_translations(other, REFERENCES, [*REFERENCES[:-1], "Etwas anderes."])
    found = collect([tmp_path], "report.html", lambda number: lambda name: None)
    assert len(found["sections"]) == 2
    assert found["sections"][0]["reference_sha256"] != found["sections"][1]["reference_sha256"]
    assert one.exists()


def test_rows_are_means_over_seeds(content: Content, runs: Path) -> None:
    rows = content["sections"][1]["rows"]
    assert [(row["number"], row["experiment"], row["label"], row["seeds"]) for row in rows] == [
        (1, "more/tuned", "grouped", [1]),
        (2, "sweep", "collab, key_dim=32", [1, 2]),
        (3, "sweep", "collab, key_dim=128", [1, 2]),
        (4, "sweep", "concatenated, key_dim=32", [1, 2]),
        (5, "sweep", "concatenated, key_dim=128", [1, 2]),
    ]
    drawn = bootstrap.draws(len(REFERENCES))
    seeds = [
        bootstrap.resample(read_system(runs / "sweep" / f"collab_32_{seed}"), drawn)["BLEU"]
        for seed in (1, 2)
    ]
    found = bootstrap.interval(seeds)
    bleu = rows[1]["bleu"]
    assert bleu["mean"] == round(found.mean, 6)
    assert [bleu["low"], bleu["high"]] == [round(found.low, 6), round(found.high, 6)]
    assert bleu["values"] == [round(seed.score, 6) for seed in seeds]
    assert rows[0]["bleu"]["sd"] is None
    assert rows[1]["reduction"] == 4.0


def test_methods_on_the_page_are_the_jsons(content: Content, whole: Page) -> None:
    section = content["sections"][1]
    table = whole.tables["Methods: toy, test (2)"]
    found = {cells[0].split(" ")[0]: cells for cells in table if cells[0][0].isdecimal()}
    assert len(found) == len(section["rows"])
    for row in section["rows"]:
        cells = found[str(row["number"])]
        for cell, score in zip(cells[2:4], (row["bleu"], row["chrf"]), strict=True):
            sd = [] if score["sd"] is None else [f"SD {score['sd']:.2f}"]
            assert cell.split(" | ") == [
                f"{score['mean']:.2f}", f"{score['low']:.2f} to {score['high']:.2f}", *sd
            ]  # fmt: skip
        assert cells[4:9] == [
            f"{row[field]:,.0f}"
            for field in (
                "parameters", "multiply_adds", "key_bytes_per_target_token",
                "key_bytes_per_source_token", "train_tokens_per_second",
            )
        ]  # fmt: skip
        speed = row["sentences_per_second"]
        assert cells[9] == ("not recorded" if speed is None else f"{speed:,.1f}")
        assert speed == (7.5 if row["method"] == "collab" else None)
    assert found["1"][10] == "B | 3 epochs | 1,000 updates | fine-tuned"
    assert found["5"][10] == "A | 16 epochs | 4,240 updates"
    assert found["5"][11].startswith("best BLEU; Pareto: ")


def test_decoding_speed_of_what_fairseq_printed(tmp_path: Path) -> None:
    run = trained(tmp_path, "collab", 64, 1, 3)
    with (run / "generation.txt").open("a") as file:
        file.write("Translated 40 sentences (400 tokens) in 2.0s (20.00 sentences/s, 200 tok/s)\n")
    found = collect([tmp_path], "report.html", lambda number: lambda name: None)
    assert found["sections"][0]["rows"][0]["sentences_per_second"] == 20.0


def test_tests_on_the_page_are_the_jsons(content: Content, whole: Page) -> None:
    section = content["sections"][1]
    head, *lines = whole.tables["BLEU of the row less BLEU of the column: toy, test (2)"]
    assert head[1:] == ["1", "2", "3", "4", "5"]
    assert len(section["tests"]) == 10
    titles = [found.get("title") or "" for found in whole.named("span")]
    for pair in section["tests"]:
        row, against = pair["row"], pair["against"]
        most = max(seed["p"] for seed in pair["seeds"])
        for one, other, gain in (
            (row, against, pair["difference"]),
            (against, row, -pair["difference"]),
        ):
            text, p = lines[one - 1][other].split(" | ")
            assert text.rstrip("●○") == signed(gain)
            assert ("●" in text, "○" in text) == (
                pair["verdict"] == "all", pair["verdict"] == "some"
            )  # fmt: skip
            assert p == f"p {most:.3f}"
        assert sum(f"p = {seed['p']:.3f}" in title for title in titles for seed in pair["seeds"])
    label = {row["number"]: row["label"] for row in section["rows"]}
    pair = section["tests"][0]
    words = f"{pair['row']} {label[pair['row']]} less {pair['against']} {label[pair['against']]}: "
    assert words in whole.words


def test_the_only_row_is_not_tested(whole: Page) -> None:
    anchors = [found["id"] for found in whole.named("section")]
    assert "data2-tests" in anchors
    assert "data1-tests" not in anchors


def test_papers_on_the_page_are_the_jsons(content: Content, whole: Page) -> None:
    paper = content["sections"][1]["papers"][0]
    caption = next(
        name for name in whole.tables if name.startswith(paper["title"]) and "toy" in name
    )
    lines = whole.tables[caption][1:]
    for cells, claim in zip(lines, paper["claims"], strict=True):
        assert cells[0].startswith(claim["system"])
        assert cells[1].startswith(f"{signed(claim['difference'])} BLEU")
        assert cells[2] == share(claim["size_ratio"])
        if claim["ours"]:
            [ours] = claim["ours"]
            assert cells[3].startswith(str(ours["row"]))
            assert cells[4:] == [signed(ours["difference"]), share(ours["size_ratio"])]
        else:
            assert cells[3] == "no counterpart among these runs"
    assert sum(bool(claim["ours"]) for claim in paper["claims"]) == 4  # K = d and d/4


def test_every_drawing_has_a_name_and_says_what_it_shows(content: Content, whole: Page) -> None:
    drawings = whole.named("svg")
    shown = [found for found in drawings if found.get("role") == "img"]
    assert all(found.get("aria-hidden") == "true" for found in drawings if found not in shown)
    names = [found["aria-labelledby"] for found in shown]
    assert len(set(names)) == len(names) > 6
    identities = [found["id"] for _, found in whole.tags if "id" in found]
    assert len(set(identities)) == len(identities)
    for name in names:
        title, text = (name or "").split(" ")
        assert whole.texts[title]
        assert whole.texts[text]
    row = content["sections"][1]["rows"][2]
    bleu = f"{row['bleu']['mean']:.2f} ({row['bleu']['low']:.2f} to {row['bleu']['high']:.2f})"
    assert (
        f"3 collab, key_dim=128: 128 (key dimension, all heads together), BLEU {bleu}"
        in (whole.texts["data2-key_dim-A-text"])
    )
    assert (
        "seed 1: 5 after 100 updates, 4.07 after 200 updates" in (whole.texts["data2-curve-3-text"])
    )
    assert not whole.named("img")


def test_what_has_nothing_to_show_is_left_out_and_said(whole: Page) -> None:
    texts = [name for name in whole.texts if name.startswith("data1-")]
    assert all("curve" in name for name in texts)
    left = "BLEU against key dimension, BLEU against parameters, BLEU against multiply-adds, "
    assert f"one value or none: {left}BLEU against key-cache bytes." in whole.words


def test_no_curve_is_said_to_be_missing(content: Content) -> None:
    changed = json.loads(json.dumps(content))
    for curve in changed["sections"][1]["curves"][:2]:
        for run in curve["runs"]:
            run["points"] = []
    words = Page(page.report(changed)).words
    assert "No validation is recorded for rows 1." in words
    assert "No validation is recorded for rows 2." in words


def test_a_single_validation_is_no_curve(content: Content, whole: Page) -> None:
    changed = json.loads(json.dumps(content))
    section = changed["sections"][1]
    for curve in section["curves"]:
        for run in curve["runs"]:
            run["points"] = [[1000, 3.456]]
    words = Page(page.report(changed)).words
    row = section["rows"][0]
    assert "Validated once, after 1,000 updates. " in words
    assert f"{row['number']} {row['label']}: seed {row['seeds'][0]}: 3.46" in words
    drawn = [text.count("Validation loss of row ") for text in (whole.words, words)]
    assert drawn[0] - drawn[1] == len(section["rows"])


def test_one_epoch_is_no_epochs(content: Content) -> None:
    changed = json.loads(json.dumps(content))
    changed["sections"][1]["rows"][0]["epochs"] = [1, 1]
    words = Page(page.report(changed)).words
    assert re.search(r"(?<!\d)1 epoch(?!s)", words)
    assert not re.search(r"(?<!\d)1 epochs", words)


def test_tables_can_be_read_and_reached(whole: Page) -> None:
    assert all(found.get("scope") in ("col", "row", "rowgroup") for found in whole.named("th"))
    regions = whole.named("div", role="region")
    assert len(regions) == len(whole.tables)
    assert all(found["tabindex"] == "0" and found["aria-label"] for found in regions)
    anchors = {f"#{found['id']}" for found in whole.named("section")}
    assert {found["href"] for found in whole.named("a")} == anchors


def test_nothing_is_fetched(content: Content, whole: Page) -> None:
    text = page.report(content)
    assert not re.search(r"https?:|url\(|@import|//\w+\.", text)
    for _, attributes in whole.tags:
        assert not attributes.keys() & {"src", "srcset", "data", "action"}
        assert (attributes.get("href") or "#").startswith("#")
    assert not whole.named("script")
    policy = whole.named("meta", **{"http-equiv": "Content-Security-Policy"})
    assert (policy[0]["content"] or "").startswith("default-src 'none'")
    assert "prefers-color-scheme: dark" in text


def test_names_are_data(content: Content, whole: Page) -> None:
    text = page.report(content)
    assert "<b>" not in text
    assert EVIL in whole.words
    assert "Methods: other, test (1)" in whole.tables


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
    for name in ("a", "b"):
        out = tmp_path / name / "report.html"
        again = collect([runs], out.name, lambda number: lambda name: None)
        command.write(again, out)
    one, other = tmp_path / "a", tmp_path / "b"
    assert sorted(path.name for path in one.iterdir()) == ["report.html", "report.json"]
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()
    stored = json.loads((one / "report.json").read_text())
    assert page.report(stored) == (one / "report.html").read_text()
    assert stored == json.loads(json.dumps(content))


def test_progress_is_told(runs: Path) -> None:
    told: list[Any] = []

    def start(number: int) -> Any:
        told.append(number)
        return told.append

    collect([runs / "more"], "report.html", start)
    assert told == [1, "grouped_128_1"]


def test_runs_that_cannot_stand_in_a_report(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            collect([tmp_path], "report.html", lambda number: lambda name: None)

    start_run(tmp_path, "waiting")
    refused(r"no finished run; waiting: incomplete; finish them")
    run = trained(tmp_path, "collab", 64, 1, 3)
    (run / "generation.txt").rename(run / "kept")
    refused(r"generation\.txt: cannot be read: No such file")
    (run / "kept").rename(run / "generation.txt")
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
