"""Averaging: the exact mean, and nothing averaged that has no mean."""

from __future__ import annotations

import argparse
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from refusals import refusing

from collab_lab import open_model
from collab_lab.cli.main import main
from collab_lab.trained.average import average_checkpoints, last_checkpoints
from fairseq_compat import checkpoints


def make(path: Path, updates: int = 1, tied: bool = False, **weights: Any) -> Path:
    """Writes a small checkpoint of an architecture that is not known."""
    state = {
        "args": None,
        "cfg": {"model": argparse.Namespace(arch=f"arch{updates}", share_all_embeddings=tied)},
        "model": {name.replace("__", "."): torch.as_tensor(w) for name, w in weights.items()},
        "optimizer_history": [{"num_updates": updates}],
        "task_state": {"updates": updates},
        "extra_state": {"train_iterator": {"epoch": 1}, "ema": {"w": torch.zeros(3)}},
        "last_optimizer_state": {"state": torch.ones(9)},
    }
    torch.save(state, path)
    return path


def test_sum_is_in_double_precision(tmp_path: Path) -> None:
    values = [1e8, 1.0, -1e8, 1.0]
    paths = [make(tmp_path / f"{i}.pt", w=[value]) for i, value in enumerate(values)]
    average_checkpoints(paths, tmp_path / "mean.pt")
    assert checkpoints.read(tmp_path / "mean.pt")["model"]["w"].tolist() == [0.5]


def test_the_rest_is_of_the_newest(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{n}.pt", n, w=[float(n)]) for n in (1, 3, 2)]
    average_checkpoints(paths, tmp_path / "mean.pt")
    mean = checkpoints.read(tmp_path / "mean.pt")
    assert mean["cfg"]["model"].arch == "arch3"
    assert mean["task_state"] == {"updates": 3}
    assert mean["extra_state"] == {"train_iterator": {"epoch": 1}}
    assert "last_optimizer_state" not in mean


def test_moving_averages_in_place_of_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one checkpoint, or the mean of several; without --ema, a line says that they are there."""
    paths = [str(toy_checkpoints.write(tmp_path / f"{n}.pt")) for n in (1, 2)]
    for number, path in enumerate(paths, 1):
        state = torch.load(path, weights_only=False)
        ema = {
            name: torch.full_like(weight, number) if weight.is_floating_point() else weight
            for name, weight in state["model"].items()
        }
        state["extra_state"]["ema"] = ema
        torch.save(state, path)
    out = tmp_path / "mean.pt"
    for of, expected in ((paths[:1], 1.0), (paths, 1.5)):
        assert main(["average", *of, "--ema", "--force", "--out", str(out)]) == 0
        mean = open_model(out, toy_checkpoints.COPY)
        assert all((weight == expected).all() for weight in mean.model.parameters())
    said = capsys.readouterr()
    assert "--ema" not in said.err
    assert f"the moving averages of {paths[0]}, in single precision" in said.out
    assert said.out.count("another program averaged") == 2
    without = str(toy_checkpoints.write(tmp_path / "without.pt"))
    for of in (paths[:1], paths, [without, *paths]):  # once, wherever they are
        average_checkpoints(of, out)
        assert capsys.readouterr().err.count("average --ema") == 1
    open_model(paths[0], toy_checkpoints.COPY)
    assert capsys.readouterr().err.count("average --ema") == 1
    with refusing("paths"):
        average_checkpoints([], out)
    with refusing(str(out), "--store-ema"):
        average_checkpoints([out], tmp_path / "none.pt", ema=True)


def test_moving_averages_of_single_precision(tmp_path: Path) -> None:
    """A training in half precision with --ema-fp32 saves both; what is tied stays tied."""
    exact = torch.full((3, 2), 1.0001)
    half = exact.half()
    path = make(tmp_path / "c.pt", w=half, tied__w=half)
    state = torch.load(path, weights_only=False)
    state["extra_state"] |= {
        "ema": {"w": half, "tied.w": half},  # one tensor
        "ema_fp32_params": {"w": exact, "tied.w": exact.clone()},
    }
    torch.save(state, path)
    average_checkpoints([path], tmp_path / "mean.pt", ema=True)
    mean = checkpoints.read(tmp_path / "mean.pt")["model"]
    assert torch.equal(mean["w"], exact)
    assert mean["tied.w"].data_ptr() == mean["w"].data_ptr()


def test_what_is_one_weight_in_the_first_file_alone(tmp_path: Path) -> None:
    """As of a model whose second layer began as its first: that of later files would be lost."""
    shared, other = torch.ones(2, 2), torch.full((2, 2), 3.0)
    grown = make(tmp_path / "grown.pt", 1, a__w=shared, b__w=shared)
    trained = make(tmp_path / "trained.pt", 2, a__w=shared.clone(), b__w=other)
    with refusing(str(trained), "b.w", "a.w", str(grown)):
        average_checkpoints([grown, trained], tmp_path / "mean.pt")
    average_checkpoints([trained, grown], tmp_path / "mean.pt")
    mean = checkpoints.read(tmp_path / "mean.pt")["model"]
    assert (mean["a.w"][0, 0], mean["b.w"][0, 0]) == (1, 2)


def test_threads_open_models(tmp_path: Path) -> None:
    """What torch allows is known to the whole process."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    checkpoints.read(path)  # torch may import more of itself now
    before = {*torch.serialization.get_safe_globals()}
    with ThreadPoolExecutor(4) as pool:
        states = [*pool.map(checkpoints.read, [path] * 40)]
    assert len(states) == 40
    assert {*torch.serialization.get_safe_globals()} == before


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {"decoder_attention_heads": 2}),
        ("transformer", {"activation_fn": "gelu"}),
        ("transformer", {"share_decoder_input_output_embed": True}),
        ("transformer_lm", {"decoder_attention_heads": 2}),
        ("transformer_latent", {"cache_bits": "8"}),
        ("transformer_headsize_n", {"cache_bits_in_cross": "4,0"}),
    ],
)
def test_models_of_equal_shapes_and_other_functions(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    first = toy_checkpoints.write(tmp_path / "a.pt", arch)
    other = toy_checkpoints.write(tmp_path / "b.pt", arch, **options)
    for paths in ([first, other], [other, first]):
        with refusing(f"{paths[1]}: {next(iter(options))}", str(paths[0])):
            average_checkpoints(paths, tmp_path / "mean.pt")
    average_checkpoints([first, toy_checkpoints.write(other, arch, dropout=0.3)], tmp_path / "m.pt")


def test_a_checkpoint_given_twice(trained: Path, tmp_path: Path) -> None:
    paths = [trained / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"]
    shutil.copy(*paths)
    for twice in (paths, [*paths[:1], *paths[:1]]):
        with refusing(str(twice[1]), str(paths[0])):
            average_checkpoints(twice, tmp_path / "mean.pt")


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    one, two = torch.full((4,), 1.0), torch.full((4,), 2.0)
    paths = [make(tmp_path / "1.pt", a=one, b=one), make(tmp_path / "2.pt", a=two, b=two)]
    average_checkpoints(paths, tmp_path / "mean.pt")
    mean = checkpoints.read(tmp_path / "mean.pt")["model"]
    assert mean["a"].tolist() == [1.5] * 4
    assert mean["a"].data_ptr() == mean["b"].data_ptr()


def test_integers_are_kept(tmp_path: Path) -> None:
    """However large."""
    paths = [make(tmp_path / f"{n}.pt", signature=[1, 2**62], w=[0.0]) for n in (1, 2)]
    average_checkpoints(paths, tmp_path / "mean.pt")
    assert checkpoints.read(tmp_path / "mean.pt")["model"]["signature"].tolist() == [1, 2**62]


FIRST = {"w": [[1.0, 2.0]], "attn__signature": [1, 4, 16]}
REJECTED = {
    "signature": {**FIRST, "attn__signature": [1, 2, 16]},
    "missing": {"w": [[1.0, 2.0]]},
    "shape": {**FIRST, "w": [1.0, 2.0]},
    "kind": {**FIRST, "w": [[1, 2]]},
    "nan": {**FIRST, "w": [[1.0, float("nan")]]},
    "infinity": {**FIRST, "w": [[1.0, float("-inf")]]},
}


def test_models_that_tie_other_weights(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{tied}.pt", tied=tied, w=[1.0 + tied]) for tied in (True, False)]
    with refusing(f"{paths[1]}: share_all_embeddings", str(paths[0])):
        average_checkpoints(paths, tmp_path / "mean.pt")


@pytest.mark.parametrize("second", REJECTED.values(), ids=REJECTED.keys())
def test_rejected(second: dict[str, Any], tmp_path: Path) -> None:
    paths = [make(tmp_path / "1.pt", **FIRST), make(tmp_path / "2.pt", **second)]
    with refusing(str(paths[1])):
        average_checkpoints(paths, tmp_path / "mean.pt")
    assert not (tmp_path / "mean.pt").exists()


def test_checkpoints_of_an_earlier_training_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a longer one in the same folder, whose files the training has not overwritten yet."""
    for name, updates in (("1", 10), ("2", 20), ("_last", 20)):
        make(tmp_path / f"checkpoint{name}.pt", updates)
    last_checkpoints(2, tmp_path)
    assert not capsys.readouterr().err
    stale = make(tmp_path / "checkpoint3.pt", 300)
    last_checkpoints(2, tmp_path)
    said = capsys.readouterr().err
    assert str(stale) in said
    assert "300" in said


@pytest.mark.parametrize(
    ("files", "last"),
    [
        ({"9": 90, "10": 100, "11": 110, "_2_50": 50, "_last": 110}, ["10", "11"]),
        ({"_1_50": 50, "_1_100": 100, "_2_150": 150, "_best": 150}, ["_1_100", "_2_150"]),
        # an epoch that the training did not finish, with and without checkpoints of updates
        ({"2": 20, "3": 30, "_3_24": 24, "_4_32": 32, "_4_34": 34, "_last": 34}, ["3", "_4_34"]),
        ({"2": 20, "3": 30, "_3_24": 24, "_last": 38}, ["3", "_last"]),
        ({"_1_50": 50, "_1_100": 100, "_last": 120}, ["_1_100", "_last"]),
        # epochs that were counted from 1 again
        ({"1": 40, "2": 20, "3": 30, "_last": 40}, ["3", "1"]),
    ],
)
def test_last_checkpoints(files: dict[str, int], last: list[str], tmp_path: Path) -> None:
    for name, updates in files.items():
        make(tmp_path / f"checkpoint{name}.pt", updates)
    found = last_checkpoints(2, tmp_path)
    assert found == [str(tmp_path / f"checkpoint{name}.pt") for name in last]
    with refusing(str(tmp_path)):
        last_checkpoints(5, tmp_path)
    with refusing(str(tmp_path / "none")):
        last_checkpoints(3, tmp_path / "none")
