"""recipes/wmt14_en_de.sh, from archives on a web server to scores; and what it would run."""

from __future__ import annotations

import json
import shlex
import subprocess
from functools import partial
from pathlib import Path

import pytest
from data.corpus_archives import google, served, wmt14
from data.loopback import serving
from data.recipe_runs import environment, hypotheses, refuse, succeed

pytestmark = pytest.mark.slow


def test_from_download_to_scores(shared_data: Path, tmp_path: Path) -> None:
    """Five archives, a collaborative model; the second connection is cut."""
    out = tmp_path / "out"
    small = ("--method", "collab", "--key-dim", 16)
    with serving() as server:
        server.files = served(wmt14(shared_data))
        server.cut_after = [10**9, 2000]
        succeed("wmt14_en_de", out, "--mirror", server.url, *small)
        assert server.ranges.count("bytes=2000-") == 1
    score = json.loads((out / "score" / "score.json").read_text())
    assert score["sentences"] == 20 == len(hypotheses(out))
    assert {"bleu", "compound_split_bleu", "tokenised_bleu"} <= score.keys()
    assert score["variant"] == "wmt14"
    assert "own archives" in score["note"], "nobody takes this for WMT14"


def test_ready_made_archive(shared_data: Path, tmp_path: Path) -> None:
    """Google's, from a folder, up to the data folder: its dictionary is cut to 32,768."""
    source = tmp_path / "from"
    source.mkdir()
    for name, content in google(shared_data).items():
        (source / name).write_bytes(content)
    out = tmp_path / "out"
    options = ("--variant", "google", "--stop-stage", 4)
    told = succeed("wmt14_en_de", out, "--from", source, *options)
    assert "--joined-dictionary --nwordssrc=32768 --nwordstgt=32768" in told
    assert (out / "data" / "dict.en.txt").read_bytes() == (
        out / "data" / "dict.de.txt"
    ).read_bytes()
    error = refuse("wmt14_en_de", tmp_path / "other", "--from", tmp_path / "absent", *options)
    assert "absent/wmt16_en_de.tar.gz: no such file" in error


def commands(*options: str) -> dict[str, list[str]]:
    """The commands of a dry run, by the program that does the work."""
    told = subprocess.run(
        ["bash", "recipes/wmt14_en_de.sh", "--dry-run", "--out", "/o", *options],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    ).stdout.replace("\\\n", " ")
    found = {}
    for line in told.splitlines():
        words = shlex.split(line, comments=False)
        if words and words[0] == "python":
            inner = words[words.index("--") + 1 :] if "--" in words else words[2:]
            found[" ".join(inner[:2]) if "data_prep" in inner[0] else inner[0]] = inner
    return found


def options_of(command: list[str]) -> dict[str, str]:
    """--name value pairs; the last of a name counts, as for fairseq."""
    return {
        word: "" if after.startswith("--") else after
        for word, after in zip(command, [*command[1:], "--"], strict=True)
        if word.startswith("--")
    }


#: arXiv 2006.16362's README, as far as it goes.
STATED = {
    "--adam-betas": "(0.9, 0.98)",
    "--clip-norm": "0.0",
    "--criterion": "label_smoothed_cross_entropy",
    "--dropout": "0.1",
    "--fp16": "",
    "--label-smoothing": "0.1",
    "--lr": "0.0007",
    "--lr-scheduler": "inverse_sqrt",
    "--max-tokens": "3584",
    "--optimizer": "adam",
    "--share-all-embeddings": "",
    "--stop-min-lr": "1.0e-9",  # fairseq 0.12.2's name of --min-lr
    "--warmup-init-lr": "1.0e-7",
    "--warmup-updates": "4000",
    "--weight-decay": "0.0",
}
#: What it leaves open, and where the files go.
OURS = {"--max-update": "100000", "--keep-last-epochs": "5", "--seed": "1"}
HERE = {"--user-dir", "--save-dir", "--log-format", "--log-file", "--distributed-world-size"}
MODEL = {
    "--arch": "transformer_collab_wmt_en_de",
    "--key-dim": "128",
    "--collaborative-sites": "encoder,decoder,cross",
    "--mixing-init": "xavier",
    "--attention-scale": "embed",
    "--attention-bias": "projection",
    "--value-init": "fork",
}


@pytest.mark.parametrize(("gpus", "freq"), [("1", "8"), ("2", "4"), ("4", "2"), ("8", "1")])
def test_training_is_the_papers(gpus: str, freq: str) -> None:
    """Every option of the training, and none that is not accounted for."""
    given = options_of(commands("--stage", "5", "--gpus", gpus)["fairseq-train"])
    expected = STATED | OURS | MODEL | {"--update-freq": freq}
    assert given.keys() - HERE == expected.keys()
    assert {name: given[name] for name in expected} == expected
    assert given["--distributed-world-size"] == gpus


def test_baselines() -> None:
    concatenated = options_of(commands("--stage", "5", "--method", "concatenated")["fairseq-train"])
    assert concatenated["--arch"] == "transformer_headsize_n_wmt_en_de"
    assert concatenated["--key-init"] == concatenated["--value-init"] == "fork"
    vanilla = options_of(commands("--stage", "5", "--method", "vanilla")["fairseq-train"])
    assert vanilla["--arch"] == "transformer_wmt_en_de"
    assert "--key-dim" not in vanilla


def test_translation_and_score() -> None:
    found = commands("--stage", "5")
    generation = options_of(found["fairseq-generate"])
    assert generation["--beam"] == "4"
    assert generation["--lenpen"] == "0.6"
    assert generation["--gen-subset"] == "test"
    assert options_of(found["fairseq-collab"])["--last"] == "5"
    assert found["fairseq-generate"][1] == found["fairseq-train"][1] == "/o/data"


def test_data_stages_in_order() -> None:
    found = commands("--jobs", "3", "--variant", "fairseq", "--stop-stage", "4")
    stages = ("fetch", "extract", "text", "binarise")
    assert list(found) == [f"data_prep.wmt14 {stage}" for stage in stages]
    assert options_of(found["data_prep.wmt14 binarise"])["--jobs"] == "3"


def test_dry_run_tells_what_the_data_stages_do() -> None:
    command = ["bash", "recipes/wmt14_en_de.sh", "--dry-run", "--stop-stage", "4"]
    run = partial(subprocess.run, capture_output=True, text=True, env=environment())
    told = run(command).stdout
    assert "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz (657,632,379" in told
    assert "wmt14/dev.tgz (no hash published: locked at the first download)" in told
    assert "test-full/newstest2014-deen-ref.de.sgm -> newstest2014.de.sgm" in told
    assert '"valid": "newstest2013", "clean": {"ratio": 1.5, "shortest": 1, "longest": 250}' in told
    assert "#   fairseq-preprocess --source-lang en --target-lang de --trainpref" in told
    refused = run([*command, "--variant", "wmt15"])
    assert refused.returncode != 0
    assert "invalid choice: 'wmt15'" in refused.stderr
