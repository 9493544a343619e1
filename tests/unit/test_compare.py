"""Paired tests of two translations: what they find, and which pairs they reject."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from refusals import refusing
from run_folders import start_run, write_generation, write_run, write_translations

from fairseq_collab.commands.compare import main
from fairseq_collab.metrics import significance
from fairseq_collab.runs.translations import read_system

WORDS = [f"Wort{i}" for i in range(15)]


def sentences(number: int = 60) -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randint(6, 12))) for _ in range(number)]


def spoilt(lines: list[str], words: int) -> list[str]:
    """Other words at the end of every line."""
    return [" ".join([*line.split()[:-words], *["falsch"] * words]) for line in lines]


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.txt"
    path.write_text("".join(f"{line}\n" for line in sentences()))
    return path


def files(folder: Path, a: list[str], b: list[str]) -> tuple[Path, Path]:
    return write_generation(folder / "a.out", a), write_generation(folder / "b.out", b)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_clearly_better_system(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = files(tmp_path, spoilt(sentences(), 3), spoilt(sentences(), 1))
    found = run_json(capsys, a, b, "--reference", reference, "--test", "both", "--samples", 200)
    assert found["different"] == found["sentences"] == 60
    kinds = {(result["test"], result["metric"]) for result in found["results"]}
    assert kinds == {(t, m) for t in ("bootstrap", "randomisation") for m in ("BLEU", "chrF")}
    for result in found["results"]:
        assert result["p"] < 0.01
        assert result["difference"] == pytest.approx(result["system"] - result["baseline"])
        assert result["difference"] > 5
        assert min(result["baseline_ci"], result["system_ci"]) > 0
        assert "seed:12345" in result["signature"]
        count = "bs:200" if result["test"] == "bootstrap" else "ar:200"
        assert count in result["signature"]


@pytest.mark.parametrize(("number", "least"), [(0, 1), (1, 1), (2, 0.5), (5, 0.0625)])
def test_few_different_sentences_are_no_evidence(
    tmp_path: Path, reference: Path, number: int, least: float
) -> None:
    """Of none sacreBLEU itself would say p = 1/(samples + 1)."""
    a, b = files(tmp_path, sentences(), spoilt(sentences()[:number], 3) + sentences()[number:])
    systems = [read_system(path, reference).hypotheses for path in (a, b)]
    assert significance.least_p(*systems) == least
    for result in significance.paired(*systems, sentences(), "randomisation", 100):
        assert result.p >= least


def test_runs_bring_their_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_translations(write_run(tmp_path, name, 64), spoilt(sentences(), n), sentences())
        for name, n in (("a", 3), ("b", 1))
    ]
    found = run_json(capsys, *runs, "--samples", 50)
    assert found["results"][0]["p"] < 0.05
    recorded = json.loads((runs[0] / "score.json").read_text())["bleu"]
    assert found["results"][0]["baseline"] == pytest.approx(recorded)


def two_runs(parent: Path, **facts: object) -> list[str]:
    """Two finished runs; ``facts`` are the second one's."""
    return [
        str(write_translations(write_run(parent, name, 64, **mine), sentences(), sentences()))
        for name, mine in (("a", {}), ("b", facts))
    ]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"subset": "valid"}, "different subsets: test in "),
        ({"data": "other"}, "different data sets: toy in "),
        ({"data_sha256": "ffff"}, "different data (data_sha256): 0123abcd in "),
    ],
)
def test_other_data_is_rejected(tmp_path: Path, facts: dict[str, str], message: str) -> None:
    with refusing(message):
        main(two_runs(tmp_path, **facts))


def test_other_references_are_rejected(tmp_path: Path) -> None:
    runs = two_runs(tmp_path)
    write_translations(Path(runs[1]), sentences(), spoilt(sentences(), 1))
    with refusing("were scored against different references"):
        main(runs)
    write_translations(Path(runs[1]), sentences(59), sentences(59))
    with refusing("60 sentences in ", "a_64_1, 59 in "):
        main(runs)


def test_what_is_no_pair_is_rejected(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = files(tmp_path, sentences(), sentences(59))
    with refusing("b.out: 59 hypotheses, but 60 sentences in "):
        main([str(a), str(b), "--reference", str(reference)])
    with refusing("a.out: is not a run; give its reference text"):
        main([str(a), str(b)])
    lost = start_run(tmp_path, "lost", verdict="diverged", reason="loss is nan")
    with refusing("lost: not a finished run: diverged (loss is nan); give a run that has"):
        main([str(lost), str(lost)])
    monkeypatch.setenv("SACREBLEU_SEED", "0")
    with refusing("SACREBLEU_SEED: '0' is no seed"):
        main([str(a), str(a), "--reference", str(reference)])
