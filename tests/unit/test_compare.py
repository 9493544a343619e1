"""Paired tests of two translations: what they find, and which pairs they reject."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from refusals import refusing
from run_folders import (
    REFERENCES,
    spoilt,
    start_run,
    write_generation,
    write_run,
    write_translations,
)

from collab_lab.cli.compare import main
from collab_lab.metrics import significance
from collab_lab.runs.translations import read_system

ALL = len(REFERENCES)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.txt"
    path.write_text("".join(f"{line}\n" for line in REFERENCES))
    return path


def files(folder: Path, a: list[str], b: list[str]) -> tuple[Path, Path]:
    return write_generation(folder / "a.out", a), write_generation(folder / "b.out", b)


def test_a_clearly_better_system(tmp_path: Path, reference: Path) -> None:
    texts = files(tmp_path, spoilt(30), spoilt(2))
    systems = [read_system(path, reference).hypotheses for path in texts]
    results = significance.paired(*systems, REFERENCES)
    assert [result.metric for result in results] == ["BLEU", "chrF"]
    for result in results:
        assert result.p < 0.01
        assert result.difference == pytest.approx(result.system - result.baseline)
        assert result.difference > 5
        assert min(result.baseline_ci, result.system_ci) > 0
        assert "bs:1000|seed:12345" in result.signature


@pytest.mark.parametrize(("number", "least"), [(0, 1), (1, 1), (2, 0.5), (5, 0.0625)])
def test_few_different_sentences_are_no_evidence(number: int, least: float) -> None:
    """Of none sacreBLEU itself would say p = 1/(samples + 1)."""
    systems = REFERENCES, spoilt(number)
    assert significance.least_p(*systems) == least
    assert all(one.p >= least for one in significance.paired(*systems, REFERENCES))


def test_runs_bring_their_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_translations(write_run(tmp_path, name, 64), spoilt(wrong), REFERENCES)
        for name, wrong in (("a", 9), ("b", 1))
    ]
    assert main([*map(str, runs)]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| BLEU")]
    recorded = [json.loads((run / "score.json").read_text())["bleu"] for run in runs]
    assert all(f"{bleu:.2f} ±" in row for bleu in recorded)


def test_other_references_are_rejected(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path, name, 64) for name in "ab")
    write_translations(one, REFERENCES, REFERENCES)
    write_translations(other, REFERENCES, spoilt(1))
    with refusing("were scored against different references"):
        main([str(one), str(other)])
    write_translations(other, REFERENCES[1:], REFERENCES[1:])
    with refusing("a_64_1 and ", "different references (40 and 39 sentences); compare"):
        main([str(one), str(other)])


def test_what_is_no_pair_is_rejected(tmp_path: Path, reference: Path) -> None:
    a, b = files(tmp_path, REFERENCES, REFERENCES[1:])
    with refusing("b.out: 39 hypotheses, but 40 sentences in "):
        main([str(a), str(b), "--reference", str(reference)])
    with refusing("a.out: is not a run; give its reference text"):
        main([str(a), str(b)])
    lost = start_run(tmp_path, "lost", verdict="diverged", reason="loss is nan")
    with refusing("lost: not a finished run: diverged (loss is nan); give a run that has"):
        read_system(lost)
    with refusing("is both the baseline and the system; give two systems"):
        main([str(a), f"{tmp_path}/./a.out", "--reference", str(reference)])


@pytest.mark.parametrize("unknown", ["<unk>", "Rehkitz"])
def test_references_are_no_translations(unknown: str, tmp_path: Path) -> None:
    """As ``fairseq-generate --score-reference`` prints them: their BLEU is 100.

    A model that is sure of each of them has learnt a toy task.
    """
    out, reference = tmp_path / "out", tmp_path / "reference"
    targets = [f"Ein {unknown.replace('<unk>', '<<unk>>')} .", "Zwei ."]
    reference.write_text("Ein Rehkitz.\nZwei.\n")
    best = [f"Ein {unknown} .", "Zwei ."]
    found = [(best, -2.5, True), (best, -0.02, False), ([best[0], "Drei ."], -2.5, False)]
    for hypotheses, score, is_rejected in found:
        lines = [
            f"T-{i}\t{target}\nH-{i}\t{score}\t{text}\nD-{i}\t{score}\t{text}\n"
            for i, (target, text) in enumerate(zip(targets, hypotheses, strict=True))
        ]
        out.write_text("".join(reversed(lines)))
        with refusing("every hypothesis is its ref") if is_rejected else contextlib.nullcontext():
            read_system(out, reference)
    with refusing("is both translations and reference"):
        read_system(reference, reference)
