"""``fairseq-collab score --gen-subset``: a run that has its scores, on a second test set."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import REPOSITORY, run_command, succeed
from run_folders import write_run

from fairseq_collab.commands import score

STORED = REPOSITORY / "tests" / "stored" / "transformer_collab_1"
CONFIG = """\
common: {{cpu: true, fp16: false, seed: 1, user_dir: {user_dir}}}
common_eval: {{post_process: null}}
dataset: {{gen_subset: test, num_workers: 0, max_tokens: 800, max_tokens_valid: null}}
generation: {{beam: 2, lenpen: 1}}
model: {{_name: transformer_collab}}
task: {{data: {data}, source_lang: en, target_lang: de}}
"""
#: Of the model that the run's own scores are of.
LOG = """\
| train | {"train_wps": "9", "train_wpb": "9", "train_train_wall": "0", "train_num_updates": "4240"}
| valid | {"epoch": 1, "valid_loss": "4.0"}
"""


@pytest.fixture
def runs(corpus: Path, tmp_path: Path) -> Path:
    """A run with its own scores and the stored model, and one that has failed."""
    good = write_run(tmp_path / "runs", "collab", 8)
    failed = tmp_path / "runs" / "failed"
    failed.mkdir()
    for folder in (good, failed):
        config = CONFIG.format(user_dir=REPOSITORY / "fairseq_collab", data=corpus)
        (folder / "config.yaml").write_text(config)
        (folder / "train.log").write_text(LOG)
    (failed / "failed.json").write_text('{"verdict": "failed", "reason": "out of memory"}')
    shutil.copy(STORED / "checkpoint.pt", good / "average.pt")
    return tmp_path / "runs"


def test_a_second_test_set(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = runs / "collab_8_1"
    before = {name: (good / name).read_bytes() for name in ("score.json", "average.pt")}
    done = run_command("fairseq-collab", "score", runs, "--gen-subset", "valid")
    assert done.returncode == 1, done.stderr
    assert "collab_8_1\nBLEU " in done.stdout
    assert done.stderr.strip().splitlines()[-1] == (
        f"fairseq-collab score: error: {runs / 'failed'}: is not trained: failed (out of memory); "
        "finish it (sweep)"
    )
    assert before == {name: (good / name).read_bytes() for name in before}
    assert not (good / "generation.txt").exists()
    facts = json.loads((good / "score.valid.json").read_text())
    assert (facts["subset"], facts["reference"]) == ("valid", "raw/valid.de")
    assert facts["hypotheses"] == "generation.valid.txt"
    assert facts["averaged"] == json.loads(before["score.json"])["averaged"]
    assert facts["hardware"] == "some processor", "of the training, not of the translation"
    assert facts["bleu"] > 30, "the stored model has learnt to copy"
    assert f"BLEU {facts['bleu']:.2f} " in done.stdout

    written = (good / "generation.valid.txt").stat().st_mtime_ns
    assert score.main([str(runs), "--gen-subset", "valid", "--json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert (again["run"], again["bleu"]) == ("collab_8_1", facts["bleu"])
    assert (good / "generation.valid.txt").stat().st_mtime_ns == written, "not translated again"

    report = succeed("fairseq-collab", "table", runs, "--gen-subset", "valid")
    assert "valid (50 sentences)" in report
    assert "--gen-subset valid`, from the runs' `score.valid.json`" in report
    assert "- failed: failed (out of memory)" in report
