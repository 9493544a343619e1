"""Recipes: which runs they ask for, what they reject, how they fail; a corpus to scores."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from commands import BIN, REPOSITORY, SETTINGS, succeed, warm
from data.corpus_archives import filled, lines, small_iwslt14
from data.text_tools import write_corpus
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig
from parsers import parser_of
from toy_heads import write_configuration

from collab_lab.runs import sweep
from collab_lab.runs.run import flat, runs_under
from collab_lab.runs.sweep import plan
from fairseq_collab.models.options import Site, plain_options

pytestmark = pytest.mark.slow

RECIPES = REPOSITORY / "recipes"
#: What recipes source, and what has no option.
PARTS = ("common.sh", "setup.sh")
#: In place of a command: keeps its arguments, one a line, and fails where a test asks for it; of
#: `prune` and `vote` the output is a copy of MADE, and of MADE.yaml.
RECORDER = """\
#!/usr/bin/env bash
case "${0##*/} $*" in
    "python -c import sys, torch"*) exit 1 ;;   # no GPU
    python*) exec {python} "$@" ;;
esac
printf '%s\\n' "$@" END >> "$RECORD"
[ "$1" != "$FAILS" ] || exit "$STATUS"
case $1 in prune | vote) ;; *) exit 0 ;; esac
while [ "$1" != --out ]; do shift; done
cp "$MADE" "$2"
[ ! -e "$MADE.yaml" ] || cp "$MADE.yaml" "${2%.pt}.yaml"
"""


class Recorded:
    """What a recipe has asked for with one seed, and how it has ended; OUT is FOLDER/out."""

    def __init__(self, folder: Path, recipe: str, *arguments: str, **settings: str):
        for name in ("fairseq-collab", "python"):
            (folder / name).write_text(RECORDER.replace("{python}", str(warm() / "python")))
            (folder / name).chmod(0o755)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "manifest.json").write_text('{"origin": "none"}')
        (record := folder / "record").write_text("")
        environment = {"PATH": f"{folder}:{BIN}:{os.environ['PATH']}", "RECORD": str(record)}
        environment |= {"OUT": f"{folder}/out", "DATA": f"{folder}/data", "SEEDS": "7"}
        environment |= {"MADE": os.devnull, "FAILS": "", **settings}
        command = ["bash", RECIPES / f"{recipe}.sh", *arguments]
        variables = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        self.status, self.errors = done.returncode, done.stderr
        self.commands = [words.splitlines() for words in record.read_text().split("END\n")[:-1]]
        self.out = folder / "out"

    def runs(self, folder: str) -> list[DictConfig]:
        """Configurations of the runs that go to OUT/FOLDER, as sweeps compose them."""
        found = []
        for name, *words in self.commands:
            if name == "sweep":
                args = parser_of("sweep")[1](words)
                if Path(args.out) == self.out / folder:
                    jobs = sweep.plan(REPOSITORY / args.config, args.overrides)
                    found += [job.config for job in jobs]
        return found


@pytest.mark.parametrize(
    "recipe", sorted({path.name for path in RECIPES.glob("*.sh")} - set(PARTS)), ids=str
)
def test_help_is_printed_and_nothing_done(recipe: str, tmp_path: Path) -> None:
    command = ["bash", os.path.relpath(RECIPES / recipe, tmp_path), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"recipes/{recipe}" in done.stdout


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("reparametrize", "FROM"),
        ("decide", "DATA"),
        ("head_pruning wmt14", "'wmt14'"),
        ("grouped_heads COUNTS=8", "COUNTS"),
        ("grouped_heads UPDATES=08", "UPDATES"),
        ("head_pruning UPDATES=800 TUNE=0", "TUNE"),
        ("papers wmt14 de-en vanilla", "'wmt14 de-en'"),
        ("papers iwslt14 de-en best", "'best'"),
        ("papers iwslt14 de-en vanilla GPUS=3", "GPUS is '3'"),
        ("papers iwslt14 de-en vanilla GPUS=2", "divisor of 1"),
        ("papers wmt14 en-de vanilla GPUS=2", "GPUS is 2; this machine has fewer"),
    ],
)
def test_settings_that_are_rejected(asked: str, place: str, tmp_path: Path) -> None:
    """In one line, before any command is asked for."""
    recipe, *words = shlex.split(asked)
    settings = {"DATA": "", **dict(word.split("=", 1) for word in words if "=" in word)}
    rejected = Recorded(tmp_path, recipe, *(w for w in words if "=" not in w), **settings)
    assert (rejected.status, rejected.commands) == (2, [])
    (line,) = rejected.errors.splitlines()
    assert place in line


@pytest.mark.parametrize("failing", ["sweep", "prune"])
def test_failures_and_interruptions(failing: str, tmp_path: Path) -> None:
    """A recipe runs the rest after a failure and reports it; an interruption ends it.

    What was pruned is not pruned again.
    """
    ended = Recorded(tmp_path, "grouped_heads", FAILS=failing, STATUS="130")
    assert ended.status == 130
    assert [command[0] for command in ended.commands].index(failing) == len(ended.commands) - 1
    failed = Recorded(tmp_path, "grouped_heads", FAILS=failing, STATUS="1")
    first, second = (Recorded(tmp_path, "grouped_heads") for _ in range(2))
    assert (failed.status, first.status) == (1, 0)
    assert second.commands == [one for one in first.commands if one[0] not in ("vote", "prune")]
    assert {one[0] for one in failed.commands} >= {"sweep", "table"}


def cached(config: DictConfig) -> int:
    """Numbers per token in the KV cache of a layer of decoder self-attention."""
    cfg = ARCH_MODEL_REGISTRY[config.model._name].nested(plain_options(config.model))
    width, heads = cfg.decoder.embed_dim, cfg.decoder.attention_heads
    site = Site("decoder", 0, width, width, heads)
    return sum(cfg.attention_factory(cfg, site).cached_floats_per_token())


def test_decide(tmp_path: Path) -> None:
    """Kinds have the caches of their names; pruned models are fine-tuned for a tenth."""
    whole = tmp_path / "out" / "scratch" / "method-standard_seed-7" / "average.pt"
    whole.parent.mkdir(parents=True)
    whole.touch()
    made = str(write_configuration(tmp_path / "pruned.pt", "4,1", "8,2", "7,8"))
    recorded = Recorded(tmp_path, "decide", MADE=made, UPDATES="4800")
    narrow_keys = ("own", "full", "diagonal", "separate")
    assert {run.method: cached(run) for run in recorded.runs("scratch")} == {
        "standard": 256, **dict.fromkeys(narrow_keys, 160),
        "grouped-2": 128, "grouped-4": 64, "latent-4": 64, "normalised-4": 64,
        "latent-8": 32,
    }  # fmt: skip
    changed = [one for one in recorded.commands if one[0] in ("reparametrize", "prune")]
    assert len(changed) == 14
    assert {command[1] for command in changed} == {str(whole)}
    tuned = {run.method: run for run in recorded.runs("tuned")}
    assert list(tuned) == ["standard", "to-heads-2", "to-heads-3"], "those whose files are there"
    assert tuned["standard"].checkpoint.finetune_from_model == str(whole)
    assert {run.optimization.max_update for run in tuned.values()} == {480}
    (run,) = Recorded(tmp_path, "decide", KINDS="standard", EXPERIMENT="base").runs("scratch")
    assert (run.model.encoder_ffn_embed_dim, run.optimization.max_update) == (2048, 10_000)


@pytest.mark.parametrize(
    ("recipe", "arguments", "settings", "sweeps"),
    [
        ("grouped_heads", "", {}, 6),
        ("reparametrize", "", {"FROM": "/given.pt", "DIMS": "128", "UPDATES": "9"}, 5),
        ("head_size_table", "", {}, 5),
        ("papers", "wmt14 en-de key_widths", {"GPUS": "0"}, 1),
    ],
)
def test_sweeps_can_be_composed(
    recipe: str,
    arguments: str,
    settings: dict[str, str],
    sweeps: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run of each, from a checkpoint that the recipe makes."""
    every = sweep.combinations
    monkeypatch.setattr(sweep, "combinations", lambda words: list(islice(every(words), 1)))
    recorded = Recorded(tmp_path, recipe, *arguments.split(), **settings)
    runs = [run for folder in ("trained", "tuned", ".", "runs") for run in recorded.runs(folder)]
    assert len(runs) == sweeps
    written = {word for one in recorded.commands for word in one} | {"/given.pt", None}
    for run in runs:
        start = run.checkpoint.get("finetune_from_model")
        assert start in written or f"{recorded.out}/trained/" in start, start


def test_head_pruning(tmp_path: Path) -> None:
    """Every finished run is pruned and trained for as long."""
    out, standard = tmp_path / "out", "model-concatenated_seed-7"
    finished = [f"gated/gate_penalty-{penalty}_seed-7" for penalty in ("0", "0.01")]
    for run in (f"trained/{standard}", f"begun/{standard}", *finished):
        (out / run).mkdir(parents=True)
        (out / run / "score.json").touch()
    made = write_configuration(tmp_path / "p.pt", "4,1", "8,2", "7,8", head_size=16)
    settings = {"MADE": str(made), "PENALTIES": "0,0.01,0.1"}
    recorded = Recorded(tmp_path, "head_pruning", **settings)
    assert recorded.status == 1, "one run is not finished"
    assert "gate_penalty-0.1_seed-7" in recorded.errors
    folders = ("trained", "gated", "tuned", "priced", "begun", "early")
    found = {folder: recorded.runs(folder) for folder in folders}
    assert [*map(len, found.values())] == [1, 3, 2, 1, 1, 1]
    for folder in ("tuned", "priced", "early"):
        assert {run.model.heads_in_encoder for run in found[folder]} == {"4,1"}
    trained, gated, tuned, priced, begun, early = (
        found[folder][0].optimization.max_update for folder in folders
    )
    assert gated + tuned == priced == trained
    assert begun + early == trained + priced


# ---- recipes/papers.sh --------------------------------------------------------------------------

#: Of the run: small, quick, and long enough for two checkpoints to average.
TINY = [
    *(f"model.encoder_{name}={size}" for name, size in (
        ("layers", 1), ("embed_dim", 32), ("ffn_embed_dim", 32), ("attention_heads", 4),
    )),
    *("optimization.max_epoch=3", "optimization.max_update=0", "optimization.lr=[0.005]"),
    *("dataset.max_tokens=1500", "lr_scheduler.warmup_updates=20", "checkpoint.keep_last_epochs=2"),
    "generation.max_len_b=12",
]  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    """As in an activated environment, whose commands are warm, on one thread, without a GPU."""
    places = [str(warm()), str(BIN), os.environ["PATH"]]
    path = {"PATH": os.pathsep.join(places), "VIRTUAL_ENV": sys.prefix}
    return {**os.environ, **SETTINGS, **path, **more}


def run_recipe(out: Path, method: str) -> str:
    """Runs the recipe on IWSLT14, which must succeed; what it printed."""
    command = ["bash", RECIPES / "papers.sh", "iwslt14", "de-en", method]
    settings = {"OUT": str(out), "GPUS": "0", "SWEEP": " ".join(TINY)}
    variables = environment(**settings)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


FOLDERS = ("data-text", "data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, with the archive where a download would put it."""
    folder = tmp_path_factory.mktemp("recipe")
    text, out = write_corpus(folder / "text", train=600), folder / "out"
    train = {lang: lines(text / f"train.{lang}") for lang in ("de", "en")}
    six = {lang: lines(text / f"test.{lang}")[:6] for lang in train}
    out.mkdir()
    filled(out / "data-archives", {"de-en.tgz": small_iwslt14(train, six)})
    told = run_recipe(out, "vanilla")
    assert "model-vanilla" in told.partition("== the scores")[2]
    return out


def test_from_download_to_scores(finished: Path) -> None:
    assert {path.name for path in finished.iterdir()} == {"data-archives", *FOLDERS, "runs"}
    (run,) = runs_under(finished / "runs")
    score = run.score()
    assert score is not None
    assert score.sentences == 30
    assert score.averaged == ["checkpoint2.pt", "checkpoint3.pt"]
    assert score.tokenised_bleu is not None
    assert "tok:13a" in str(score.bleu_signature)
    assert "compounds:split" in str(score.compound_split_signature)
    assert (score.method, score.arch) == ("vanilla", "transformer")
    table = ("fairseq-collab", "table", finished / "runs", "--x", "none", "--against", "none")
    assert "| vanilla " in succeed(*table)


def test_a_method_that_prunes(finished: Path, tmp_path: Path) -> None:
    """Heads in groups are elected, pruned and fine-tuned, next to the run that is there."""
    for name in ("data-archives", *FOLDERS):
        (tmp_path / name).symlink_to(finished / name)
    shutil.copytree(finished / "runs", tmp_path / "runs")
    told = run_recipe(tmp_path, "grouped_pruned")
    assert f"{tmp_path}/data: is up to date, nothing to do" in told
    run = "model-grouped_head_groups-2_group_feature-output_group_alpha-0.5_group_beta-0.7"
    found = {path.parent.name: path for path in tmp_path.glob("runs/*/score.json")}
    assert found.keys() == {"model-vanilla", run, f"model-{run}"}
    heads = json.loads(found[f"model-{run}"].read_text())["heads_by_type"]
    assert heads == {"encoder": [2], "decoder": [2], "cross": [2]}


#: arXiv 2006.16362's README.
EN_DE = {
    "optimizer.adam_betas": "(0.9, 0.98)",
    "optimization.lr": [0.0007],
    "criterion.label_smoothing": 0.1,
    "lr_scheduler.warmup_updates": 4000,
    "dataset.max_tokens": 3584,
    "model._name": "transformer_collab",
    "model.dropout": 0.1,
    "model.encoder_embed_dim": 512,
    "model.key_dim": 128,
    "model.mixing_init": "xavier",
}
#: arXiv 2305.14380 for WMT14 English-French, 2 groups of 8 heads.
EN_FR = {
    "task.target_lang": "fr",
    "optimization.lr": [0.0005],
    "model._name": "transformer_grouped_heads",
    "model.encoder_attention_heads": 8,
    "model.dropout": 0.3,
    "model.head_groups": 2,
    "model.group_feature": "value",
    "criterion.group_alpha": 0.3,
    "criterion.group_beta": 0.3,
    "dataset.max_tokens": 12288,
}


@pytest.mark.parametrize(
    ("chosen", "gpus", "freq", "stated"),
    [
        ("en-de collab", 1, 8, EN_DE),
        ("en-de collab", 8, 1, EN_DE),
        ("en-fr grouped_pruned", 2, 4, EN_FR),
    ],
)
def test_training_is_the_papers(chosen: str, gpus: int, freq: int, stated: dict[str, Any]) -> None:
    """A batch is as large on any number of GPUs. A dry run needs none, nor an environment."""
    command = ["bash", RECIPES / "papers.sh", "wmt14", *chosen.split()]
    settings = environment(VIRTUAL_ENV="/nowhere", DRY_RUN="1", OUT="/o", GPUS=str(gpus))
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout
    commands = [shlex.split(line) for line in told.splitlines() if not line.startswith("==")]
    data, sweep = commands[:2]
    assert data[:3] == ["fairseq-collab", "data", "wmt14"]
    (job,) = plan(REPOSITORY / sweep[2], parser_of("sweep")[1](sweep[2:]).overrides)
    found = flat(job.config)
    assert {name: found[name] for name in stated} == stated
    assert found["task.data"] == "/o/data"
    assert found["optimization.update_freq"] == [freq]
    assert found["distributed_training.distributed_world_size"] == gpus
