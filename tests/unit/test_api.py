"""The laboratory's functions, without the command line."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy_checkpoints
from refusals import refusing

import collab_lab
from collab_lab import api, convert, open_model, prices, prune, validation_loss
from collab_lab.advice import advisor
from collab_lab.trained.attentions import attentions


def test_a_model_is_priced_converted_pruned_and_saved(tmp_path: Path) -> None:
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    found = prices(model, sentences=20)
    assert found.sentences == 20
    for attention in attentions(model.model):
        assert all(price > 0 for price in found.heads(attention))
        assert {*found.sizes(attention)} == {"latent", "own", "grouped-query"}
    latent = convert(model, "latent", shares={"cache": 0.25}, statistics=found.statistics)
    pruned = prune(model, 2, statistics=found.statistics)
    assert latent.price > 0 < pruned.price
    for name, smaller in (("latent", latent.model), ("pruned", pruned.model)):
        smaller.save(tmp_path / f"{name}.pt")
        again = open_model(tmp_path / f"{name}.pt")
        assert validation_loss(again) == pytest.approx(validation_loss(smaller))
    assert validation_loss(convert(model, size=16).model) == pytest.approx(validation_loss(model))
    for smaller in (prune(model, keep=1), prune(model, 1, random=1)):
        assert sum(map(sum, smaller.model.heads.values())) < sum(map(sum, model.heads.values()))
    for options in ({"query_mixing": "none"}, {"to": "none"}):
        with refusing("'none' is none of "):
            convert(model, size=16, **options)
    with refusing("no heads are chosen"):
        prune(model)


def test_prices_of_a_gated_model_serve_to_prune_it(tmp_path: Path) -> None:
    """Its gates go into the weights of a copy."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", "transformer_gated_heads"))
    statistics = prices(model, sentences=20).statistics
    given, own = prune(model, 2, statistics=statistics), prune(model, 2, sentences=20)
    assert given.retained == own.retained
    assert given.price == pytest.approx(own.price)


@pytest.mark.slow
def test_functions_are_no_rooms() -> None:
    """Whatever was imported before; and without a use there is neither torch nor fairseq."""
    names = ", ".join(collab_lab.__all__)
    code = f"""
import os, sys, collab_lab, collab_lab.cli.main, collab_lab.conversion
assert not {{"torch", "fairseq", "fairseq_collab", "transformers"}} & {{*sys.modules}}
import fairseq_collab  # takes seconds, once
for first in ("pricing.bits", "conversion", "pruning.choices", "api"):
    if os.fork() == 0:
        __import__(f"collab_lab.{{first}}")
        from collab_lab import {names}
        assert all(f.__doc__ and not hasattr(f, "__path__") for f in ({names}))
        os._exit(0)
    assert os.wait()[1] == 0, first
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "command",
    [
        "prices C D --check --out O",
        "prune C D --check --remove-share=0.2 --out O.pt",
        "reparametrize C D --check --key-dim=8 --out O.pt",
        "advise C D --want cache=0.5 --out O",
    ],
)
def test_a_validation_set_that_is_missing_fails_at_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the pass that prices come from."""
    toy_checkpoints.write(tmp_path / "C")
    shutil.copytree(toy_checkpoints.COPY, tmp_path / "D", ignore=shutil.ignore_patterns("valid*"))
    monkeypatch.chdir(tmp_path)
    for module in (api, advisor):
        monkeypatch.setattr(module, "collect", None)
    name, *argv = command.split()
    with pytest.raises(FileNotFoundError, match="valid"):
        importlib.import_module(f"collab_lab.cli.{name}").main([*argv, "--cpu"])
