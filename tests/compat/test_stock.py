"""fairseq with its own models, with and without our fixes; generation with our exact twin, too.

Without means: with none but the fixes without which nothing runs at all, or an option is ignored.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
import toy_checkpoints
from commands import REPOSITORY, USER_DIR, succeed
from toy_checkpoints import COPY

from collab_lab.trained.checkpoint import open_model
from collab_lab.trained.rebuilt import options_for, rebuilt, weights_of
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow
MODES = ("without", "with", "twin")
#: Runs commands, each in a process of its own, without most of the fixes.
SCRIPT = """
import importlib, json, os, sys, torch._dynamo  # imported once, and not by every command
from fairseq_compat import fix_table
NEEDED = "make_hashable", "call_self_attention_in_evaluation", "block_repeated_ngrams"
for moment, fixes in fix_table.FIXES.items():
    fix_table.FIXES[moment] = tuple(fix for fix in fixes if fix.__name__ in NEEDED)
from fairseq_cli import generate, interactive, train, validate
for out, name, *options in json.load(sys.stdin):
    if os.fork() == 0:
        for number in (1, 2):
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        sys.argv = [name, *options]
        if name == "python":
            exec(options[1], {"__name__": "__main__"})
        else:
            command = name.removeprefix("fairseq-").replace("-", "_")
            importlib.import_module("fairseq_cli." + command).cli_main()
        sys.stdout.flush()
        os._exit(0)
    if os.wait()[1]:
        sys.exit(open(out).read()[-3000:])
"""


#: A mode, the file of what is printed, and a command.
Job = tuple[str, Path, list[object]]


def run(jobs: list[Job]) -> None:
    """Commands without fixes share one process, and are first."""
    unfixed = [[str(out), *map(str, words)] for mode, out, words in jobs if mode == "without"]
    loads = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # torch rejects any checkpoint, else
    succeed("python", "-c", SCRIPT, stdin=json.dumps(unfixed), **loads)
    for mode, out, words in jobs:
        if mode != "without":
            out.write_text(succeed(*words))


def pair(folder: Path, name: str, **options: Any) -> dict[str, Path]:
    """A model of fairseq's, and its twin, by mode."""
    stock = toy_checkpoints.write(folder / f"{name}.pt", dropout=0.0, **options)
    trained = open_model(stock, COPY)
    twin = rebuilt(trained, options_for(trained, "transformer_headsize_n", {}), weights_of(trained))
    twin.save(folder / f"{name}-twin.pt")
    paths = dict(zip(MODES, (stock, stock, folder / f"{name}-twin.pt"), strict=True))
    for path in paths.values():
        state = checkpoints.read(path)
        state["extra_state"]["ema"] = state["model"]  # fairseq wants them with --store-ema
        checkpoints.save(state, path)
    return paths


# Generation

COMMON = ["--cpu", "--max-len-b=9", "--source-lang=en", "--target-lang=de"]
GENERATION = {
    "ensemble with prefixes": "--prefix-size=2 --beam=3",
    "sampling": "--sampling --sampling-topk=5 --beam=2 --nbest=2 --seed=3",
    "shallow fusion": "--lm-weight=0.4 --beam=4 --nbest=2 --lenpen=0.6 --no-repeat-ngram-size=2",
    "alignments": "--print-alignment=hard --beam=3",
    "references": "--score-reference",
    "constraints": "--constraints --beam=4 --buffer-size=8",
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each mode and way of generation."""
    folder = tmp_path_factory.mktemp("generated")
    first, second = pair(folder, "one"), pair(folder, "two", decoder_layers=1)
    lm = toy_checkpoints.write(folder / "lm.pt", "transformer_lm")
    text = folder / "text"
    text.write_text("".join(f"w{i} w{i % 5} w7\tw{i % 3}\tw{i % 4} w9\n" for i in range(8)))
    jobs: list[Job] = []
    for name, options in GENERATION.items():
        for mode in MODES:
            path = f"{first[mode]}:{second[mode]}" if name.startswith("ensemble") else first[mode]
            more = {"shallow fusion": [f"--lm-path={lm}"], "constraints": [f"--input={text}"]}
            command = "fairseq-interactive" if name == "constraints" else "fairseq-generate"
            own = [*more.get(name, []), *(map(str, USER_DIR) if mode == "twin" else [])]
            words = [command, COPY, "--path", path, *COMMON, *options.split(), *own]
            jobs.append((mode, folder / f"{name} {mode}", words))
    run(jobs)
    return folder


def lines(path: Path) -> tuple[list[str], list[float]]:
    """What fairseq prints of sentences, and the numbers in it."""
    found = sorted(re.findall(r"^[HPAC]-\d+\t.*$", path.read_text(), re.MULTILINE))
    number = re.compile(r"-?\d+\.\d+(?:e-\d+)?")
    return [number.sub("", line) for line in found], [
        float(text) for line in found for text in number.findall(line)
    ]


@pytest.mark.parametrize("name", GENERATION)
def test_generation(name: str, generated: Path) -> None:
    expected, numbers = lines(generated / f"{name} without")
    assert expected
    for mode in MODES[1:]:
        text, found = lines(generated / f"{name} {mode}")
        assert text == expected
        assert found == pytest.approx(numbers, abs=2e-4)


# Training

#: Options of the model, and all options: each with another optimizer or scheduler.
TRAINING: dict[str, tuple[dict[str, Any], str]] = {
    "eval-bleu": (
        {},
        '--eval-bleu --eval-bleu-args={"beam":2,"max_len_b":8} --optimizer=adam '
        "--lr-scheduler=inverse_sqrt --warmup-updates=2",
    ),
    "adaptive softmax": (
        {"adaptive_softmax_cutoff": [6, 10]},
        "--adaptive-softmax-cutoff=6,10 --criterion=adaptive_loss --optimizer=adagrad "
        "--lr-scheduler=polynomial_decay --total-num-update=6",
    ),
    "averages": (
        {},
        "--store-ema --ema-decay=0.9 --optimizer=adadelta --lr-scheduler=reduce_lr_on_plateau",
    ),
}
SIZES = [f"--{name.replace('_', '-')}={size}" for name, size in toy.SIZES.items()]
TRAIN = ["fairseq-train", COPY, "--source-lang=en", "--target-lang=de", *SIZES, "--dropout=0"]
TRAIN += [
    "--arch=transformer",
    "--lr=0.01",
    "--max-tokens=200",
    "--cpu",
    "--num-workers=0",
    "--seed=1",
]
TRAIN += ["--no-epoch-checkpoints", "--log-format=json", "--ddp-backend=legacy_ddp"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each training and mode: both go on after the same two updates."""
    folder = tmp_path_factory.mktemp("trained")

    def train(mode: str, name: str, start: Path, out: str, updates: int) -> Job:
        option = "--restore-file" if out == mode else "--finetune-from-model"
        words = [*TRAIN, *TRAINING[name][1].split(), f"--max-update={updates}", option, start]
        return mode, folder / "log", [*words, "--save-dir", folder / name / out]

    first, then = list[Job](), list[Job]()
    for name, (model, _) in TRAINING.items():
        half = folder / name / "half" / "checkpoint_last.pt"
        first.append(train("without", name, pair(folder, name, **model)["without"], "half", 2))
        first.append(train("without", name, half, "without", 4))
        then.append(train("with", name, half, "with", 4))
    run([*first, *then])
    return folder


@pytest.mark.parametrize("name", TRAINING)
def test_training(name: str, trained: Path) -> None:
    without, with_fixes = (
        checkpoints.read(trained / name / mode / "checkpoint_last.pt") for mode in MODES[:2]
    )
    assert with_fixes["optimizer_history"][-1]["num_updates"] == 4
    assert with_fixes["extra_state"]["val_loss"] == without["extra_state"]["val_loss"]
    for weight, value in without["model"].items():
        same = torch.equal(value, with_fixes["model"][weight])
        assert same or weight.endswith("_float_tensor"), weight
    averages = without["extra_state"].get("ema") or {}
    assert bool(averages) == (name == "averages")
    for weight, value in averages.items():
        same = torch.equal(value, with_fixes["extra_state"]["ema"][weight])
        assert same or weight.endswith("_float_tensor"), weight


# fairseq-hydra-train, fairseq-validate, the hub

HYDRA = [
    *("fairseq-hydra-train", "--config-dir", REPOSITORY / "configs"),
    *("--config-name=experiment/demo", "model=vanilla", "common.user_dir=null", "common.cpu=true"),
    *("task.source_lang=en", "task.target_lang=de", f"task.data={COPY}", "model.dropout=0"),
    *("dataset.max_tokens=200", "optimization.max_update=4", "lr_scheduler.warmup_updates=2"),
    *(f"++model.{name}={size}" for name, size in toy.SIZES.items()),
    "checkpoint.no_epoch_checkpoints=true",
]
VALIDATE = ["fairseq-validate", COPY, "--task=translation", "--max-tokens=200", "--cpu"]
#: A model of the hub, from a checkpoint whose configuration has all of its sections.
HUB = """
import sys
from fairseq.hub_utils import GeneratorHubInterface, from_pretrained
folder, data = sys.argv[-2:]
opened = from_pretrained(folder, "one.pt", data, bpe="characters")
hub = GeneratorHubInterface(opened["args"], opened["task"], opened["models"])
print("bpe", hub.apply_bpe("a b"))
for tokens in hub.generate([hub.encode("w1 w2"), hub.binarize("w3 w7 w4")], beam=3, max_len_b=8):
    print(*((beam["tokens"].tolist(), round(beam["score"].item(), 4)) for beam in tokens))
print(hub.translate(["w1 w2", "w7"], beam=2, lenpen=0.5, max_len_b=5))
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each mode of each command; that of Hydra's trainings is next to their folders."""
    folder = tmp_path_factory.mktemp("others")
    stock = pair(folder, "one")["without"]
    jobs: list[Job] = []
    for mode in MODES[:2]:
        out = [f"checkpoint.save_dir={folder / mode}", f"hydra.run.dir={folder / 'logs'}"]
        jobs.append((mode, folder / f"hydra {mode}", [*HYDRA, *out]))
        jobs.append((mode, folder / f"validate {mode}", [*VALIDATE, "--path", stock]))
        jobs.append((mode, folder / f"hub {mode}", ["python", "-c", HUB, folder, COPY]))
    run(jobs)
    return folder


def test_training_by_hydra(others: Path) -> None:
    without, with_fixes = (
        checkpoints.read(others / mode / "checkpoint_last.pt") for mode in MODES[:2]
    )
    assert with_fixes["optimizer_history"][-1]["num_updates"] == 4
    assert with_fixes["extra_state"]["val_loss"] == without["extra_state"]["val_loss"]
    for weight, value in without["model"].items():
        same = torch.equal(value, with_fixes["model"][weight])
        assert same or weight.endswith("_float_tensor"), weight


def test_warnings_of_hydra(others: Path) -> None:
    without, with_fixes = ((others / f"hydra {mode}").read_text() for mode in MODES[:2])
    warned = re.compile(r"^(sys|\S*/hydra\S*):\d+: UserWarning", re.MULTILINE)
    assert warned.search(without)
    assert not warned.search(with_fixes)


def test_validation(others: Path) -> None:
    """Loss and perplexity of the validation set, and the rest but for its times."""
    without, with_fixes = (
        re.findall(r"\| ((?:loss|nll_loss|ppl|num_updates) [\d.]+)", file.read_text())
        for file in (others / f"validate {mode}" for mode in MODES[:2])
    )
    assert without[0].startswith("loss ")
    assert with_fixes == without


def test_the_hub(others: Path) -> None:
    without, with_fixes = ((others / f"hub {mode}").read_text() for mode in MODES[:2])
    kept = [line for line in without.splitlines() if line.startswith(("bpe ", "(", "["))]
    assert len(kept) == 4
    assert [line for line in with_fixes.splitlines() if line in kept] == kept
