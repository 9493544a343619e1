"""Where commands meet: a file of another model, other content of a path, a word nobody reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.hub_utils import GeneratorHubInterface, from_pretrained
from omegaconf import OmegaConf
from refusals import refusing, wrong_usage
from run_folders import write_run

from collab_lab import average_checkpoints, open_model
from collab_lab.cli import score
from collab_lab.cli.main import main
from collab_lab.export.plain import write_plain
from collab_lab.heads import stages
from collab_lab.runs import config_folder
from collab_lab.runs.checks import check_generation
from collab_lab.runs.inputs import check_inputs, inputs_of
from collab_lab.runs.record import Started
from collab_lab.runs.run import Run
from collab_lab.runs.score import method_of
from collab_lab.runs.sweep import plan
from collab_lab.trained.sentences import dataset_of

FAST = ("--sentences=9", "--cpu")


def fails(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """A command that fails: the last line that it says."""
    assert main([str(word) for word in words]) == 1
    return capsys.readouterr().err.strip().splitlines()[-1]


def with_other_weights(path: Path, out: Path) -> Path:
    model = open_model(path, toy_checkpoints.COPY)
    toy.randomised(model.model)
    model.save(out)
    return out


# ---- of another model ----------------------------------------------------------------------------


def test_votes_of_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another seed, say: the head counts are equal."""
    ours = toy_checkpoints.write(tmp_path / "a.pt", "transformer_grouped_heads", head_groups=2)
    other, votes = with_other_weights(ours, tmp_path / "b.pt"), tmp_path / "votes.json"
    assert main(["vote", str(ours), str(toy_checkpoints.COPY), "--out", str(votes), "--cpu"]) == 0
    words = (toy_checkpoints.COPY, "--votes", votes, "--no-refit", *FAST, "--out")
    assert "another model" in fails(capsys, "prune", other, *words, tmp_path / "of_b.pt")
    assert main([str(word) for word in ("prune", ours, *words, tmp_path / "of_a.pt")]) == 0


def test_sentences_of_prices_are_those_that_there_are(tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    number = len(dataset_of(model, "valid"))
    assert stages.price(model, "valid", 10 * number)["price"] == {"sentences": number}


def test_an_export_has_no_plan_of_what_it_fills_up(tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    costs = {"heads": 1, "parameters": 1, "cache": 1}
    shrunk = model.with_plan({"whole": costs, "costs": costs})
    assert shrunk.shrunk
    write_plain(shrunk, tmp_path)
    assert open_model(tmp_path / "model.pt", toy_checkpoints.COPY).shrunk is None


def test_a_tokeniser_that_reads_a_text_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MarianTokenizer knows languages, and no option switches that off."""
    data, source = tmp_path / "data", toy_checkpoints.write(tmp_path / "c.pt")
    shutil.copytree(toy_checkpoints.COPY, data)
    (data / "spm.model").write_bytes(b"")
    words = ("export", source, data, "--format=hf", "--out", tmp_path / "out")
    assert main([str(word) for word in words]) == 0
    assert ">>" in capsys.readouterr().out


def test_one_model_as_two_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``score --set common.seed`` names a seed; no translation depends on it, without sampling."""
    for seed, nats in ((1, 2.5), (2, 2.5), (3, 2.4)):
        write_run(tmp_path / "runs", "collab", 64, seed, valid_nats=nats)
        if seed != 1:
            write_run(tmp_path / "others", "collab", 64, seed, valid_nats=nats)
    for folder, is_said in (("runs", True), ("others", False)):
        assert main(["table", str(tmp_path / folder), "--x", "none"]) == 0
        assert ("scored twice" in capsys.readouterr().out) == is_said


def test_a_mean_of_two_trainings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, near = tmp_path / "one.pt", tmp_path / "near.pt"
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    model.save(one)
    other = with_other_weights(one, tmp_path / "other.pt")
    for weight in model.model.parameters():
        weight.data *= 1.01
    model.save(near)
    average_checkpoints([one, near], tmp_path / "mean.pt")
    assert not capsys.readouterr().err
    average_checkpoints([one, other], tmp_path / "mean.pt")
    assert "one training?" in capsys.readouterr().err


# ---- a path with other content -------------------------------------------------------------------


def test_a_training_of_a_former_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The printed command would resume it, and train the new model not at all."""
    source, tuned = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "small"
    words = ("prune", source, toy_checkpoints.COPY, "--remove=1", *FAST, "--out", f"{tuned}.pt")
    tuned.mkdir()
    (tuned / "checkpoint_last.pt").touch()
    assert "checkpoint_last.pt" in fails(capsys, *words, "--force")


@pytest.mark.parametrize("changed", ["data", "second", "weights"])
def test_a_run_of_other_content(changed: str, tmp_path: Path) -> None:
    weights, run = tmp_path / "c.pt", Run(tmp_path / "run")
    for name in ("data", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"outputs": {"a": 1}}))
    weights.write_bytes(b"one")
    config = OmegaConf.create(
        {
            "task": {"data": f"{tmp_path}/data:{tmp_path}/second"},
            "checkpoint": {"finetune_from_model": str(weights)},
        }
    )
    run.folder.mkdir()
    check_inputs(run, config)  # nothing has been started
    run.start(Started({}, inputs=inputs_of(config)), config)
    check_inputs(run, config)
    if changed == "weights":
        weights.write_bytes(b"other")
    else:
        (tmp_path / changed / "manifest.json").write_text(json.dumps({"outputs": {"a": 2}}))
    with refusing("run", "finetune_from_model" if changed == "weights" else changed):
        check_inputs(run, config)


# ---- words that nobody reads ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["beam ", " beam", "+beam", "~beam", "generation:beam"])
def test_a_fact_that_looks_like_an_option(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wrong_usage(capsys, "--set"):
        score.main(["c.pt", "data", "--run", str(tmp_path / "run"), "--set", f"{name}=1"])


def test_subwords_of_no_kind() -> None:
    config = {"generation": {}, "common_eval": {"post_process": "sentencepeace"}}
    with refusing("common_eval.post_process", "sentencepeace"):
        check_generation(OmegaConf.create(config))


@pytest.mark.parametrize(
    "word",
    [
        "hydra.sweep.dir=x", "hydra/launcher=basic", "+hydra.sweeper.params.model.dropout=0,1",
        "~hydra.sweeper.params", "+runs=[{model: vanilla}]", "checkpoint.save_dir=x",
        "common.log_format=simple", "common_eval.path=x.pt", "interactive.buffer_size=3",
    ],
)  # fmt: skip
def test_options_that_no_run_reads(word: str) -> None:
    with refusing(word.lstrip("+~").partition("=")[0]):
        plan(config_folder() / "experiment" / "decide.yaml", [word])


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ([], "standard"),
        (["model=latent"], "latent"),
        (["model=latent", "method=mine"], "mine"),
    ],
)
def test_the_method_of_another_model(words: list[str], method: str) -> None:
    """An experiment's name for its own model is no name of the one in its place."""
    (job,) = plan(config_folder() / "experiment" / "decide.yaml", ["common.seed=choice(1)", *words])
    assert method_of(job.config, job.overrides) == method


def test_empty_words_and_no_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a variable that is not set: they are no defaults."""
    write_run(tmp_path / "runs", "collab", 64)
    assert "--x" in fails(capsys, "table", tmp_path / "runs", "--x", "")
    source, out = toy_checkpoints.write(tmp_path / "c.pt"), ("--out", tmp_path / "s.pt")
    words = ("shrink", source, toy_checkpoints.COPY, *FAST, *out)
    assert "--kinds" in fails(capsys, *words, "--cache=0.9", "--kinds", "")
    assert "--lose" in fails(capsys, *words, "--lose=nan")
    assert "--only" in fails(capsys, *words, "--heads=0.9", "--only", "")


def test_no_rounding_to_leave_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "out"
    words = ("export", source, toy_checkpoints.COPY, "--format=fairseq", "--out", out)
    assert "--no-cache-bits" in fails(capsys, *words, "--no-cache-bits")
    assert not out.exists()


@pytest.mark.parametrize(
    ("arch", "override"),
    [
        ("transformer", {"beam": 1}),
        ("transformer", {"left_pad_source": False}),
        ("transformer_headsize_n", {"cache_bits": None}),
        ("transformer_headsize_n", {"cache_bits_in_cross": [4, 4]}),
    ],
)
def test_overrides_that_act_on_nothing(arch: str, override: dict[str, Any], tmp_path: Path) -> None:
    """As of fairseq-generate, which has its task already."""
    path = str(toy_checkpoints.write(tmp_path / "c.pt", arch))
    task = open_model(path, toy_checkpoints.COPY).task
    for known in ({"dropout": 0.5}, {"max_target_positions": 9}):
        assert load_model_ensemble_and_task([path], known, task)
    with refusing(*override):
        load_model_ensemble_and_task([path], override, task)


def test_the_hub(tmp_path: Path) -> None:
    """Of a checkpoint of a sweep, whose configuration says nothing of subwords."""
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n")
    model = open_model(path, toy_checkpoints.COPY)
    content = model.content()
    content["cfg"] = {k: v for k, v in content["cfg"].items() if k not in ("bpe", "tokenizer")}
    torch.save(content, path)
    opened = from_pretrained(str(tmp_path), path.name, str(toy_checkpoints.COPY), bpe="characters")
    hub = GeneratorHubInterface(opened["args"], opened["task"], opened["models"])
    assert hub.apply_bpe("a b") == "a \u2581 b"
    assert hub.translate("a", beam=2, lenpen=0.5, max_len_b=3) is not None
    with refusing("no_repeat_ngram", "no_repeat_ngram_size?"):
        hub.translate("a", beam=2, no_repeat_ngram=1)
