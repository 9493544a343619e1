"""Recipes on any prepared folder: which trainings they ask for, which folders they refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from omegaconf import DictConfig
from recipe_recorder import Recorded, jobs, options, record

from collab_common.errors import UserError
from fairseq_collab.runs import prepared

LANGUAGES = ["--source-lang", "de", "--target-lang", "en"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that are looked for, one dictionary for both sides."""
    folder = tmp_path_factory.mktemp("data") / "tales"
    (folder / "raw").mkdir(parents=True)
    names = [f"{split}.en-de.{side}.idx" for split in prepared.SPLITS for side in ("en", "de")]
    for name in (*names, "dict.en.txt", "dict.de.txt", "raw/test.en", "spm.model"):
        (folder / name).touch()
    return folder


def recorded(tmp_path: Path, recipe: str, *arguments: str, **variables: str) -> Recorded:
    told = str(tmp_path)
    return Recorded(tmp_path, recipe, *arguments, told_as=told, DATA="", CORE="no", **variables)


def runs(done: Recorded, tmp_path: Path, kind: str) -> dict[str, DictConfig]:
    return dict(jobs(done.commands, kind, tmp_path / "out"))


def test_groups_on_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    done = recorded(
        tmp_path, "grouped_heads.sh", "--data", str(folder), *LANGUAGES, "--size", "multi30k",
        "--train", "iwslt14", UPDATES="9000",
    )  # fmt: skip
    assert done.status == 0, done.errors
    for kind in ("trained", "tuned"):
        found = runs(done, tmp_path, kind)
        assert len(found) == (8 if kind == "trained" else 12)
        for name, config in found.items():
            assert Path(config.task.data) == folder
            assert (config.task.source_lang, config.task.target_lang) == ("de", "en")
            assert config.model.share_all_embeddings
            assert config.common_eval.post_process == "sentencepiece"
            # the rate of configs/train/iwslt14.yaml; fine-tuned half as long, at a third of it
            wanted = ([0.0005], 9000) if kind == "trained" else ([0.00017], 4500)
            assert (config.optimization.lr, config.optimization.max_update) == wanted
            assert config.optimization.max_epoch == 0
            assert config.lr_scheduler.total_num_update == wanted[1]
            assert config.dataset.max_tokens == 4096
            narrow = "embed_dim" in name
            assert config.model.encoder_embed_dim == (192 if narrow else 256)
            if "grouped_pruned" in name or "random" in name:
                assert config.model.head_size == 32
    votes = [command for command in done.commands if command[0] == "vote"]
    assert votes
    assert all(command[2] == str(folder) for command in votes)
    lite = [options(c)["--ffn-dim"] for c in done.commands if "--ffn-dim" in c]
    assert lite == ["256"]


def test_gates_on_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "out" / "trained" / "model-concatenated_seed-7"
    run.mkdir(parents=True)
    (run / "score.json").touch()
    chosen = ("--data", str(folder), *LANGUAGES)
    done = recorded(tmp_path, "head_pruning.sh", *chosen, UPDATES="9000")
    (trained,) = runs(done, tmp_path, "trained").values()
    assert (trained.optimization.lr, trained.optimization.max_update) == ([0.003], 9000)
    gated = [*runs(done, tmp_path, "gated/all").values()]
    assert gated
    for config in gated:
        assert Path(config.task.data) == folder
        assert (config.optimization.lr, config.optimization.max_update) == ([0.001], 4500)
        assert config.optimization.max_epoch == 0
        assert config.model.encoder_embed_dim == 128
    assert [command[0] for command in done.commands][-1] == "table", done.errors


def test_key_dimensions_on_a_prepared_folder(folder: Path, tmp_path: Path) -> None:
    chosen = ("--data", str(folder), *LANGUAGES, "--size", "multi30k")
    done = recorded(tmp_path, "key_dim_table.sh", *chosen)
    assert done.status == 0, done.errors
    found = runs(done, tmp_path, ".")
    assert len(found) == 2 * 3 * 4, "methods, seeds, key dimensions"
    for config in found.values():
        assert Path(config.task.data) == folder
        assert config.task.source_lang == "de"
        assert config.model.encoder_embed_dim == 256
    assert [command[0] for command in done.commands] == ["sweep", "table"]


def test_key_dimensions_on_a_corpus_that_is_there(tmp_path: Path) -> None:
    commands = record(tmp_path, "key_dim_table.sh", "multi30k")
    assert [command[0] for command in commands] == ["sweep", "table"], "no data is made"


def test_two_dictionaries_and_no_subwords(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    (data / "dict.en.txt").write_text("the 1\n")
    (data / "spm.model").unlink()
    found = prepared.variables(data, "de", "en", "small", "multi30k_small")
    assert found["of_data"][-3:] == [
        "model.share_all_embeddings=false",
        "model.share_decoder_input_output_embed=true",
        "common_eval.post_process=null",
    ]
    assert found["tuning"] == ["model.head_size=16"]
    assert (found["width"], found["units"]) == (["96"], ["128"])  # as of multi30k


@pytest.mark.parametrize("name", ["dict.de.txt", "train.en-de.de.idx", "raw/test.en"])
def test_a_file_that_is_missing(folder: Path, tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    (data / name).unlink()
    with pytest.raises(UserError) as refused:
        prepared.check(data, "de", "en")
    told = name.replace("en-de", "de-en")
    assert str(refused.value) == f"{data}: there is no {told} in it; {prepared.TODO}"


@pytest.mark.parametrize(
    ("size", "training", "message"),
    [
        ("huge", "multi30k", "--size: there is no 'huge'; give one of base, multi30k, small, tiny"),
        ("small", "no", "--train: there is no 'no'; give one of embedded"),
        ("small", "wmt14", "--train: wmt14 is for an inverse square root, not for a rate that"),
    ],
)
def test_settings_that_are_not_there(folder: Path, size: str, training: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        prepared.variables(folder, "de", "en", size, training)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("recipe", ["grouped_heads.sh", "head_pruning.sh", "key_dim_table.sh"])
def test_recipes_refuse_a_wrong_folder_in_one_line(recipe: str, tmp_path: Path) -> None:
    done = recorded(tmp_path, recipe, "--data", str(tmp_path / "no"), *LANGUAGES)
    assert (done.status, done.commands) == (2, [])
    (line,) = done.errors.splitlines()
    assert line.endswith(f"error: {tmp_path}/no: there is no such folder; {prepared.TODO}")
