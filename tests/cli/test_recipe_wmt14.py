"""recipes/wmt14_en_{de,fr}.sh, from archives on a web server to scores; and what they would run."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from commands import succeed as command
from data.corpus_archives import Sentences, filled, google, served, wmt14, wmt14_en_fr
from data.loopback import serving
from data.recipe_runs import environment, outputs, refuse, scores, succeed

from fairseq_collab.runs.run import flat
from fairseq_collab.runs.sweep import plan

pytestmark = pytest.mark.slow


def test_from_download_to_scores(shared_data: Path, tmp_path: Path) -> None:
    """Five archives, a collaborative model."""
    out = tmp_path / "out"
    small = ("--method", "collab", "--key-dim", 16)
    with serving() as server:
        server.files = served(wmt14(shared_data))
        succeed("wmt14_en_de", out, "--mirror", server.url, *small)
        assert len(server.asked) == 5
    score = scores(out)
    assert (score.sentences, score.method, score.key_dim) == (20, "fork_collab", 16)
    assert score.tokenised_bleu is not None
    told = json.loads((out / "data" / "manifest.json").read_text())["options"]
    assert "own archives" in told["note"], "nobody takes this for WMT14"


def test_ready_made_archive(shared_data: Path, tmp_path: Path) -> None:
    """Google's, from a folder, up to the data folder: its dictionary is cut to 32,768."""
    source = filled(tmp_path / "from", google(shared_data))
    out = tmp_path / "out"
    options = ("--variant", "google", "--data-only")
    succeed("wmt14_en_de", out, "--from", source, *options)
    assert (out / "data" / "dict.en.txt").read_bytes() == (
        out / "data" / "dict.de.txt"
    ).read_bytes()
    error = refuse("wmt14_en_de", tmp_path / "other", "--from", tmp_path / "absent", *options)
    assert "absent/wmt16_en_de.tar.gz: no such file" in error


def test_english_french_from_download_to_data(shared_data: Path, tmp_path: Path) -> None:
    """Six archives; the training is that of the other recipes."""
    captions = Sentences(shared_data / "multi30k", "train")

    def take(size: int) -> dict[str, list[str]]:
        pair = captions.take(size)
        return {"en": pair["en"], "fr": pair["de"]}  # German, which nobody looks at here

    # one pair in 1333 validates: one of these
    corpora = {name: take(270) for name in ("europarl", "crawl", "un", "news", "giga")}
    out = tmp_path / "out"
    with serving() as server:
        server.files = served(wmt14_en_fr(corpora, take(10)))
        succeed("wmt14_en_fr", out, "--mirror", server.url, "--data-only")
    assert {"code", "dict.en.txt", "dict.fr.txt", "train.en-fr.fr.bin"} <= outputs(
        out, "data"
    ).keys()
    data = out / "data"
    assert (data / "dict.en.txt").read_bytes() != (data / "dict.fr.txt").read_bytes()


def commands(*options: str, recipe: str = "wmt14_en_de") -> dict[str, list[str]]:
    """The commands of a dry run, by the program that does the work."""
    told = subprocess.run(
        ["bash", f"recipes/{recipe}.sh", "--dry-run", "--out", "/o", *options],
        capture_output=True,
        text=True,
        check=True,
        env=environment(VIRTUAL_ENV="/nowhere"),  # the details take a Python a stage
    ).stdout.replace("\\\n", " ")
    lines = [shlex.split(line) for line in told.splitlines() if not line.startswith(("=", "#"))]
    named = [words[2:] if words[0] == "python" else words for words in lines if words]
    return {" ".join(words[:2]): words for words in reversed(named)}


def run_of(*options: str, recipe: str = "wmt14_en_de") -> tuple[str, dict[str, Any]]:
    """Name and configuration, by dotted names, of the first run that is asked for."""
    sweep = commands(*options, recipe=recipe)["fairseq-collab sweep"]
    config = {"wmt14_en_de": "wmt14"}.get(recipe, recipe)
    assert sweep[2:5] == [f"configs/{config}.yaml", "--out", "/o/runs"]
    (job,) = plan(REPOSITORY / sweep[2], REPOSITORY / "configs", sweep[5:])
    return job.name, flat(job.config)


#: arXiv 2006.16362's README, as far as it goes.
STATED = {
    "optimizer._name": "adam",
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimizer.weight_decay": 0.0,
    "optimization.clip_norm": 0.0,
    "optimization.lr": [0.0007],
    "optimization.stop_min_lr": 1e-9,  # fairseq 0.12.2's name of --min-lr
    "criterion._name": "label_smoothed_cross_entropy",
    "criterion.label_smoothing": 0.1,
    "common.fp16": True,
    "lr_scheduler._name": "inverse_sqrt",
    "lr_scheduler.warmup_init_lr": 1e-7,
    "lr_scheduler.warmup_updates": 4000,
    "dataset.max_tokens": 3584,
    "model.dropout": 0.1,
    "model.share_all_embeddings": True,
}
#: What it leaves open, and where the files go.
OURS = {
    "optimization.max_update": 100000,
    "checkpoint.keep_last_epochs": 5,
    "common.seed": 1,
    "generation.beam": 4,
    "generation.lenpen": 0.6,
    "dataset.gen_subset": "test",
    "task.data": "/o/data",
}
MODEL = {
    "model._name": "transformer_collab",
    "model.encoder_embed_dim": 512,
    "model.decoder_ffn_embed_dim": 2048,
    "model.key_dim": 128,
    "model.mixing_init": "xavier",
    "model.attention_scale": "embed",
    "model.attention_bias": "projection",
    "model.value_init": "fork",
}


@pytest.mark.parametrize(("gpus", "freq"), [("1", 8), ("2", 4), ("4", 2), ("8", 1)])
def test_training_is_the_papers(gpus: str, freq: int) -> None:
    name, given = run_of("--gpus", gpus)
    assert name == "model-fork_collab_key_dim-128"
    expected = STATED | OURS | MODEL | {"optimization.update_freq": [freq]}
    assert {name: given[name] for name in expected} == expected
    assert given["distributed_training.distributed_world_size"] == int(gpus)


def test_the_experiment_is_the_papers() -> None:
    configs = REPOSITORY / "configs"
    jobs = plan(configs / "experiment" / "key_dim_wmt14.yaml", configs, [])
    more: dict[str, Any] = {
        "optimization.update_freq": [8],
        "distributed_training.distributed_world_size": 1,
    }
    sizes = {"layers": 6, "embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8}
    for side in ("encoder", "decoder"):
        more |= {f"model.{side}_{name}": size for name, size in sizes.items()}
    for given in (flat(job.config) for job in jobs):
        assert {name: given[name] for name in STATED | more} == STATED | more


EIGHT_GPUS = """
import torch
torch.cuda.device_count = lambda: 8
from pathlib import Path
from fairseq_collab.runs.sweep import plan
for job in plan(Path("configs/experiment/key_dim_wmt14.yaml"), Path("configs"), []):
    config = job.config
    print(config.distributed_training.distributed_world_size, config.optimization.update_freq)
"""


@pytest.mark.slow
def test_a_batch_is_as_large_wherever_it_is_trained() -> None:
    """fairseq's own default is all GPUs that there are."""
    said = command("python", "-c", EIGHT_GPUS, cwd=REPOSITORY)
    assert said.splitlines().count("1 [8]") == 16


def test_baselines() -> None:
    name, concatenated = run_of("--method", "concatenated", "--gpus", "0")
    assert name == "model-fork_concatenated_key_dim-128"
    assert concatenated["model._name"] == "transformer_headsize_n"
    assert concatenated["model.key_init"] == concatenated["model.value_init"] == "fork"
    assert (concatenated["common.cpu"], concatenated["common.fp16"]) == (True, False)
    name, vanilla = run_of("--method", "vanilla", "--average", "3", "--", "common.seed=4")
    assert (name, vanilla["model._name"]) == ("model-vanilla", "transformer")
    assert vanilla["model.encoder_embed_dim"] == 512
    assert "model.key_dim" not in vanilla
    assert (vanilla["checkpoint.keep_last_epochs"], vanilla["common.seed"]) == (3, 4)


#: arXiv 2305.14380 for WMT14 English-French; the last two are its released code's.
STATED_EN_FR = {
    "task.target_lang": "fr",
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimizer.weight_decay": 0.0,
    "optimization.lr": [0.0005],
    "criterion.label_smoothing": 0.1,
    "lr_scheduler._name": "inverse_sqrt",
    "lr_scheduler.warmup_updates": 4000,
    "model.encoder_embed_dim": 512,
    "model.encoder_attention_heads": 8,
    "model.dropout": 0.3,
    "model.share_decoder_input_output_embed": True,
    "model.share_all_embeddings": False,
    "generation.beam": 4,
    "generation.lenpen": 0.6,
    "dataset.max_tokens": 12288,
    "checkpoint.patience": 9,
}
#: Of 2 groups of 8 heads: weights and feature of the pair.
GROUPED_EN_FR = {
    "model._name": "transformer_grouped_heads",
    "model.head_groups": 2,
    "model.group_feature": "value",
    "criterion.group_alpha": 0.3,
    "criterion.group_beta": 0.3,
}


def test_english_french_is_the_papers() -> None:
    _, given = run_of("--method", "grouped_pruned", "--gpus", "2", recipe="wmt14_en_fr")
    found = {"model.share_all_embeddings": False} | given
    expected = STATED_EN_FR | GROUPED_EN_FR | {"optimization.update_freq": [4]}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("recipe", "other"), [("wmt14_en_de", "en-fr"), ("wmt14_en_fr", "en-de")])
def test_a_recipe_is_of_its_pair(recipe: str, other: str) -> None:
    command = ["bash", f"recipes/{recipe}.sh", "--dry-run", "--pair", other]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    own = recipe.removeprefix("wmt14_").replace("_", "-")
    assert done.stderr == f"{recipe}: error: --pair {other}: this recipe is of {own}\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_dry_run_of_the_data() -> None:
    found = commands("--jobs", "3", "--variant", "google", "--from", "/archives", "--data-only")
    assert list(found) == ["data_prep.wmt14 --variant"]
    options = "google --pair en-de --out /o/data --from /archives --jobs 3"
    assert " ".join(found["data_prep.wmt14 --variant"][2:]) == options
