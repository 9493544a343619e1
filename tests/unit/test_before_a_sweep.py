"""What a sweep refuses before it trains, and what its trainings get from the shell around them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from omegaconf import OmegaConf
from refusals import refusing

from collab_common.folder import build_folder, read_finished
from collab_lab import open_model, prune
from collab_lab.cli import sweep as command
from collab_lab.cli.main import main
from collab_lab.runs import config_folder, scheduler, train_and_score
from collab_lab.runs.checks import OUTPUTS, check_alone, check_data, check_files, check_kept
from collab_lab.runs.inputs import check_inputs, inputs_of
from collab_lab.runs.record import Started
from collab_lab.runs.run import Run
from collab_lab.runs.scheduler import Scheduler
from collab_lab.runs.sweep import Job, plan
from collab_lab.runs.training import validate

#: What torchrun, Slurm and Weights & Biases leave in a shell.
LEFT = {
    **{"WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "elsewhere"},
    **{"MASTER_PORT": "1", "SLURM_JOB_NODELIST": "a,b", "SLURM_NTASKS": "2", "SLURM_NODEID": "1"},
    **{"TORCHELASTIC_RUN_ID": "x", "WANDB_RUN_ID": "x", "WANDB_NAME": "x"},
}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine" / "my.yaml"
    path.parent.mkdir()
    defaults = "[/base, {/model: collab}, _self_]"
    task = "{data: data, source_lang: en, target_lang: de}"
    path.write_text(f"# @package _global_\ndefaults: {defaults}\nmethod: m\ntask: {task}\n")
    return path


def with_test_set(folder: Path) -> Path:
    """A data folder with the text of its test set."""
    shutil.copytree(toy_checkpoints.COPY, folder)
    (folder / "raw").mkdir()
    (folder / "raw" / "test.de").touch()
    return folder


# ---- the processes -------------------------------------------------------------------------------


def test_a_training_is_one_process_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever job a shell belonged to; and each run has its own name in Weights & Biases.

    Sweeps of two folders may have folders of one name in these.
    """
    for name, value in LEFT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    script = "import json, os; json.dump(dict(os.environ), open('environment', 'w'))"
    monkeypatch.setattr(scheduler, "child_command", lambda _: [sys.executable, "-c", script])
    job = Job("one", {}, OmegaConf.create({"common": {"cpu": True}}))
    names = set()
    for sweep in ("first/heads", "second/heads"):
        run = Run(tmp_path / sweep / "one")
        ours = Scheduler({run: job}, 1, [])
        while ours.step():
            pass
        found = json.loads((run.folder / "environment").read_text())
        assert found.keys() & LEFT.keys() == {"WANDB_NAME"}
        assert found["WANDB_NAME"].startswith("heads/one ")
        assert found["WANDB_PROJECT"] == "ours"
        assert found["PATH"] == os.environ["PATH"]
        names.add(found["WANDB_NAME"])
    assert len(names) == 2


def test_a_folder_whose_name_begins_with_dots_is_the_runs_own(mine: Path) -> None:
    (job,) = plan(mine, ["common.tensorboard_logdir=..boards"])
    check_alone(job.config)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("distributed_training.distributed_port", 12345),
        ("distributed_training.distributed_init_method", "env://"),
        ("common.tensorboard_logdir", "/tmp/boards"),
        ("common.tensorboard_logdir", "../boards"),
        ("common.tensorboard_logdir", "logs/../../boards"),
        ("common.log_file", "/tmp/log"),
        # Aim goes on with the run of this save_dir, which is the same in all runs of a sweep.
        ("common.aim_repo", "/tmp/aim"),
        ("common.aim_repo", "aim://localhost:53800"),
        ("common.azureml_logging", True),
    ],
)
def test_options_of_several_machines_or_runs(option: str, value: Any, mine: Path) -> None:
    (job,) = plan(mine, [])
    check_alone(job.config)
    (job,) = plan(mine, [f"{option}={value}"])
    with refusing(option):
        check_alone(job.config)
    if option in OUTPUTS:
        (job,) = plan(mine, [f"{option}=in_the_run"])
        check_alone(job.config)


# ---- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        "checkpoint.checkpoint_suffix=-a",
        "checkpoint.write_checkpoints_asynchronously=true",
        "common.model_parallel_size=2",
        "distributed_training.use_sharded_state=true",
    ],
)
def test_checkpoints_that_no_run_would_find(word: str, mine: Path) -> None:
    with refusing(word.partition("=")[0]):
        check_kept(plan(mine, [word])[0].config)


def test_no_last_and_no_epochs(mine: Path) -> None:
    words = ["checkpoint.no_last_checkpoints=true", "checkpoint.keep_last_epochs=2"]
    check_kept(plan(mine, words)[0].config)
    for more in ("checkpoint.no_epoch_checkpoints=true", "checkpoint.keep_last_epochs=-1"):
        with refusing("checkpoint.no_last_checkpoints"):
            check_kept(plan(mine, [*words, more])[0].config)


def test_a_training_without_checkpoints_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.config_file.write_text("checkpoint: {keep_last_epochs: -1}\ncommon: {cpu: true}\n")
    train = "fairseq_cli.hydra_train"

    class Nothing:
        def cli_main(self) -> None: ...

    real = train_and_score.import_module
    monkeypatch.setattr(
        train_and_score, "import_module", lambda n: Nothing() if n == train else real(n)
    )
    monkeypatch.setattr(sys, "argv", [])
    with refusing("checkpoint_last.pt"):
        train_and_score.train(run)
    assert not run.is_trained()
    run.checkpoints.mkdir()
    (run.checkpoints / "checkpoint_last.pt").touch()
    train_and_score.train(run)
    assert run.is_trained()


def test_averages_that_no_run_scores(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = with_test_set(tmp_path / "data")
    words = ["sweep", str(mine), f"task.data={data}", "--dry-run", "--out", str(tmp_path / "out")]
    for more, said in (([], 0), (["ema.store_ema=true"], 1)):
        assert main([*words, *more]) == 0
        assert capsys.readouterr().err.count("average --ema") == said
    path, state = tmp_path / "start.pt", toy_checkpoints.made("transformer_collab")
    for averages, said in ((None, 0), ({"ema": state["model"]}, 1)):  # where a training starts
        torch.save({**state, "extra_state": averages or {}}, path)
        assert main([*words, f"checkpoint.finetune_from_model={path}"]) == 0
        said_of_it = capsys.readouterr()
        assert said_of_it.err.count("average --ema") == said
    path.unlink()  # a training that resumes does not need it any more
    folder = tmp_path / "out" / said_of_it.out.split(":")[0] / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(state, folder / "checkpoint_last.pt")
    assert main([*words, f"checkpoint.finetune_from_model={path}"]) == 0


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("checkpoint: {save_dir: /tmp/elsewhere}", "checkpoint.save_dir=/tmp/elsewhere"),
        ("common_eval: {results_path: /tmp/elsewhere}", "common_eval.results_path=/tmp/elsewhere"),
        ("checkpoint: {save_dir: checkpoints, patience: 3}", ""),
    ],
)
def test_options_of_a_file_that_have_no_effect(
    option: str, said: str, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq-hydra-train reads them in the same file, so they are said once, and no error."""
    mine.write_text(f"{mine.read_text()}{option}\n")
    assert len(plan(mine, ["common.seed=1,2"])) == 2
    assert [said in line for line in capsys.readouterr().err.splitlines()] == [True] * bool(said)


@pytest.mark.parametrize(
    "word",
    [
        "task.target_lang=fr",
        "checkpoint.no_save=true",
        "common.log_file=/tmp/log",
        "model.encoder_embed_path=none.txt",
        "checkpoint.finetune_from_model=none.pt",
    ],
)
def test_the_command_makes_every_check(word: str, mine: Path, tmp_path: Path) -> None:
    """In a dry run, too, and before it makes a folder."""
    out, data = tmp_path / "out", with_test_set(tmp_path / "data")
    words = [str(mine), f"task.data={data}", "--dry-run", "--out", str(out)]
    assert command.main(words) == 0
    option, _, value = word.partition("=")
    with refusing(option, *([] if value == "true" else [value])):
        command.main([*words, word])
    assert not out.exists()


def test_a_name_that_no_folder_can_have(mine: Path) -> None:
    plan(mine, ["method=short,x", "common.seed=1,2"])
    with refusing("255"):
        plan(mine, [f"method={'m' * 300},x", "common.seed=1,2"])


# ---- files ---------------------------------------------------------------------------------------


def test_files_of_other_options(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is that of the command's folder, is checked before, and its content is known."""
    monkeypatch.chdir(tmp_path)
    words = ["model.encoder_embed_path=embeddings.txt", "+bpe=subword_nmt", "bpe.bpe_codes=codes"]
    (job,) = plan(mine, words)
    assert job.config.model.encoder_embed_path == str(tmp_path / "embeddings.txt")
    assert job.config.bpe.bpe_codes == str(tmp_path / "codes")
    for name in ("embeddings.txt", "codes"):
        with refusing(str(tmp_path / name)):
            check_files(job.config)
        (tmp_path / name).write_text("1 2")
    check_files(job.config)
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.start(Started({}, inputs=inputs_of(job.config)), job.config)
    check_inputs(run, job.config)
    (tmp_path / "embeddings.txt").write_text("3 4 5")
    with refusing("model.encoder_embed_path"):
        check_inputs(run, job.config)


def test_embeddings_that_a_training_started_from(tmp_path: Path) -> None:
    """The checkpoint has its own: nothing reads the file again, which may be gone."""
    embeddings = tmp_path / "none.txt"
    path = toy_checkpoints.write(tmp_path / "c.pt")
    weights = open_model(path, toy_checkpoints.COPY).model.state_dict()
    state = torch.load(path, weights_only=False)
    state["cfg"]["model"].encoder_embed_path = str(embeddings)
    torch.save(state, path)
    model = open_model(path, toy_checkpoints.COPY)
    for name, weight in model.model.state_dict().items():
        assert torch.equal(weight, weights[name])
    small = prune(model, 1, sentences=20).model
    assert small.options["encoder_embed_path"] == str(embeddings), "to train it again"


@pytest.mark.slow
def test_files_of_our_configurations() -> None:
    """What they name by default is no file to be read."""
    for name in ("decide", "language_model", "wmt14"):
        check_files(plan(config_folder() / "experiment" / f"{name}.yaml", [])[0].config)


def test_a_configuration_with_the_name_of_another(mine: Path) -> None:
    hidden = mine.with_name("base.yaml")
    shutil.copy(mine, hidden)
    for path in (hidden, mine):
        with refusing(str(hidden), "another name"):
            plan(path, [])


def test_norwegian(mine: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_checkpoints.COPY, data)
    mine.write_text(mine.read_text().replace("source_lang: en", "source_lang: no"))
    with refusing("YAML", "task.source_lang"):
        check_data(plan(mine, [f"task.data={data}"])[0].config)


@pytest.mark.slow
def test_parts_at_which_fairseq_fails(mine: Path, tmp_path: Path) -> None:
    data = with_test_set(tmp_path / "data")
    words = [f"task.data={data}"]
    check_data(plan(mine, words)[0].config)
    for path in data.glob("valid.*"):
        shutil.copy(path, path.with_name(path.name.replace("valid.", "valid1.")))
    both = "dataset.combine_valid_subsets=true"
    for more in ([], ["dataset.valid_subset='valid,valid1'"]):
        with refusing("valid1", both):
            check_data(plan(mine, words + more)[0].config)
    check_data(plan(mine, [*words, "dataset.ignore_unused_valid_subsets=true"])[0].config)
    with refusing("task.upsample_primary"):
        check_data(plan(mine, [*words, both])[0].config)
    check_data(plan(mine, [*words, both, "task.upsample_primary=1"])[0].config)
    with refusing("dataset.valid_subset"):
        check_data(plan(mine, [*words, both, "dataset.valid_subset='valid,valid1'"])[0].config)
    for path in data.glob("valid1.*"):
        path.rename(path.with_name(path.name.replace("valid1.", "train1.")))
    with refusing("task.upsample_primary"):
        check_data(plan(mine, words)[0].config)


def test_a_data_folder_that_was_changed(tmp_path: Path) -> None:
    """--force is an option of the command that makes it, not of a sweep."""
    build_folder(tmp_path / "data", {}, lambda folder: {"n": (folder / "a").write_text("1")})
    (tmp_path / "data" / "a").write_text("2")
    with refusing(str(tmp_path / "data")) as refused:
        read_finished(tmp_path / "data")
    assert "--force" not in str(refused.value)


# ---- the validation set --------------------------------------------------------------------------


def test_a_loss_needs_no_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that was trained with --eval-bleu."""
    state = torch.load(toy_checkpoints.write(tmp_path / "c.pt"), weights_only=False)
    state["cfg"]["task"] |= {"eval_bleu": True, "eval_bleu_args": "{}"}
    torch.save(state, tmp_path / "c.pt")
    model = open_model(tmp_path / "c.pt", toy_checkpoints.COPY)
    monkeypatch.setattr(model.task, "inference_step", lambda *_: pytest.fail("translates"))
    assert validate(model)["valid_loss"] > 0
    assert model.task.cfg.eval_bleu, "the option stays"


def test_a_combined_validation_set(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(toy_checkpoints.COPY, data)
    for path in data.glob("test.*"):
        shutil.copy(path, path.with_name(path.name.replace("test.", "valid1.")))
    path = toy_checkpoints.write(tmp_path / "c.pt")
    alone = validate(open_model(path, data))
    state = torch.load(path, weights_only=False)
    state["cfg"]["dataset"]["combine_valid_subsets"] = True
    torch.save(state, path)
    both = validate(open_model(path, data))
    assert both["valid_loss"] != alone["valid_loss"]
