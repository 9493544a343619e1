"""``fairseq-collab score CHECKPOINT --run FOLDER``: a checkpoint becomes a run like any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import USER_DIR, succeed
from refusals import refusing

from collab_lab.cli.score import main
from collab_lab.runs.record import Record, read
from collab_lab.runs.run import Run
from collab_lab.runs.translations import read_hypotheses, read_lines

pytestmark = pytest.mark.slow

SAID = [
    *("--set", "generation.max_len_b=10"),  # it has not learnt to end
    *("--set", "method=pruned", "--set", "share=half"),
    *("--set", "generation.beam=2"),
]


def score(checkpoint: Path, data: Path, run: Path, *options: str) -> None:
    """The command."""
    main([str(checkpoint), str(data), "--run", str(run), "--cpu", *options])


@pytest.fixture(scope="module")
def made(corpus: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a checkpoint."""
    run = tmp_path_factory.mktemp("runs") / "pruned"
    score(trained, corpus, run, *SAID)
    return run


def test_the_record_of_a_checkpoint(made: Path, trained: Path) -> None:
    record = read(Record, made / "score.json")
    assert (record.task, record.method, record.arch) == (
        "translation", "pruned", "transformer_collab",
    )  # fmt: skip
    assert record.overrides["share"] == "half"
    assert (record.beam, record.sentences, record.key_dim, record.heads) == (2, 50, 8, 4)
    assert record.heads_by_type == {"encoder": [4], "decoder": [4], "cross": [4]}
    assert (record.train_updates, record.epochs, record.train_tokens_per_second) == (0, 0, None)
    assert record.valid_loss > record.valid_nats > 0, "in bits and smoothed; in nats and not"
    assert record.averaged == [trained.name]
    started = Run(made).started()
    assert started.checkpoint == str(trained)
    assert started.command is not None
    assert started.command[:2] == ["fairseq-collab", "score"]


def test_translations_are_those_of_fairseq_generate(
    made: Path, corpus: Path, tmp_path: Path
) -> None:
    printed = succeed(
        "fairseq-generate", corpus, *USER_DIR, "--path", made / "average.pt", "--beam", 2,
        "--max-len-b", 10, "--max-tokens", 800, "--cpu",
    )  # fmt: skip
    (tmp_path / "printed").write_text(printed)
    assert read_hypotheses(tmp_path / "printed") == read_lines(made / "translations.txt")


def test_the_same_command_does_what_is_missing(
    made: Path, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    run = tmp_path / "pruned"
    shutil.copytree(made, run)
    before = {path: path.stat().st_mtime_ns for path in run.iterdir() if path.name != "lock"}
    score(trained, corpus, run, *SAID)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    for name in ("score.json", "average.pt", "translations.txt"):
        (run / name).unlink()
    score(trained, corpus, run, *SAID)
    again, first = (json.loads((path / "score.json").read_text()) for path in (run, made))
    clock = {"sentences_per_second": 0, "command": None, "date": None}
    assert {**again, **clock} == {**first, **clock}


def test_another_checkpoint_or_choice_is_refused(
    made: Path, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.pt"
    shutil.copy(trained, other)
    for checkpoint, options, place in (
        (other, SAID, "checkpoint.finetune_from_model"),
        (trained, [*SAID[:2], *SAID[4:]], "pruned"),
        (trained, [*SAID[:-1], "generation.beam=3"], "generation.beam"),
    ):
        with refusing(place):
            score(checkpoint, corpus, made, *options)
    for option, place in (
        ("generation.beams=3", "generation.beams"), ("generation.beam=many", "generation.beam"),
        ("dataset.gen_subset=test0", "raw/test0.de"),
        ("generation.score_reference=true", "generation.score_reference"),
    ):  # fmt: skip
        with refusing(place):
            score(trained, corpus, tmp_path / "new", "--set", option)
    assert not (tmp_path / "new").exists()


def test_perplexities_of_a_language_model(
    ordinary_lm: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    score(ordinary_lm, monolingual, run)
    report = capsys.readouterr().out
    record = read(Record, run / "score.json")
    assert record.task == "language_modeling"
    assert record.perplexity is not None
    assert record.perplexity.keys() == {"valid", "test"}
    assert f"perplexity {record.perplexity['test']:.2f} (test)" in report
    assert record.bleu is None
    assert record.heads_by_type == {"decoder": [4]}
    assert record.multiply_adds
    assert record.key_bytes_per_target_token == 16 * 4
    # The same in blocks, by fairseq-validate: of all tokens, in bits.
    assert record.perplexity["valid"] == pytest.approx(2**record.valid_loss, rel=0.05)
