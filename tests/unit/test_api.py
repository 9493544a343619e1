"""The laboratory's functions, without the command line, and examples in docstrings."""

from __future__ import annotations

import copy
import doctest
import importlib
import math
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from refusals import refusing
from transformers import BertConfig, BertModel

import collab_lab
from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError
from collab_lab import (
    convert,
    cost,
    multiply_adds,
    open_model,
    prices,
    prune,
    shrink,
    swap_attention,
    validation_loss,
)
from collab_lab.cli.main import main
from collab_lab.heads import stages
from collab_lab.heads.relevance import Relevance
from collab_lab.hugging_face import swap
from collab_lab.mathematics.head_prices import head_prices
from collab_lab.shrinking import by_hand, evidence
from collab_lab.statistics import STATISTICS, stored
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples
from fairseq_collab.attention import collaborative


def test_prices_of_a_gated_model_serve_to_prune_it(tmp_path: Path) -> None:
    """Its gates go into the weights of a copy."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", "transformer_gated_heads"))
    statistics = prices(model, sentences=20).statistics
    given, own = prune(model, 2, statistics=statistics), prune(model, 2, sentences=20)
    assert given.plan.retained == own.plan.retained
    assert given.price == pytest.approx(own.price)


@pytest.mark.slow
def test_frozen_parts_are_like_others(tmp_path: Path) -> None:
    """Of a training of the encoder alone; and where nothing has a gradient."""
    only = {"arch": "transformer_gated_heads", "gated_types": "encoder"}
    whole = open_model(toy_checkpoints.write(tmp_path / "c.pt", **only), toy_checkpoints.COPY)
    path = toy_checkpoints.write(tmp_path / "f.pt", **only, freeze_decoder=True)
    frozen = open_model(path, toy_checkpoints.COPY)
    expected = prices(whole, sentences=20)
    for _ in range(2):
        grads = [parameter.requires_grad for parameter in frozen.model.parameters()]
        assert not all(grads)
        found = prices(frozen, sentences=20)
        for one, other in zip(found.statistics, expected.statistics, strict=True):
            assert found.heads(one) == pytest.approx(expected.heads(other))
        assert prune(frozen, 3, statistics=found.statistics).price is not None
        relevance = [
            stages.relevance(Relevance(one.model), one, "valid", 1)["measures"]
            for one in (frozen, whole)
        ]
        importance = [stages.importance(one, "valid")["measures"] for one in (frozen, whole)]
        for measured in (relevance, importance):  # where tensors lie changes the last digits
            torch.testing.assert_close(*measured, rtol=1e-6, atol=1e-6)
        assert [parameter.requires_grad for parameter in frozen.model.parameters()] == grads
        frozen.model.requires_grad_(False)


def test_functions_are_no_rooms() -> None:
    """Importing a room would replace a function of its name."""
    rooms = {module.name for module in pkgutil.iter_modules(collab_lab.__path__)}
    assert not rooms & {*collab_lab.__all__}


def test_without_a_use_there_is_neither_torch_nor_fairseq() -> None:
    slow = {"torch", "fairseq", "fairseq_collab", "transformers"}
    code = f"import sys, collab_lab, collab_lab.cli.main; assert not {slow} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "command",
    [
        "prices C D --check --out O",
        "prune C D --check --remove=2 --out O.pt",
        "reparametrize C D --check --key-dim=8 --out O.pt",
        "shrink C D --check --cache=0.5 --out O.pt",
        "shrink C D --lose=0.5 --out O.pt",
    ],
)
def test_a_validation_set_that_is_missing_fails_at_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the pass that prices come from."""
    toy_checkpoints.write(tmp_path / "C")
    shutil.copytree(toy_checkpoints.COPY, tmp_path / "D", ignore=shutil.ignore_patterns("valid*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(by_hand, "collect_all", None)
    monkeypatch.setattr(evidence, "collect_all", None)
    name, *argv = command.split()
    with pytest.raises((FileNotFoundError, UserError), match="valid"):
        importlib.import_module(f"collab_lab.cli.{name}").main([*argv, "--cpu"])


# ---- examples ------------------------------------------------------------------------------------

MODULES = (collaborative, swap)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module: object) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed


# ---- arguments -----------------------------------------------------------------------------------

HEADS: Any = {type_: [[0], [0]] for type_ in ATTENTION_TYPES}
BY_TYPE: Any = dict.fromkeys(ATTENTION_TYPES, 8)


def bert() -> Any:
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}
    return BertModel(BertConfig(num_attention_heads=2, **sizes))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = toy_checkpoints.write(tmp_path_factory.mktemp("model") / "c.pt")
    return open_model(path, toy_checkpoints.COPY)


@pytest.fixture(scope="module")
def statistics(model: Trained) -> Any:
    return prices(model, sentences=9).statistics


#: By function: arguments of which one has no effect, or that leave nothing.
CASES: dict[str, list[dict[str, Any]]] = {
    "time_parts": [
        {"timed_in": "marian"},
        {"timed_in": "fairseq", "batch": 0},
        {"timed_in": "fairseq", "length": 10**6},
        {"timed_in": "fairseq", "length": 9.5},
        {"timed_in": "fairseq", "parts": ["layers"]},
    ],
    "convert": [
        {"size": 8, "by_type": BY_TYPE},
        {"by_type": dict.fromkeys(ATTENTION_TYPES, 0)},
        {"size": 8, "by_type": {"croos": 4}},
        {},
        {"to": "none", "size": 8},
        {"query_mixing": "none", "size": 8},
        *({"to": to, "size": 8, "query_mixing": "own"} for to in ("separate", "latent")),
        {"to": "separate", "by_type": {"cross": 8}},
        {"size": 8, "sentences": 0},
        {"size": "64"},
        {"size": 8.0},
        {"size": True},
        {"by_type": {"decoder": [64, 32]}},
        {"by_type": "cross"},
        {"to": ["latent"], "size": 8},
        {"size": 8, "cache_bits": [8]},
        {"size": 8, "subset": "test7"},
        {"size": 8, "sentences": 9.5},
    ],
    "prune": [
        {},
        {"number": -3},
        {"number": 24, "random": 3},
        {"number": 8, "types": ["cross"], "random": 3},
        {"number": 3, "keep": 1},
        {"retained": HEADS, "same_on_each_side": True},
        {"keep": -1},
        {"number": 5.0},
        {"number": "3"},
        {"number": True},
        {"keep": 1.0},
        {"number": 1, "random": 0.5},
        {"number": 1, "types": "cross"},
        {"retained": {**HEADS, "cross": 3}},
        {"retained": [[0]]},
        {"number": 1, "subset": "test7"},
        {"number": 1, "types": ["croos"]},
        {"number": 1, "types": []},
        {"number": 9, "types": ["cross"]},
        {"number": 1, "sentences": 0},
        {"retained": {**HEADS, "cross": [[], []]}},
        {"retained": {type_: [[], []] for type_ in ATTENTION_TYPES}},
        {"retained": {"encoder": [[0], [0]]}},
        {"retained": {**HEADS, "croos": [[0], [0]]}},
        *(
            {"retained": HEADS, **more}
            for more in (
                {"number": 1}, {"keep": 1}, {"types": ["cross"]}, {"random": 3},
                {"statistics": ...},
            )
        ),
        {"number": 1, "random": 3, "statistics": ...},
    ],
    "prices": [{"sentences": 0}, {"sentences": -1}, {"sentences": "9"}, {"subset": "test7"}],
    "validation_loss": [{"batches": []}],
    "translate": [
        {"sentences": "a b"}, {"sentences": [1]}, {"sentences": ["a"], "beam": 2.0},
        {"sentences": ["a"]},  # its folder has no subwords
    ],
    "shrink": [
        {"cache": "0.5"}, {"cache": True}, {"parameters": -0.1}, {"lose": "0.1"},
        {"lose": math.inf}, {"time": 0.5}, {"cache": 0.5, "times": object()},
        {"cache": 0.5, "subset": "test7"}, {"cache": 0.5, "sentences": 0},
        {"cache": 0.5, "sentences": "9"}, {"cache": float("nan")},
    ],
}  # fmt: skip
CALLS = [(name, arguments) for name, cases in CASES.items() for arguments in cases]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_of_a_model(name: str, arguments: dict[str, Any], model: Trained, statistics: Any) -> None:
    given = {k: statistics if value is ... else value for k, value in arguments.items()}
    function: Callable[..., Any] = getattr(collab_lab, name)
    with pytest.raises(UserError) as raised:
        function(model, **given)
    assert "--" not in str(raised.value), "options are of commands"
    with pytest.raises(UserError):
        function("model.pt", **given)


OTHERS: list[Callable[[Path], Any]] = [
    lambda path: open_model(path, toy_checkpoints.COPY, kye_dim=8),
    lambda path: open_model(path.with_name("nope.pt"), toy_checkpoints.COPY),
    lambda path: open_model(path.parent, toy_checkpoints.COPY),
    lambda path: open_model(path, path.with_name("nowhere")),
    lambda path: open_model(path, toy_checkpoints.COPY, target_lang="fr"),
    lambda path: open_model(path, toy_checkpoints.COPY, device="tpu"),
    lambda _: swap_attention(bert(), {"encoder.layer.0.attention.self": 4, "layer.1": 4}),
    lambda path: cost(path),
    lambda path: multiply_adds(path),
    lambda path: multiply_adds(open_model(path, toy_checkpoints.COPY), 0),
    lambda path: multiply_adds(open_model(path, toy_checkpoints.COPY), 2.5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", OTHERS)
def test_of_others(call: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        call(toy_checkpoints.write(tmp_path / "c.pt"))


def test_costs_of_an_opened_model(model: Trained) -> None:
    assert cost(model) == cost(model.model)
    assert multiply_adds(model, 7) == multiply_adds(model.model, 7) > 0


def test_sentences_may_come_one_by_one(model: Trained) -> None:
    found = samples(model, "valid", 5)
    assert validation_loss(model, iter(found)) == validation_loss(model, found)  # type: ignore[arg-type]


@pytest.mark.slow
def test_statistics_are_stored_with_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass serves all commands, for this model alone."""
    checkpoint, folder = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "prices"
    options = [str(toy_checkpoints.COPY), "--cpu", "--sentences=20"]
    assert main(["prices", str(checkpoint), *options, "--out", str(folder)]) == 0
    model = open_model(checkpoint, toy_checkpoints.COPY)
    expected, found = prices(model, sentences=20), stored.read(folder, model)
    for attention in expected.statistics:
        assert head_prices(attention.module, found[attention]) == pytest.approx(
            expected.heads(attention), rel=1e-4
        )
    monkeypatch.setattr(by_hand, "collect_all", None)
    monkeypatch.setattr(evidence, "collect_all", None)
    capsys.readouterr()
    for words in (
        "prune C --remove=3",
        "reparametrize C --to=latent --latent-dim=4",
        "shrink C --parameters=0.9",
    ):
        name, _, *more = words.split()
        out = ["--prices", str(folder), "--out", str(tmp_path / f"{name}.pt")]
        assert main([name, str(checkpoint), *options, *more, *out]) == 0, words
        assert "prices are of" not in capsys.readouterr().err
        out += ["--force", "--subset=valid"]
        assert main([name, str(checkpoint), *options, *more, *out]) == 0, words
        said = capsys.readouterr().err
        assert "prices are of 20 sentences of train" in said
        assert "20 sentences of valid" in said
    words = ["--random=1", "--remove=3", "--prices", str(folder), "--out=o.pt"]
    assert main(["prune", str(checkpoint), *options, *words]) == 1
    assert "--prices" in capsys.readouterr().err
    others = [open_model(checkpoint, toy_checkpoints.COPY) for _ in range(2)]
    others[0].model.decoder.layers[0].fc2.weight.data[0, 0] += 0.1
    others[1].model.decoder.layers[0].self_attn.cache_bits = 8
    for other in others:
        with refusing("another model"):
            stored.read(folder, other)
    other_fields = torch.load(folder / STATISTICS, weights_only=True)
    del other_fields["statistics"]["encoder.layers.0.self_attn"]["inputs"]
    for content in (other_fields, {"model": Path("code"), "statistics": {}}):
        torch.save(content, folder / STATISTICS)
        with refusing("statistics"):
            stored.read(folder, model)
    with refusing("not found"):
        stored.read(tmp_path, model)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("reparametrize --to=latent", ("--latent-dim", "--latent-dim-in-TYPE")),
        (
            "reparametrize --to=latent --latent-dim=8 --latent-dim-in-cross=4,x",
            ("--latent-dim-in-cross",),
        ),
        ("reparametrize --to=separate --key-dim=8 --query-mixing=own", ("--query-mixing", "--to")),
        ("reparametrize --to=separate --key-dim-in-cross=8", ("--key-dim-in-cross", "--key-dim")),
        ("prune --keep=1 --same-on-each-side", ("--keep", "--same-on-each-side")),
        ("prune --remove=1 --subset=test7", ("--subset", "test7")),
    ],
)
def test_commands_name_options(
    words: str, named: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, (name, *more) = toy_checkpoints.write(tmp_path / "c.pt"), words.split()
    out = ["--cpu", "--out", str(tmp_path / "o.pt")]
    assert main([name, str(path), str(toy_checkpoints.COPY), *more, *out]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert all(option in line for option in named)
    assert "`" not in line


@pytest.mark.slow
def test_what_is_printed_has_two_lines(model: Trained) -> None:
    found = prices(model, sentences=9)
    given: Any = {"statistics": found.statistics, "sentences": 9}
    small = shrink(model, parameters=0.8, sentences=9)
    latent = convert(model, "latent", 8, **given)
    for one in (model, found, latent, prune(model, 2, **given), small, small.plan):
        assert len(lines := repr(one).splitlines()) == 2, type(one)
        assert max(map(len, lines)) < 200


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("prices", {}),
        ("prune", {"number": 1}),
        ("convert", {"size": 8}),
        ("shrink", {"heads": 0.5}),
    ],
)
def test_a_thousand_sentences_of_the_training_set_are_read(
    name: str, given: dict[str, Any], model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless an argument says otherwise."""

    def reading(_: Trained, subset: str, sentences: int) -> None:
        raise KeyError(subset, sentences)

    monkeypatch.setattr(by_hand, "sentences_of", reading)
    monkeypatch.setattr(evidence, "sentences_of", reading)
    with pytest.raises(KeyError) as raised:
        getattr(collab_lab, name)(model, **given)
    assert raised.value.args == ("train", 1000)


def test_what_tabs_complete() -> None:
    assert {*collab_lab.__all__} <= {*dir(collab_lab)}


def test_an_attention_may_lose_all_heads(model: Trained) -> None:
    """Arguments that fit each other are accepted."""
    retained: Any = {**HEADS, "cross": [[], [0, 1, 2, 3]]}
    assert prune(model, retained=retained, sentences=9).model.heads["cross"] == [0, 4]
    assert prune(model, 0, sentences=9).model.heads == model.heads
    made = convert(model, size=8, by_type={"cross": "4,0"}, sentences=9)
    assert sorted(made.plan.sizes.values()) == [4, 8, 8, 8, 8]
    assert made.model.options["query_mixing"] == "own"


def test_statistics_of_a_model_with_other_blocks(model: Trained) -> None:
    """Equal attentions are not enough."""
    found: Any = {"statistics": prices(model, sentences=9).statistics, "sentences": 9}
    other = model.with_model(copy.deepcopy(model.model))
    assert prune(other, 2, **found).model.heads
    with torch.no_grad():
        other.model.encoder.layers[0].fc1.weight.mul_(-1)
    for call in (partial(prune, other, 2), partial(convert, other, "latent", 8)):
        with refusing("another model"):
            call(**found)
