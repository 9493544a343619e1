"""recipes/iwslt14.sh, from an archive on a web server to scores; killed in every stage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import succeed as command
from data.corpus_archives import iwslt14
from data.loopback import Server, serving
from data.recipe_runs import (
    arguments,
    assert_same_results,
    environment,
    killed,
    outputs,
    refuse,
    scores,
    succeed,
    trained,
)

from collab_common.files import locked

pytestmark = pytest.mark.slow

STAGES = ("original", "text", "data")


@pytest.fixture(scope="module")
def archive(shared_data: Path) -> bytes:
    return iwslt14(shared_data)["de-en.tgz"]


@pytest.fixture(scope="module")
def finished(archive: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stages, fetched from a server that cuts the first answer."""
    out = tmp_path_factory.mktemp("recipe") / "out"
    with serving() as server:
        server.files["/de-en.tgz"] = archive
        server.cut_after = [1000]
        told = succeed("iwslt14", out, "--mirror", server.url)
        assert server.ranges == [None, "bytes=1000-"], "the connection that was cut is resumed"
    assert "== stages 6 to 8: the scores\nmodel-vanilla\nBLEU " in told
    return out


def test_from_download_to_scores(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {"archives", *STAGES, "runs"}
    score = scores(finished)
    assert (score.sentences, score.languages) == (30, ["de", "en"])
    assert score.averaged == ["checkpoint2.pt", "checkpoint3.pt"]
    assert score.tokenised_bleu is not None
    assert "tok:13a" in str(score.bleu_signature)
    assert "compounds:split" in str(score.compound_split_signature)
    assert (score.method, score.arch) == ("vanilla", "transformer")
    table = ("fairseq-collab", "table", finished / "runs", "--x", "none", "--against", "none")
    assert "| vanilla " in command(*table)


@pytest.mark.parametrize(
    ("method", "options", "run"),
    [
        ("headsize", ["--head-size", 4], "model-concatenated_head_size-4"),
        ("grouped_pruned", [], "model-grouped_head_groups-2_constraint-ght_ps_iwslt14_de_en"),
        ("gated", ["--gate-penalty", "0.1"], "model-gated_gate_penalty-0.1"),
    ],
)
def test_methods_of_the_other_papers(
    finished: Path, method: str, options: list[str], run: str, tmp_path: Path
) -> None:
    """Runs beside the vanilla one, which gates start from; what is pruned is fine-tuned."""
    (tmp_path / "data").symlink_to(finished / "data")
    shutil.copytree(finished / "runs", tmp_path / "runs")
    succeed("iwslt14", tmp_path, "--stage", 5, "--method", method, *options)
    tuned = set() if method == "headsize" else {f"model-{run}"}
    found = {
        path.parent.name: json.loads(path.read_text())
        for path in tmp_path.glob("runs/*/score.json")
    }
    assert found.keys() == {"model-vanilla", run, *tuned}
    if method == "grouped_pruned":
        heads = found[f"model-{run}"]["heads_by_site"]
        assert heads == {"encoder": [2], "decoder": [2], "cross": [2]}
        votes = tmp_path / "pruned" / f"{run}.votes.json"
        before = votes.stat().st_mtime_ns
        succeed("iwslt14", tmp_path, "--stage", 5, "--method", method)
        assert votes.stat().st_mtime_ns == before, "voted again"


def test_second_call_has_nothing_to_do(finished: Path) -> None:
    before = {stage: outputs(finished, stage) for stage in STAGES}
    score = trained(finished).score_file.read_bytes()
    told = succeed("iwslt14", finished, "--from", finished / "archives")
    assert told.count("is up to date, nothing to do") == len(STAGES)
    assert "1 runs: 1 finished, 0 to do" in told
    assert {stage: outputs(finished, stage) for stage in STAGES} == before
    assert trained(finished).score_file.read_bytes() == score


def test_other_options_are_refused(finished: Path) -> None:
    error = refuse("iwslt14", finished, "--stage", 3, "--stop-stage", 3, "--variant", "cased")
    assert "text: made from something else (options.variant: 'fairseq' there, 'cased'" in error
    assert "give --force to rebuild it, or choose another --out" in error


def test_changed_data_are_refused(finished: Path, tmp_path: Path) -> None:
    """Nothing is trained on files that are not what made the folder; nor are its scores taken."""
    shutil.copytree(finished / "data", tmp_path / "data")
    dictionary, manifest = tmp_path / "data" / "dict.en.txt", tmp_path / "data" / "manifest.json"
    before = dictionary.read_text()
    dictionary.write_text("other 1\n")
    error = refuse("iwslt14", tmp_path, "--stage", 5)
    assert "data: no longer what its manifest says (dict.en.txt: changed)" in error
    assert not (tmp_path / "runs").exists()
    dictionary.write_text(before)
    run = tmp_path / "runs" / trained(finished).name
    run.mkdir(parents=True)
    shutil.copy(trained(finished).score_file, run)
    content = json.loads(manifest.read_text())
    del content["outputs"]["dict.de.txt"]
    manifest.write_text(json.dumps(content))
    error = refuse("iwslt14", tmp_path, "--stage", 5)
    assert f"{run}: was scored on other text than that of {tmp_path}/data now; give" in error


def test_two_instances(finished: Path) -> None:
    with locked(finished / ".lock"):
        for stage in (1, 2):
            stages = ("--stage", stage, "--stop-stage", stage)
            error = refuse("iwslt14", finished, *stages, "--from", finished / "archives")
            assert f"another process (pid {os.getpid()}) is at work here" in error


def test_missing_stage(tmp_path: Path) -> None:
    for stage, missing in ((2, "archives/de-en.tgz"), (3, "original"), (4, "text")):
        error = refuse("iwslt14", tmp_path, "--stage", stage, "--stop-stage", stage)
        assert f"{tmp_path}/{missing}: is not there yet" in error
    error = refuse("iwslt14", tmp_path, "--stage", 5)
    assert f"{tmp_path}/data: there is no such folder" in error
    error = refuse("iwslt14", tmp_path, "--stage", 6, status=2)
    assert f"{tmp_path}/runs: is not there yet; do stage 5 first" in error


@pytest.fixture
def server(archive: bytes) -> object:
    with serving() as state:
        state.files["/de-en.tgz"] = archive
        yield state


def test_killed_in_every_stage(finished: Path, server: Server, tmp_path: Path) -> None:
    """Those of the data when their work is done but not recorded; training in the middle."""
    out = tmp_path / "out"

    def only(stage: int) -> tuple[object, ...]:
        return ("--stage", stage, "--stop-stage", stage, "--mirror", server.url)

    server.cut_after = [1000]
    killed(tmp_path, "iwslt14", out, *only(1), at="data_prep.fetch:time.sleep")
    assert (out / "archives" / "de-en.tgz.part").stat().st_size == 1000
    for stage, name in enumerate(STAGES, 2):
        before = {done: outputs(out, done) for done in STAGES[: stage - 2]}
        if stage == 2:
            succeed("iwslt14", out, *only(1))
            assert server.ranges == [None, "bytes=1000-"]
        killed(tmp_path, "iwslt14", out, *only(stage), at="collab_common.folder:_write_manifest")
        assert not (out / name).exists()
        succeed("iwslt14", out, *only(stage))
        assert {done: outputs(out, done) for done in before} == before, "nothing else is redone"
    kill_training(out)
    succeed("iwslt14", out, "--stage", 5)
    assert_same_results(out, finished)
    assert {path.name for path in out.iterdir()} == {"archives", *STAGES, "runs"}, "no leftovers"


def kill_training(out: Path) -> None:
    """SIGKILL to the recipe and its sweep when the first checkpoint is there."""
    process = subprocess.Popen(
        arguments("iwslt14", out, "--stage", 5),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    run = out / "runs" / "model-vanilla"
    first = run / "checkpoints" / "checkpoint1.pt"
    end = time.monotonic() + 600
    while not first.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert first.exists()
    assert not (run / "score.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stage", "9"], "--stage 9 --stop-stage 8: stages are 1 to 8"),
        (["--stage", "x"], "--stage: 'x' is no whole number"),
        (["--variety", "x"], "--variety: unknown option"),
        (["--gpus", "3"], "an update is 1 batches; give a divisor"),
        (["--method", "best"], "--method best: one of collab, concatenated, vanilla"),
        (["--", "--max-epoch=1"], "--max-epoch=1: what follows -- is overrides of configs/"),
        (["--out"], "--out: unknown option, or one without its value"),
        (["--jobs", "0"], "--jobs 0: there must be at least one"),
    ],
)
def test_usage(options: list[str], message: str, tmp_path: Path) -> None:
    command = ["bash", "recipes/iwslt14.sh", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("said", "options", "message"),
    [
        ("nothing true", ["--gpus", "0"], "GiB of memory, 9999 are needed to prepare the text"),
        ("python echo 0", ["--gpus", "1"], "--gpus 1: this machine has 0; with --gpus 0 the CPU"),
        ("df printf 'x\\nx 9 9 1048576 x\\n'", ["--gpus", "0"], "1 GiB are free, 2 are needed"),
    ],
)
def test_what_later_stages_need_is_asked_first(
    said: str, options: list[str], message: str, tmp_path: Path
) -> None:
    """Not after a day of data stages. A stand-in says what the machine has."""
    program, _, answer = said.partition(" ")
    stand_in = tmp_path / "bin" / program
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!/bin/sh\n{answer}\n")
    stand_in.chmod(0o755)
    settings = environment(needs_memory="9999")
    settings["PATH"] = f"{stand_in.parent}:{settings['PATH']}"
    command = ["bash", "recipes/iwslt14.sh", "--out", str(tmp_path / "out"), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_dry_run_does_nothing(tmp_path: Path) -> None:
    """It prints all stages, also without an environment, and makes no file."""
    out = tmp_path / "out"
    recipe = ["bash", "recipes/iwslt14.sh", "--dry-run", "--out", out, "--force"]
    settings = {"PATH": "/usr/bin:/bin"}
    more = ["--variant", "cased", "--", "optimization.max_update=5"]
    done = subprocess.run([*recipe, *more], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    for number in range(1, 6):
        assert f"== stage {number}: " in done.stdout
    words = done.stdout.replace("\\\n", " ").split()
    assert {"sweep", "score", "optimization.max_update=5"} <= {*words}
    assert "common_eval.post_process=sentencepiece" in words
    assert words[words.index("rm") + 2] == f"{out}/runs/model-vanilla"
    assert not out.exists()
