"""The page of ``fairseq-collab report``: ``report.json`` for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fairseq_collab.results.markup import Markup, element, join
from fairseq_collab.results.page import document, facts, own
from fairseq_collab.results.report import figures, page_tables

Content = Mapping[str, Any]
METHODS = (
    "Means over seeds. Below a score: its 95 % interval and, from two seeds on, the standard "
    "deviation over seeds (SD, n - 1). The interval is a bootstrap of the test sentences "
    "(sacreBLEU's draws): of each draw the mean of the seeds' scores, all seeds on the same "
    "sentences; 95 % of the draws lie in it. It speaks of other sentences, the SD of other "
    "seeds. BLEU and chrF: sacreBLEU on detokenised, cased text. Multiply-adds: one full forward "
    "pass of a sentence pair. Caches: bytes of the keys of all decoder layers in single precision, "
    "of one token of one sentence; values come on top. Decoding speed: fairseq-generate's own "
    "clock. Best and Pareto are among rows of one budget."
)
CURVES = (
    "Negative log-likelihood of a target token of the validation set, in bits (2 to the power of "
    "it is the perplexity), against training updates; without label smoothing and penalties. Each "
    "drawing is a row, a line a seed (every second one broken); all other rows of the folder are "
    "behind it in grey. Drawings of one folder have the same axes."
)
PAPERS = (
    "Differences to each side's own baseline: corpora, languages, model sizes and trainings are "
    "others, so the scores themselves do not compare. Parameters: more or fewer than the "
    "baseline's."
)


def report(content: Content) -> str:
    """The whole page; the same content gives the same page."""
    sections = content["sections"]
    parts: list[tuple[str, str, Markup]] = []
    for number, section in enumerate(sections, 1):
        many = len(sections) > 1
        prefix = f"data{number}" if many else "data"
        suffix = f": {section['data']}, {section['subset']} ({number})" if many else ""
        for anchor, name, inside in _section(content, section, prefix, suffix):
            parts.append((f"{prefix}-{anchor}", name + suffix, inside))
    parts.append(("made", "How this page was made", facts(_made(content))))
    if content["left_out"]:
        lines = element("ul", *(element("li", line) for line in content["left_out"]))
        parts.append(("left-out", "Not in the tables", lines))
    style = own("fairseq_collab.results.report", "report.css")
    return document(title(content), summary(content), parts, styles=[style])


def title(content: Content) -> str:
    """Names the data sets."""
    names = dict.fromkeys(section["data"] for section in content["sections"])
    return f"Methods, costs and scores: {', '.join(names)}"


def summary(content: Content) -> str:
    """How much there is, and that data sets are not mixed."""
    sections = content["sections"]
    runs = sum(len(section["runs"]) for section in sections)
    rows = sum(len(section["rows"]) for section in sections)
    text = f"{_count(runs, 'finished run')} of {_count(rows, 'model')}"
    if len(sections) > 1:
        text += f" on {len(sections)} test sets, which are never mixed in a table"
    return f"{text}. Every number is in the JSON file beside this page, with six digits."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _section(
    content: Content, section: Content, prefix: str, suffix: str
) -> Iterator[tuple[str, str, Markup]]:
    """Anchor, heading and content of every part on one data set.

    Args:
        prefix, suffix: of anchors and captions, so that no two of a page are the same
    """
    rows = {row["number"]: row for row in section["rows"]}
    yield (
        "compared",
        "What was compared",
        facts(_compared(section)) + page_tables.budgets(section, suffix),
    )
    yield "methods", "Methods", _how(METHODS) + page_tables.methods(section, suffix)
    yield "figures", "Scores against costs", figures.against_costs(section, prefix)
    yield "curves", "Learning curves", _how(CURVES) + figures.learning_curves(section, prefix)
    if len(rows) > 1:
        how = page_tables.tests_text(section, content["samples"], content["seed"])
        yield (
            "tests",
            "Which differences are chance",
            join(
                [_how(how), page_tables.tests(section, suffix), page_tables.pairs_in_words(section)]
            ),
        )
    found = [page_tables.paper(paper, rows, suffix) for paper in section["papers"]]
    yield "papers", "Papers and ours", _how(PAPERS) + join(found)
    yield "runs", "Runs and commands", join(_runs(section, suffix))
    yield "not-shown", "What this does not show", _list(_notes(section))


def _how(text: str) -> Markup:
    return element("p", text, class_="how")


def _list(lines: Sequence[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines), class_="notes")


def _notes(section: Content) -> list[str]:
    return [line[0].upper() + line[1:] for line in (*section["warnings"], *section["notes"])]


def _compared(section: Content) -> Iterator[tuple[str, str]]:
    """What all rows share."""
    yield "data", section["data"]
    yield "its SHA-256", section["data_sha256"] or "no manifest"
    yield "test subset", f"{section['subset']}, {section['sentences']:,} sentences"
    yield "SHA-256 of the reference", section["reference_sha256"]
    yield "seeds", ", ".join(map(str, section["seeds"]))
    folders = dict.fromkeys(row["experiment"] for row in section["rows"])
    yield "folders of runs", ", ".join(folders)
    yield "BLEU", section["bleu_signature"]
    yield "chrF", section["chrf_signature"]


def _runs(section: Content, suffix: str) -> Iterator[Markup]:
    runs = section["runs"]
    yield facts(
        (name, "; ".join(sorted({value(run) for run in runs})))
        for name, value in (
            ("hardware", lambda run: str(run["hardware"])),
            ("versions", lambda run: _versions(run["versions"])),
            ("trained at commit", lambda run: str(run["trained_at_commit"] or "not recorded")),
            ("scored at commit", lambda run: str(run["scored_at_commit"])),
            ("dates", lambda run: str(run["date"])),
        )
    )
    yield element(
        "details", element("summary", f"All {len(runs)} runs"), page_tables.runs(section, suffix)
    )
    yield element("h3", "Commands")
    yield page_tables.commands(section)


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _made(content: Content) -> Iterable[tuple[str, str]]:
    yield "command", content["command"]
    yield "commit", str(content["made"]["commit"])
    yield "versions", _versions(content["made"]["versions"])
    yield "bootstrap", f"{content['samples']:,} draws, seed {content['seed']}"
