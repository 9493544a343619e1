"""recipes/iwslt14.sh, from an archive on a web server to scores; killed in every stage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from data.corpus_archives import iwslt14
from data.loopback import Server, serving
from data.recipe_runs import (
    arguments,
    assert_same_results,
    environment,
    hypotheses,
    killed,
    outputs,
    refuse,
    succeed,
)

from collab_common.files import locked

pytestmark = pytest.mark.slow

STAGES = ("original", "text", "data", "train", "average", "translation", "score")


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
    assert "tokenised_bleu" in told
    return out


def test_from_download_to_scores(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {"archives", *STAGES}
    score = json.loads((finished / "score" / "score.json").read_text())
    assert score["sentences"] == 30 == len(hypotheses(finished))
    assert score["languages"] == ["de", "en"]
    assert {"bleu", "compound_split_bleu", "tokenised_bleu", "chrf"} <= score.keys()
    assert "tok:13a" in score["bleu_signature"]
    assert "compounds:split" in score["compound_split_signature"]


def test_second_call_has_nothing_to_do(finished: Path) -> None:
    before = {stage: outputs(finished, stage) for stage in STAGES}
    told = succeed("iwslt14", finished, "--from", finished / "archives")
    assert told.count("is up to date, nothing to do") == len(STAGES)
    assert {stage: outputs(finished, stage) for stage in STAGES} == before


def test_other_options_are_refused(finished: Path) -> None:
    error = refuse("iwslt14", finished, "--stage", 3, "--stop-stage", 3, "--variant", "cased")
    assert "text: made from something else (options.variant: 'fairseq' there, 'cased'" in error
    assert "give --force to rebuild it, or choose another --out" in error


def test_changed_input_is_refused(finished: Path, tmp_path: Path) -> None:
    """A stage does not start from files that are not what an earlier stage made."""
    for stage in ("data", "average"):
        (tmp_path / stage).mkdir()
        for path in (finished / stage).rglob("*.*"):
            target = tmp_path / path.relative_to(finished)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    (tmp_path / "data" / "dict.en.txt").write_text("other 1\n")
    error = refuse("iwslt14", tmp_path, "--stage", 7, "--stop-stage", 7)
    assert "data: no longer what its manifest says (dict.en.txt: changed)" in error


def test_two_instances(finished: Path) -> None:
    with locked(finished / ".lock"):
        for stage in (1, 2, 5):
            stages = ("--stage", stage, "--stop-stage", stage)
            error = refuse("iwslt14", finished, *stages, "--from", finished / "archives")
            assert f"another process (pid {os.getpid()}) is at work here" in error


def test_missing_stage(tmp_path: Path) -> None:
    for stage, missing in ((2, "archives/de-en.tgz"), (3, "original"), (4, "text"), (6, "train")):
        error = refuse("iwslt14", tmp_path, "--stage", stage, "--stop-stage", stage)
        assert f"{tmp_path}/{missing}: is not there yet" in error


@pytest.fixture
def server(archive: bytes) -> object:
    with serving() as state:
        state.files["/de-en.tgz"] = archive
        yield state


def test_killed_in_every_stage(finished: Path, server: Server, tmp_path: Path) -> None:
    """Each is killed when its work is done but not recorded; training, in the middle, too."""
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
        if name == "train":
            kill_training(out)
        killed(tmp_path, "iwslt14", out, *only(stage), at="collab_common.folder:_write_manifest")
        assert not (out / name).exists()
        succeed("iwslt14", out, *only(stage))
        assert {done: outputs(out, done) for done in before} == before, "nothing else is redone"
    assert_same_results(out, finished)
    assert {path.name for path in out.iterdir()} == {"archives", *STAGES}, "no leftovers"


def kill_training(out: Path) -> None:
    """SIGKILL to the whole recipe when the first checkpoint is there."""
    process = subprocess.Popen(
        arguments("iwslt14", out, "--stage", 5, "--stop-stage", 5),
        env=environment(fresh=True),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    first = out / ".train.unfinished" / "checkpoint1.pt"
    end = time.monotonic() + 600
    while not first.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert first.exists()
    assert not (out / "train").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stage", "9"], "--stage 9 --stop-stage 8: stages are 1 to 8"),
        (["--stage", "x"], "--stage: 'x' is no whole number"),
        (["--variety", "x"], "--variety: unknown option"),
        (["--gpus", "3"], "an update is 1 batches; give a divisor"),
        (["--method", "best"], "--method best: vanilla, collab or concatenated"),
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
    """It prints all eight stages, also without an environment, and makes no file."""
    out = tmp_path / "out"
    command = ["bash", "recipes/iwslt14.sh", "--dry-run", "--out", out, "--", "--max-update", "5"]
    settings = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr
    for number in range(1, 9):
        assert f"== stage {number}: " in done.stdout
    words = done.stdout.replace("\\\n", " ").split()
    scorer = "fairseq_collab.runs.recipe_score"
    for program in ("fairseq-train", "average", "fairseq-generate", scorer):
        assert program in words
    assert words[words.index("--max-update") + 1] == "5"
    assert not out.exists()
