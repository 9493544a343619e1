"""Recipes: each one, tiny, to its tables; what they reject, and how they fail."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from shutil import ignore_patterns
from typing import Any

import pytest
import torch
from commands import BIN, REPOSITORY, SETTINGS, warm
from data.corpus_archives import filled, lines, small_iwslt14
from data.text_tools import prepare_text, write_corpus
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import DictConfig
from parsers import parser_of

from collab_common.errors import UserError
from collab_common.files import read_json
from collab_common.provenance import CODE
from collab_lab.cli.main import main
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run, flat, runs_under
from collab_lab.runs.sweep import plan
from fairseq_collab.models.options import Site, plain_options
from fairseq_compat import checkpoints
from results import distil

pytestmark = pytest.mark.slow

RECIPES = REPOSITORY / "recipes"
#: What recipes source, and what has no option.
PARTS = ("common.sh", "setup.sh")
#: Of every training: small and quick. What it learns does not matter.
TINY = [
    "model.encoder_layers=1", "dataset.max_tokens=8000", "generation.beam=2",
    "generation.max_len_b=8",
]  # fmt: skip
NARROW = ["model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16"]


def environment(**more: str) -> dict[str, str]:
    """As in an activated environment, whose commands are warm, on one thread, without a GPU."""
    places = [str(warm()), str(BIN), os.environ["PATH"]]
    ours = {"PATH": os.pathsep.join(places), "VIRTUAL_ENV": sys.prefix, "JOBS": "1"}
    return {**os.environ, **SETTINGS, **ours, **more}


def run_recipe(recipe: str, *arguments: str, status: int = 0, **settings: str) -> str:
    """Run a recipe, which must end with this status; what it printed."""
    command = ["bash", RECIPES / f"{recipe}.sh", *arguments]
    variables = environment(**settings)
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables)
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def tables(told: str) -> list[set[str]]:
    """The methods in each table that was printed, up to the settings behind a comma."""
    found = []
    for text in re.split(r"^# ", told, flags=re.MULTILINE)[1:]:
        first = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
        head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in first]
        found.append({row[head.index("method")].split(",")[0] for row in rows})
    return found


def records(folder: Path) -> dict[str, Record]:
    """What the finished runs of a folder say, by method."""
    found = [record for run in runs_under(folder) if (record := run.record())]
    return {record.method: record for record in found}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus."""
    folder = tmp_path_factory.mktemp("data")
    return prepare_text(write_corpus(folder / "text", train=60), folder / "data")


@pytest.fixture(scope="module")
def grouped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """OUT of recipes/grouped_heads.sh, and the settings, with which others use its trainings."""
    out = tmp_path_factory.mktemp("grouped") / "out"
    settings = {"DATA": str(data), "UPDATES": "2", "TUNE": "1", "SEEDS": "7"}
    settings |= {"SWEEP": " ".join([*TINY, *NARROW])}
    told = run_recipe("grouped_heads", OUT=str(out), COUNTS="2", **settings)
    first, second = tables(told)
    assert first == {"concatenated", "grouped"}
    assert second == {"standard", "elected-2", "elected-no-refit-2", "random-2", "priced-2"}
    return out, settings


def standard(out: Path) -> Path:
    """The standard model with the seed 7 that recipes/grouped_heads.sh trained."""
    return out / "trained" / "model-concatenated_seed-7"


def weights(path: Path) -> Any:
    return checkpoints.read(path)["model"]


def test_grouped_heads(grouped: tuple[Path, dict[str, str]]) -> None:
    """Elected heads are in the table as the paper has them, and refitted; a rerun does nothing."""
    out, settings = grouped
    models = out / "pruned" / "7" / "model"
    elected, refitted = (weights(models / f"elected{kind}-2.pt") for kind in ("-no-refit", ""))
    trained = weights(out / "trained" / "model-grouped_head_groups-2_seed-7" / "average.pt")
    name = "encoder.layers.0.fc2.weight"
    assert torch.equal(elected[name], trained[name])
    assert not torch.equal(refitted[name], trained[name])
    table = (out / "tuned" / "table" / "table.md").read_text()
    told = run_recipe("grouped_heads", OUT=str(out), COUNTS="2", **settings)
    assert "starts" not in told
    assert told.endswith(table)


def test_head_pruning(grouped: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Every number of updates is what the comparison needs; each folder has its table."""
    out, settings = grouped
    shutil.copytree(standard(out), tmp_path / "trained" / standard(out).name)
    told = run_recipe("head_pruning", OUT=str(tmp_path), PENALTIES="1000", **settings)
    folders = ("trained", "gated", "tuned", "priced", "scratch", "early")
    assert len(tables(told)) == len(folders)
    updates = {folder: {one.train_updates for one in records(tmp_path / folder).values()}
               for folder in (*folders, "begun")}  # fmt: skip
    assert updates == {
        "trained": {2}, "gated": {1}, "tuned": {1}, "priced": {2}, "scratch": {4}, "early": {3},
        "begun": {1},
    }  # fmt: skip


def test_reparametrize(grouped: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Widths that are not possible are reported, and the others are in the table."""
    out, settings = grouped
    given = {**settings, "MODEL": str(standard(out) / "average.pt"), "OUT": str(tmp_path)}
    sweep = f"{settings['SWEEP']} optimization.max_update=1 model.encoder_attention_heads=8"
    given |= {"SEED": "7", "SWEEP": sweep}
    told = run_recipe("reparametrize", DIMS="99 8", status=1, **given)
    kinds = {"trained", "diagonal", "full", "own", "separate"}
    assert tables(told) == [kinds | {f"tuned-{kind}" for kind in kinds}]


def test_head_sizes(data: Path, tmp_path: Path) -> None:
    """Wide feed-forward layers have the parameters of the larger heads."""
    settings = {"WIDTH": "32", "HEADS": "1,2", "SEEDS": "1", "DATA": str(data)}
    settings |= {"SWEEP": " ".join([*TINY, "optimization.max_update=1"]), "OUT": str(tmp_path)}
    first, second = tables(run_recipe("head_size_table", **settings))
    assert first == second == {"size-d/H", "size-32", "size-d/H-wide"}
    found = records(tmp_path)
    assert found["size-32"].parameters == pytest.approx(found["size-d/H-wide"].parameters, rel=0.01)
    assert found["size-32"].parameters > 1.2 * found["size-d/H"].parameters


def cached(config: DictConfig) -> int:
    """Numbers per token in the KV cache of a layer of decoder self-attention."""
    cfg = ARCH_MODEL_REGISTRY[config.model._name].nested(plain_options(config.model))
    width, heads = cfg.decoder.embed_dim, cfg.decoder.attention_heads
    site = Site("decoder", 0, width, width, heads)
    return sum(cfg.attention_factory(cfg, site).cached_floats_per_token())


@pytest.fixture(scope="module")
def decided(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """OUT of recipes/decide.sh, with a kind of each sort, and the settings."""
    out = tmp_path_factory.mktemp("decide") / "out"
    settings = {"WIDTH": "16", "HEADS": "4", "UPDATES": "2", "SEEDS": "7", "DATA": str(data)}
    settings |= {"SWEEP": " ".join(TINY)}
    scratch, made = {"standard"}, {"to-latent-4", "to-heads-2"}
    kinds = " ".join([*scratch, "shape-latent-4", *made, "tables"])
    told = run_recipe("decide", OUT=str(out), KINDS=kinds, **settings)
    assert tables(told) == [{*scratch, "shape-latent-4"} | made, scratch | made]
    return out, settings


def test_decide(decided: tuple[Path, dict[str, str]]) -> None:
    """Tables hold each kind once; the sizes that prices chose are trained, too."""
    out, _ = decided
    shape = records(out / "scratch")["shape-latent-4"].run
    assert cached(Run(out / "scratch" / shape).config()) < 16
    assert {one.train_updates for one in records(out / "tuned").values()} == {1}


def test_kinds_of_decide(decided: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """All kinds have the caches of their names; the standard model converts to the smallest."""
    out, settings = decided
    standard, made = "scratch/method-standard_seed-7/average.pt", tmp_path / "out/models/7/model"
    (tmp_path / "out" / standard).parent.mkdir(parents=True)
    shutil.copy(out / standard, tmp_path / "out" / standard)
    commands = Recorded(tmp_path, "decide", **settings).commands
    sweeps = [words[1:] for words in commands if words[0] == "sweep"]
    jobs = [
        job
        for file, *words in sweeps
        if any(word.endswith("/scratch") for word in words) and "model=to-latent-4" not in words
        for job in plan(REPOSITORY / file, parser_of("sweep")[1]([file, *words]).overrides)
    ]
    narrow_keys = ("own", "full", "diagonal", "separate")
    found = {str(job.config.method): cached(job.config) for job in jobs}
    assert found == {
        "standard": 32, **dict.fromkeys(narrow_keys, 20),
        "grouped-2": 16, "grouped-4": 8, "latent-4": 8, "normalised-4": 8, "latent-8": 4,
    }  # fmt: skip
    assert {path.stem for path in made.glob("*.pt")} == {f"to-{kind}" for kind in (
        "latent-4", "latent-8", "bytes-8", "bytes-16", "bits-8", "bits-4", "even-4", "even-8",
        "own-4", "own-8", "grouped-2", "grouped-4", "heads-3", "heads-2",
    )}  # fmt: skip
    shutil.rmtree(made)
    made.mkdir()
    for name, *words in commands:
        if name in ("reparametrize", "prune", "shrink"):
            written = parser_of(name)[1](words).out
            if written.stem in ("to-bytes-16", "to-even-8", "to-own-8", "to-grouped-4"):
                assert main([name, *words, "--sentences", "20"]) == 0
                assert written.exists()


def test_rates_and_another_size(data: Path, tmp_path: Path) -> None:
    """RATES ends in a table of them; EXPERIMENT has its own sizes."""
    settings = {"WIDTH": "16", "UPDATES": "1", "DATA": str(data), "OUT": str(tmp_path)}
    base = " ".join([*TINY, "common.fp16=false", "dataset.num_workers=0"])
    told = run_recipe("decide", EXPERIMENT="base", RATES="0.001 0.002", SWEEP=base, **settings)
    assert tables(told) == [{"standard"}]
    widths = {run.config().model.encoder_ffn_embed_dim for run in runs_under(tmp_path / "rates")}
    assert widths == {64}


def test_gpu(data: Path, tmp_path: Path) -> None:
    """All parts but the check, which has a test of its own, on a CPU; test losses of all models."""
    settings = {
        "DEVICE": "cpu", "QUICK": "1", "DATA": str(data), "OUT": str(tmp_path), "TOKENS": "2000",
        "SWEEP": " ".join([*TINY[:1], *TINY[2:], *NARROW, "dataset.num_workers=0"]),
    }  # fmt: skip
    parts = {"PARTS": "lengths training long base export", "MINUTES": "0.001"}
    [found] = tables(run_recipe("gpu", **settings, **parts))
    assert found == {"standard", "both"}
    fixed = read_json(tmp_path / "lengths-fixed.json")
    assert (fixed["fixed_steps"], fixed["numbers"]) == (True, "bfloat16")
    in_fixed_steps = {record["kind"]: "first" in record for record in fixed["records"]}
    assert in_fixed_steps.pop("stock fairseq") is False, "which has none"
    assert all(in_fixed_steps.values())
    kinds = {record["kind"] for record in read_json(tmp_path / "long.json")["records"]}
    assert len(kinds) == 5
    models = read_json(tmp_path / "gpu.json")
    assert all(row["test_bits"] > 0 for part in ("base", "cuts") for row in models[part])
    assert 0 <= read_json(tmp_path / "speed.json")["share_of_peak"] < 1
    assert "bits per target token" in (tmp_path / "export-both.txt").read_text()
    [whole] = runs_under(tmp_path / "base")
    assert whole.config().common.bf16
    told = run_recipe("gpu", **{**settings, "OUT": str(tmp_path / "other")}, PARTS="base", status=2)
    assert not told, "how many updates is not known"
    run_recipe("gpu", **settings, PARTS="chekc", status=2)


def test_distil(grouped: tuple[Path, dict[str, str]], data: Path, tmp_path: Path) -> None:
    """Small models learn from the model's translations of the training text, and a cut, too."""
    out = tmp_path / "out"
    settings = {
        "MODEL": str(standard(grouped[0]) / "average.pt"), "DATA": str(data), "OUT": str(out),
        "TEXT": str(data.parent / "text"), "CUT": "--parameters 0.8 --for ENGINE", "UPDATES": "2",
        "SEED": "7",
        "SIZE": " ".join(NARROW), "SWEEP": " ".join(TINY),
        "NARROW": "model.encoder_embed_dim=8", "SHALLOW": "",
    }  # fmt: skip
    [found] = tables(run_recipe("distil", **settings))
    kinds = ("cut-onnx", "narrow", "narrow-again")
    small = {f"{kind}-{of}" for kind in kinds for of in ("text", "distilled")}
    assert found == {"whole", "whole-text", "cut-onnx", *small}
    translated = (out / "parts" / "target-00000").read_text().splitlines()
    assert translated == (out / "translations" / "train.de").read_text().splitlines()
    text = [(data.parent / "text" / f"train.{side}").read_text() for side in ("en", "de")]
    assert len(translated) == text[0].count("\n")
    assert "\n".join([*translated, ""]) != text[1]
    untouched = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    (out / "parts" / "target-00000").unlink()  # an interruption: only this part is done again
    run_recipe("distil", **{**settings, "NARROW": ""})
    assert (out / "parts" / "target-00000").read_text().splitlines() == translated
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == untouched
    other_text = shutil.copytree(data.parent / "text", tmp_path / "text")
    (other_text / "train.de").write_text("Anders.\n" * len(translated))
    other = {"MODEL": next(out.glob("text/*/average.pt")), "CUT": "--heads 0.8", "TEXT": other_text}
    for name, value in {**other, "SEED": "70"}.items():  # a folder is of one of each
        run_recipe("distil", **{**settings, name: str(value)}, status=2)
    file, few = tmp_path / "distil.json", tmp_path / "few"
    [whole] = [run.folder for run in runs_under(out / "text") if "whole" in run.name]
    moved = whole.rename(tmp_path / whole.name)
    other_size = settings["SIZE"] + " model.attention_scale=embed"
    told = run_recipe("distil", **{**settings, "SIZE": other_size}, status=2)
    assert "whole-text" in told
    assert "narrow" not in told
    shutil.rmtree(whole)
    moved.rename(whole)
    for part, method in (("measured", "whole"), ("text", "narrow-again-text")):
        [run] = [run for run in runs_under(out / part) if run.record().method == method]
        shutil.copytree(run.folder, few / part / run.folder.name)
    made_by = "SEED=N bash recipes/distil.sh"
    arguments = [str(file), f"7={few}", "--data", str(data), "--recipe", made_by, "--turns"]
    assert distil.main([*arguments, "2"]) == 0
    rows = {(row["method"], row["engine"]): row for row in read_json(file)["rows"]}
    both = {"onnx-int8", "ct2-int8"}
    assert {*rows} == {
        *(("narrow-again-text", engine) for engine in both),
        *(("whole", engine) for engine in (*both, "onnx-float32", "ct2-float32")),
    }
    float32, exact = rows["whole", "onnx-float32"], records(out / "measured")["whole"]
    assert float32["test_bleu"] == pytest.approx(exact.bleu, abs=1e-3)
    assert all(len(row["seconds"]) == 2 for row in rows.values())
    small_row = rows["narrow-again-text", "onnx-int8"]
    assert "method=choice(narrow-again-text)" in small_row["trained_by"]
    assert rows["whole", "onnx-int8"]["trained_by"].startswith("fairseq-collab sweep")  # its own
    assert {row["recipe"] for row in rows.values()} == {made_by}
    assert small_row["train_updates"] == records(out / "text")["narrow-again-text"].train_updates
    shutil.rmtree(few / "measured")  # the whole model is there
    arguments[1] = f"8={few}"
    with pytest.raises(UserError, match="no whole model"):
        distil.main([*arguments, "2"])


def test_demo(tmp_path: Path) -> None:
    """Options go to fairseq-train."""
    sizes = [f"--{side}-{size}" for side in ("encoder", "decoder") for size in (
        "layers=1", "embed-dim=16", "ffn-embed-dim=16",
    )]  # fmt: skip
    lengths = ["--max-source-positions=64", "--max-target-positions=48", "--max-epoch=1", "--cpu"]
    arguments = [*sizes, *lengths, "--key-dim=8"]
    told = run_recipe("demo", *arguments, OUT=str(tmp_path), SENTENCES="300")
    assert "BLEU" in told
    assert "multiply-adds" in told.partition("== What it costs")[2]


# ---- recipes/papers.sh --------------------------------------------------------------------------

#: Long enough for two checkpoints to average.
PAPERS = [
    *TINY, *NARROW, "model.encoder_attention_heads=4", "optimization.max_epoch=2",
    "optimization.max_update=0", "lr_scheduler.warmup_updates=20", "checkpoint.keep_last_epochs=2",
]  # fmt: skip
GROUPED = "model-grouped_head_groups-2_group_feature-{}_group_alpha-{}_group_beta-{}"


def run_paper(out: Path, method: str, *more: str) -> str:
    """Run the recipe on IWSLT14; what it printed."""
    settings = {"KEY_DIM": "8", "HEAD_SIZE": "8", "SWEEP": " ".join([*PAPERS, *more])}
    return run_recipe("papers", "iwslt14", "de-en", method, OUT=str(out), GPUS="0", **settings)


@pytest.fixture(scope="module")
def vanilla(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OUT of the method `vanilla`, with the archive where a download would put it."""
    folder = tmp_path_factory.mktemp("recipe")
    text, out = write_corpus(folder / "text", train=200), folder / "out"
    train = {lang: lines(text / f"train.{lang}") for lang in ("de", "en")}
    six = {lang: lines(text / f"test.{lang}")[:6] for lang in train}
    out.mkdir()
    filled(out / "data-archives", {"de-en.tgz": small_iwslt14(train, six)})
    assert tables(run_paper(out, "vanilla")) == [{"vanilla"}]
    return out


def test_from_download_to_scores(vanilla: Path) -> None:
    assert {path.name for path in vanilla.iterdir()} >= {
        "data-archives",
        "data-text",
        "data",
        "runs",
    }
    score = Run(vanilla / "runs" / "model-vanilla").record()
    assert score is not None
    assert score.sentences == 30
    assert score.averaged == ["checkpoint1.pt", "checkpoint2.pt"]
    assert score.tokenised_bleu is not None
    assert "tok:13a" in str(score.bleu_signature)
    assert "compounds:split" in str(score.compound_split_signature)
    assert (score.method, score.arch) == ("vanilla", "transformer")


def test_key_widths(vanilla: Path) -> None:
    """The table has a row a width; single cells are runs of it, under the same name."""
    widths = ("model.key_dim=choice(8)", "common.seed=choice(1)")
    told = run_paper(vanilla, "key_widths", *widths)
    assert {"fork_collab", "fork_concatenated"} <= tables(told)[0]
    assert "key width" in told
    again = run_paper(vanilla, "collab")
    assert "starts" not in again
    assert "is up to date" in again
    assert {"fork_collab", "fork_concatenated"} <= tables(again)[0]


@pytest.mark.parametrize(
    ("method", "made"),
    [
        ("grouped_pruned", ["grouped", GROUPED.format("output", 0.5, 0.7)]),
        ("gated", ["vanilla", "gated", "model-gated_gate_penalty-0.0056"]),
    ],
)
def test_other_methods(method: str, made: list[str], vanilla: Path) -> None:
    """Next to the runs that are there; the methods that only train are planned, below."""
    (found,) = tables(run_paper(vanilla, method))
    assert found >= {"vanilla", *made}
    if method == "grouped_pruned":
        heads = records(vanilla / "runs")[made[1]].heads_by_type
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
#: Of both, the heads alone.
HEAD_SIZE = {"model._name": "transformer_headsize_n", "model.head_size": 128, "model.key_dim": None}
GROUPS = {
    "model._name": "transformer_grouped_heads",
    "model.head_groups": 2,
    "model.group_feature": "value",
    "criterion._name": "label_smoothed_cross_entropy_with_head_groups",
    "criterion.group_alpha": 0.5,
    "criterion.group_beta": 0.5,
}


@pytest.mark.parametrize(
    ("chosen", "gpus", "freq", "stated"),
    [
        ("en-de collab", 1, 8, EN_DE),
        ("en-de collab", 8, 1, EN_DE),
        ("en-fr grouped_pruned", 2, 4, EN_FR),
        ("en-de headsize", 8, 1, HEAD_SIZE),
        ("en-de grouped", 8, 1, GROUPS),
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


# ---- what they reject, and how they fail --------------------------------------------------------

#: In place of a command: keeps its arguments, one a line, makes its output, and fails where a test
#: asks for it.
RECORDER = """\
#!/usr/bin/env bash
case "${0##*/} $*" in
    "python -c import sys, torch"*) exit 1 ;;   # no GPU
    python*) exec {python} "$@" ;;
esac
printf '%s\\n' "$@" END >> "$RECORD"
command=$1
case $1 in
    prune | shrink | vote | reparametrize)
        while [ "$1" != --out ]; do shift; done
        touch "$2" "${2%.*}.yaml" ;;
esac
[[ $command != $FAILS ]] || exit "$STATUS"
"""


class Recorded:
    """What a recipe has asked for with one seed, and how it has ended; OUT is FOLDER/out."""

    def __init__(self, folder: Path, recipe: str, *arguments: str, **settings: str):
        for name in ("fairseq-collab", "python"):
            (folder / name).write_text(RECORDER.replace("{python}", str(warm() / "python")))
            (folder / name).chmod(0o755)
        (record := folder / "record").write_text("")
        places = {"OUT": f"{folder}/out", "DATA": f"{folder}/data", "RECORD": str(record)}
        given = environment(**{**places, "SEEDS": "7", "FAILS": "", **settings})
        given["PATH"] = f"{folder}:{given['PATH']}"
        command = ["bash", RECIPES / f"{recipe}.sh", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=given)
        self.status, self.errors = done.returncode, done.stderr
        self.commands = [words.splitlines() for words in record.read_text().split("END\n")[:-1]]


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
        ("reparametrize", "MODEL"),
        ("decide", "DATA"),
        ("decide DATA=data KINDS='own latent'", "'latent'"),
        ("decide DATA=data KINDS=latent-2", "'latent-2'"),
        ("head_pruning wmt14", "'wmt14'"),
        ("grouped_heads COUNTS=8", "COUNTS"),
        ("grouped_heads UPDATES=08", "UPDATES"),
        ("head_pruning UPDATES=800 TUNE=0", "TUNE"),
        ("head_size_table HEADS=8,", "HEADS"),
        ("papers wmt14 de-en vanilla", "'wmt14 de-en'"),
        ("papers iwslt14 de-en best", "'best'"),
        ("papers iwslt14 de-en vanilla GPUS=3", "GPUS is '3'"),
        ("papers iwslt14 de-en vanilla GPUS=2", "divisor of 1"),
        pytest.param(
            "papers wmt14 en-de vanilla GPUS=2",
            "no GPU found",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it has a GPU"),
        ),
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


def test_code_of_another_copy_is_refused(tmp_path: Path) -> None:
    """A second copy in the environment of the first: recipes, and programs of results."""
    for folder in ("recipes", "results", *CODE):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=ignore_patterns("*.json"))
    changed = tmp_path / "collab_lab" / "__init__.py"
    changed.write_text(changed.read_text() + "\n")
    for command in (["bash", "recipes/demo.sh"], [sys.executable, "results/pages.py"]):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment()
        )
        assert done.returncode
        assert str(REPOSITORY) in done.stderr
    assert not (tmp_path / "runs").exists()


def test_conversions_need_a_standard_model(tmp_path: Path) -> None:
    """Without one they are nothing, which is a failure, and the rest is done."""
    alone = Recorded(tmp_path, "decide", KINDS="own to-latent-4")
    assert alone.status == 1
    assert "KINDS=standard" in alone.errors
    assert [one[0] for one in alone.commands] == ["sweep"]


@pytest.mark.parametrize(
    ("asked", "finished"),
    [
        ("decide", "scratch/method-standard_seed-7/average.pt"),
        ("grouped_heads", ""),
        ("head_pruning PENALTIES=0,1", "gated/gate_penalty-1_seed-7/score.json"),
        ("head_size_table", ""),
        (f"reparametrize MODEL={__file__}", ""),
        ("papers iwslt14 de-en grouped_pruned GPUS=0", ""),
        ("papers iwslt14 de-en gated GPUS=0", ""),
    ],
)
def test_failures_and_interruptions(asked: str, finished: str, tmp_path: Path) -> None:
    """A recipe runs the rest after each failure and reports it; an interruption ends it."""
    recipe, *words = asked.split()
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    arguments = [word for word in words if "=" not in word]

    def ended(folder: str, fails: str, status: int) -> list[list[str]]:
        """The commands of the recipe, which ends with this status."""
        (tmp_path / folder / "out" / finished).parent.mkdir(parents=True, exist_ok=True)
        if finished:
            (tmp_path / folder / "out" / finished).touch()
        given = {**settings, "FAILS": fails, "STATUS": str(status)}
        recorded = Recorded(tmp_path / folder, recipe, *arguments, **given)
        assert recorded.status == status or "is not finished" in recorded.errors
        return recorded.commands

    interrupted = ended("interrupted", "sweep", 130)
    assert [one[0] for one in interrupted].index("sweep") == len(interrupted) - 1
    whole, failed = ended("whole", "", 0), ended("failed", "*", 1)
    assert [one[0] for one in failed] == [one[0] for one in whole]
    for name, *options in whole:
        if name in ("prune", "shrink", "vote", "reparametrize") or "--run" in options:
            assert "--cpu" in options, name
        assert name != "sweep" or "common.cpu=true" in options
        if name == "prune" and (recipe == "papers" or "--gates" in options):
            assert "--no-refit" in options
    again = {one[0] for one in ended("whole", "", 0)}
    assert not {"vote", "shrink", "prune", "reparametrize"} & again
