"""Cuts of the user: examples of docs/own_cuts.md, and files that are no cuts."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from commands import REPOSITORY
from refusals import refusing
from toy_checkpoints import COPY

from collab_lab import open_model, shrink, validation_loss
from collab_lab.cli.main import main
from collab_lab.shrinking.cut import NewHeads, Offer
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.front import series
from collab_lab.shrinking.own_cuts import cuts_in
from collab_lab.shrinking.plan import Allowed
from collab_lab.shrinking.shape import Shape, Site
from collab_lab.trained import fine_tuning
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import feed_forwards

EXAMPLES = REPOSITORY / "tests" / "examples" / "own_cuts"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return open_model(toy_checkpoints.write(tmp_path_factory.mktemp("own") / "c.pt"), COPY)


@pytest.fixture(scope="module")
def found(model: Trained) -> Evidence:
    return Evidence.of(model, sentences=20)


def test_a_kind_of_heads_of_the_user(model: Trained, found: Evidence, tmp_path: Path) -> None:
    """It is in the plan, costs what its model costs, and loses more than the best groups."""
    pooled = cuts_in(EXAMPLES / "pooled.py")
    own = shrink(model, cache=0.5, cache_bits="none", with_cuts=pooled, evidence=found)
    best = shrink(model, cache=0.5, cache_bits="none", kinds=["grouped-query"], evidence=found)
    assert own.plan.kind == "pooled"
    assert own.shares["cache"] == 0.5
    assert not own.plan.bits  # cache_bits="none"
    assert any("2" in str(row) or "1" in str(row) for row in own.plan.table())
    assert own.price > best.price > 0
    own.model.save(tmp_path / "o.pt")
    again = open_model(tmp_path / "o.pt", COPY)
    assert validation_loss(again) == pytest.approx(validation_loss(own.model))
    both = shrink(model, cache=0.4, heads=0.7, with_cuts=pooled, evidence=found)
    assert both.shares["heads"] <= 0.7


def test_a_cut_that_is_not_used(model: Trained, found: Evidence) -> None:
    """`kinds` may choose among the cuts of a file, but not leave all of them out, or be empty."""
    cuts = cuts_in(EXAMPLES / "value_groups.py")
    with refusing("values-of-1", "`kinds`"):
        shrink(model, cache=0.75, kinds=["latent"], with_cuts=cuts, evidence=found)
    with refusing("`kinds`"):
        shrink(model, cache=0.75, kinds=[], evidence=found)


def test_heads_that_share_a_value_only(model: Trained, found: Evidence, tmp_path: Path) -> None:
    """Written from the page by somebody else: two and one values for all heads."""
    cuts = cuts_in(EXAMPLES / "value_groups.py")
    made = [
        shrink(model, cache=share, cache_bits="none", kinds=[kind], with_cuts=cuts, evidence=found)
        for share, kind in ((0.75, "values-of-2"), (0.625, "values-of-1"))
    ]
    assert [one.shares["cache"] for one in made] == [0.75, 0.625]
    assert made[1].price > made[0].price > 0
    made[0].model.save(tmp_path / "o.pt")
    again = open_model(tmp_path / "o.pt", COPY)
    assert validation_loss(again) == pytest.approx(validation_loss(made[0].model))


def test_heads_of_ones_own(model: Trained, found: Evidence, tmp_path: Path) -> None:
    """A cut with a plug-in: sizes by layer, none lost at full size, and a line that trains it."""
    file = EXAMPLES / "narrow_values" / "__init__.py"
    (cut,) = cuts = cuts_in(file)
    assert isinstance(cut, NewHeads)
    trained = found.whole_attention(model.attentions["decoder"][0])
    prices = [cut.convert(trained, size)[1] for size in (1, 2, 3, 4)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > 0 == pytest.approx(prices[-1], abs=1e-12)
    for targets in ({"cache": 0.75}, {"cache": 0.6, "heads": 0.8}):
        made = shrink(model, **targets, cache_bits="none", with_cuts=cuts, evidence=found)
        assert made.plan.kind == "narrow-values"
        assert made.shares["cache"] <= targets["cache"]
        made.model.save(tmp_path / "o.pt")
        again = open_model(tmp_path / "o.pt", COPY)
        assert validation_loss(again) == pytest.approx(validation_loss(made.model))
    line = shlex.split(fine_tuning.command(again, tmp_path / "o.pt", tmp_path, updates=9))
    assert line[line.index("--user-dir") + 1] == str(file.parent)
    assert "--value-size-in-cross" in line
    assert [type(one) for one in cuts_in(file)] == [type(cut)]  # its heads are registered once


def test_heads_of_another_family_of_models(model: Trained, found: Evidence) -> None:
    (cut,) = cuts_in(EXAMPLES / "narrow_values" / "__init__.py")
    assert isinstance(cut, NewHeads)
    cut.kind = replace(cut.kind, variant=replace(cut.kind.variant, name="of_no_family"))
    with refusing("transformer_of_no_family"):
        shrink(model, cache=0.75, with_cuts=[cut], evidence=found)


def test_heads_that_no_command_would_find(tmp_path: Path) -> None:
    path = tmp_path / "narrow.py"
    text = (EXAMPLES / "narrow_values" / "__init__.py").read_text()
    path.write_text(text.replace('"narrow_values"', '"of_a_file"'))
    with refusing("narrow.py", "__init__.py"):
        cuts_in(path)


def test_blocks_that_go_as_a_whole(model: Trained, found: Evidence, tmp_path: Path) -> None:
    """Those that the plan does not need stay whole; a model without some is shrunk again."""
    (whole_blocks,) = cuts_in(EXAMPLES / "whole_blocks.py")
    made = shrink(model, parameters=0.7, only=["units"], with_cuts=[whole_blocks], evidence=found)
    assert [row[1] for row in made.plan.table()] == ["0 of 24 units"] * 4
    whole_blocks.offers = lambda *_: [Offer(Shape(units=()), 1.0)]  # type: ignore[method-assign]
    made = shrink(model, parameters=0.9, only=["units"], with_cuts=[whole_blocks], evidence=found)
    assert sorted(b.width for b in feed_forwards(made.model.model)) == [0, 0, 24, 24]
    assert made.price == 2
    made.model.save(tmp_path / "o.pt")
    again = open_model(tmp_path / "o.pt", COPY)
    assert validation_loss(again) == pytest.approx(validation_loss(made.model))
    fewer = shrink(again, parameters=0.95, only=["units"], sentences=9)
    assert fewer.shares["parameters"] <= 0.95


def test_a_figure_shows_them(found: Evidence) -> None:
    pooled = cuts_in(EXAMPLES / "pooled.py")
    assert series(found, own=pooled)["cache"].keys() == {"pooled"}
    assert series(found, ["pooled", "latent"], pooled)["cache"].keys() == {"pooled", "latent"}


def test_a_simulated_cut(
    model: Trained, found: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured, counted in its bits, and never saved."""
    two_bits = cuts_in(EXAMPLES / "two_bits.py")
    made = shrink(model, cache=0.32, kinds=["two-bits"], with_cuts=two_bits, evidence=found)
    assert {*made.plan.bits.values()} >= {2}
    assert made.shares["cache"] <= 0.32
    assert made.price > 0
    assert validation_loss(made.model) != validation_loss(model)
    with refusing("simulated"):
        made.model.save(tmp_path / "o.pt")
    apply = two_bits[0].apply

    def without_price(draft: Draft, site: Site, shape: Shape) -> None:
        apply(draft, site, shape)

    monkeypatch.setattr(two_bits[0], "apply", without_price)
    offered = shrink(model, cache=0.32, kinds=["two-bits"], with_cuts=two_bits, evidence=found)
    assert offered.price == pytest.approx(made.price)  # no head is gone: what was offered
    assert not (tmp_path / "o.pt").exists()
    for words in (["--out", str(tmp_path / "o.pt"), "--cache=0.5"], ["--out=o.pt", "--heads=0.5"]):
        path = toy_checkpoints.write(tmp_path / "c.pt")
        own = ["--with", str(EXAMPLES / "two_bits.py")]
        assert main(["shrink", str(path), str(COPY), *own, *words, "--cpu", "--sentences=9"]) == 1


def test_each_simulated_change_is_at_its_own_place(model: Trained) -> None:
    draft, (first, second) = Draft(model), model.attentions["cross"]
    draft.simulate(first, "k_proj", lambda x: 2 * x)
    draft.simulate(second, "v_proj", lambda x: 3 * x)
    made, x = draft.build().model, torch.randn(5, 16)
    for name, factor in ((f"{first.name}.k_proj", 2), (f"{second.name}.v_proj", 3)):
        old, new = (of.get_submodule(name)(x) for of in (model.model, made))
        torch.testing.assert_close(new, factor * old)


class Mine(Heads):
    """Heads of the user, with a price of their own as they are applied."""

    name = "mine"

    def apply(self, draft: Draft, site: Site, shape: Shape) -> float:
        super().apply(draft, site, shape)
        return 5.0


def test_own_heads_are_in_place_of_this_projects(model: Trained, found: Evidence) -> None:
    """And what they cost is not counted as a price of caches."""
    cuts = Allowed(own=(Mine(),)).candidates()["latent"]
    assert [cut.name for cut in cuts if cut.part == "heads"] == ["mine"]
    assert [cut.name for cut in cuts if cut.part == "units"] == ["units"]
    made = shrink(model, heads=0.5, with_cuts=[Mine()], evidence=found)
    same = shrink(model, heads=0.5, evidence=found)
    assert made.plan.prices == same.plan.prices
    assert made.model.heads == same.model.heads


@pytest.mark.slow
def test_the_command_takes_a_file(tmp_path: Path, capsys: Any) -> None:
    """With targets, and for the plans that it prints without."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    words = ["shrink", str(path), str(COPY), "--cpu", "--sentences=9", "--with"]
    pooled, out = str(EXAMPLES / "pooled.py"), ["--cache=0.5", "--out", str(tmp_path / "o.pt")]
    assert main([*words, pooled, *out, "--cache-bits=none", "--check"]) == 0
    printed = capsys.readouterr().out
    assert "number of key/value heads" in printed
    assert "validation loss" in printed
    assert main([*words, str(EXAMPLES / "two_bits.py"), "--check"]) == 0
    assert "two-bits" in capsys.readouterr().out


LACKING = {
    "no class": ("x = 1", "Cut"),
    "an error": ("1 / 0", "ZeroDivisionError"),
    "no name": ("class A(Cut):\n    part = 'cache'", "name"),
    "no method": ("class A(Cut):\n    name, part = 'a', 'cache'", "apply"),
    "no part": (
        "class A(Cut):\n    name, part = 'a', 'layers'\n"
        "    def offers(self, *_): ...\n    def apply(self, *_): ...",
        "layers",
    ),
}


@pytest.mark.parametrize("case", LACKING)
def test_files_that_define_no_cut(case: str, tmp_path: Path) -> None:
    code, named = LACKING[case]
    path = tmp_path / "own.py"
    path.write_text(f"from collab_lab.shrinking.cut import Cut\n{code}\n")
    with refusing("own.py", named):
        cuts_in(path)
    with refusing("not found"):
        cuts_in(tmp_path / "none.py")


@pytest.mark.parametrize("name", ["latent", "pooled"])
def test_names_that_are_taken(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Trained, found: Evidence
) -> None:
    """By a kind of this project, or by another cut: only one of the two would be tried."""
    text = (EXAMPLES / "pooled.py").read_text()
    again = f"\n\nclass Again(Pooled):\n    name = {name!r}\n"
    (path := tmp_path / "own.py").write_text(text + again)
    with refusing(name):
        shrink(model, cache=0.5, with_cuts=cuts_in(path), evidence=found)
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt")
    assert main(["shrink", str(checkpoint), str(COPY), "--cpu", "--with", str(path)]) == 1
    assert name in capsys.readouterr().err


def test_cuts_without_effect(model: Trained, found: Evidence) -> None:
    pooled = cuts_in(EXAMPLES / "pooled.py")
    with refusing("pooled", "cache"):
        shrink(model, heads=0.5, with_cuts=pooled, evidence=found)
    made = shrink(model, cache=0.5, engine="ct2", with_cuts=pooled, evidence=found)
    assert not made.plan.bits  # CTranslate2 rounds no cache
    with refusing("ct2"):
        cut = cuts_in(EXAMPLES / "two_bits.py")
        shrink(model, cache=0.5, engine="ct2", with_cuts=cut, evidence=found)
