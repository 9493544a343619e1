"""The benchmark's models, statistics and checks; no test looks at a time."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refusing, wrong_usage
from toy import close

from collab_common.errors import UserError
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.bench import (
    core,
    engines,
    fairseq_generate,
    generate,
    memory,
    report,
    run,
    train,
)
from fairseq_collab.bench.memory import CopyCounter
from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Pair,
    Variant,
    architectures,
    build,
    random_pair,
)
from fairseq_collab.bench.settings import BEAM, Settings
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import batches, random_task
from fairseq_collab.commands import bench as command
from fairseq_collab.commands import export
from fairseq_collab.export.model import plain
from fairseq_collab.kernels import onednn
from fairseq_collab.metrics import model_bleu
from fairseq_collab.metrics.cost import LENGTH

SETTINGS = Settings(presets=("tiny",), quick=True, threads=1)
VARIANTS = [
    *(Variant(arch) for arch in architectures() if arch != COLLAB),
    *(Variant(COLLAB, reduction) for reduction in (1, 2, 4, 8)),
]


@pytest.fixture
def task() -> Namespace:
    return random_task("tiny", 4, seed=1)


def another_pair(task: Namespace) -> Pair:
    """Two models that translate otherwise."""
    pair = random_pair(Variant(COLLAB, 4), "tiny", task, seed=1)
    with torch.no_grad():
        pair.ours.model.decoder.layers[0].self_attn.mixing.mul_(3)
    return pair


CASE = generate.Case(beam=5, batch=4, sentences=4, fixed=10, budget=(0, 1))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_pairs_compute_one_function(variant: Variant, task: Namespace, float64: None) -> None:
    """Random weights, one K for all heads: equal logits in double precision."""
    pair = random_pair(variant, "tiny", task, seed=1)
    stock, ours = pair.stock.model, pair.ours.model
    (batch,) = batches(task, "test", SETTINGS, 1, max_sentences=4)
    (found, _), (expected, _) = ours(**batch["net_input"]), stock(**batch["net_input"])
    assert type(ours) is not type(stock)
    close(found, expected)


def test_random_models_translate_different_sentences_differently(task: Namespace) -> None:
    stock = random_pair(Variant(HEADSIZE), "tiny", task, seed=1).stock.model
    (batch,) = batches(task, "test", SETTINGS, 1, max_sentences=4)
    found = generate.Translator(stock, task, CASE, SETTINGS)(batch)
    assert all(len(sentence[0]["tokens"]) == 11 for sentence in found)
    assert len({tuple(sentence[0]["tokens"].tolist()) for sentence in found}) == 4


def test_a_task_is_asked_for_batches_of_several_sizes() -> None:
    """fairseq keeps a set's first batches, and would give them again."""
    task = random_task("tiny", 8, seed=1)
    for size in (1, 4, 2):
        found = batches(task, "test", SETTINGS, 2, max_sentences=size)
        assert [len(batch["id"]) for batch in found] == [size, size]


@pytest.mark.parametrize("reduction", [1, 4])
def test_authors_form_equals_ours(reduction: int, float64: None) -> None:
    """Forward, gradients with a causal mask, and decoding with reorders, in double precision."""
    ours = CollaborativeAttention(16, 4, 16 // reduction, mixing_init="xavier", self_attention=True)
    torch.nn.init.normal_(ours.q_proj.bias)
    theirs = core.AuthorsAttention(16, 4, 16 // reduction, self_attention=True)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(6, 10, 16)
    future = torch.full((6, 6), float("-inf")).triu(1)
    outputs = [core.forward_backward(module, future, x) for module in (ours, theirs)]
    close(*outputs)
    own = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        close(own[name].grad, parameter.grad, msg=name)
    orders = core.beam_orders(10, 6, SETTINGS)
    assert orders.unique(dim=0).size(0) > 1
    decoded = [core.decode_steps(module, x, orders, len(x)) for module in (ours, theirs)]
    close(*decoded)


def test_a_pair_that_translates_otherwise_is_not_timed(task: Namespace) -> None:
    pair = another_pair(task)

    def compared(stock: Any) -> Any:
        models = {STOCK: stock, "ours": pair.ours.model}
        translators = {n: generate.Translator(m, task, CASE, SETTINGS) for n, m in models.items()}
        return generate.compared({}, translators, CASE, SETTINGS)

    with pytest.raises(UserError, match="is translated otherwise by ours than by transformer"):
        next(compared(pair.stock.model))
    (record,) = compared(plain(pair.ours).model)
    assert (record["pairs"], record["against"], record["model"]) == (1, STOCK, "ours")


def test_ties_are_counted() -> None:
    def translator(*words_and_scores: tuple[int, float]) -> Any:
        found = [
            [{"tokens": torch.tensor([word, 2]), "score": torch.tensor(score)}]
            for word, score in words_and_scores
        ]
        return lambda _: found

    def ties(other: Any, tie: float) -> int:
        return generate.count_ties({"one": stock, "other": other}, [None], tie)

    stock, ours = translator((5, -1.0), (6, -1.0)), translator((5, -1.0), (7, -1.00005))
    assert ties(stock, tie=1e-4) == 0
    assert ties(ours, tie=1e-4) == 1
    with pytest.raises(UserError, match="sentence 1 of a batch is translated otherwise by other"):
        ties(ours, tie=1e-5)


def test_losses_and_outputs_are_checked() -> None:
    train.check_losses([5.0, 5.0001], 1e-4)
    with pytest.raises(UserError, match=r"is 5.000000, that of ours 5.010000"):
        train.check_losses([5.0, 5.0, 5.01], 1e-4)
    with pytest.raises(UserError, match="ours nan"):
        train.check_losses([5.0, float("nan")], 1e-4)
    outputs = {name: torch.zeros(2) for pair in core.SAME for name in pair}
    core.check_outputs(outputs, "float32")
    outputs[STOCK] = torch.ones(2)
    with pytest.raises(UserError, match=r"outputs of transformer and transformer_headsize_n d/H"):
        core.check_outputs(outputs, "float32")


def test_translation_files_are_compared() -> None:
    lines = ["H-0\t-0.5\tein Haus", "D-0\t-0.5\tein Haus"]
    fairseq_generate.check_files(lines, ["H-0\t-0.5004\tein Haus", "D-0\t-0.5\tein Haus"])
    for other, message in (
        (lines[:1], "2 lines of translations by fairseq's model, 1 by ours"),
        (
            [lines[0], "D-0\t-0.5\tein Hund"],
            "translations differ in D-0: 'ein Haus' and 'ein Hund'",
        ),
        (["H-0\t-0.51\tein Haus", lines[1]], "translations differ in H-0"),
    ):
        with pytest.raises(UserError, match=message):
            fairseq_generate.check_files(lines, other)


def test_statistics() -> None:
    found = compare([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])
    assert (found["ratio"], found["pairs"]) == (3.0, 3)
    assert (found["first_seconds"], found["second_seconds"]) == (3.0, 1.0)
    assert (found["low"], found["high"]) == pytest.approx((2.1, 3.9))


def test_programs_take_turns() -> None:
    """A B, B A, ...; each item in both orders; until there are enough turns."""
    calls: list[tuple[str, int]] = []
    programs = {
        "a": lambda item: calls.append(("a", item)),
        "b": lambda item: calls.append(("b", item)),
    }
    times = in_turn(programs, [0, 1], budget=(0, 4))
    assert {name: len(of_name) for name, of_name in times.items()} == {"a": 4, "b": 4}
    turns = [calls[i : i + 2] for i in range(0, 8, 2)]
    for item in (0, 1):
        first = sorted(turn[0][0] for turn in turns if turn[0][1] == item)
        assert first == ["a", "b"]


@pytest.mark.parametrize("variant", [Variant(STOCK), Variant(HEADSIZE), Variant(COLLAB, 8)])
def test_cache_bytes_are_those_of_the_caches(variant: Variant, task: Namespace) -> None:
    """As they lie in the state of a decoder that has made some steps."""
    model = build(variant, "tiny", task).eval()
    state: dict[str, Any] = {}
    memory.count_copies(model, state)
    steps, rows = memory.STEPS + 1, memory.SENTENCES * BEAM
    found: dict[str, float] = Counter()
    for layer in model.decoder.layers:
        for site, attention in (("self", layer.self_attn), ("cross", layer.encoder_attn)):
            tokens = steps * rows if site == "self" else LENGTH * memory.SENTENCES
            if variant.arch == STOCK:
                buffer = attention._get_input_buffer(state)
                held = {f"{kind}s": buffer[f"prev_{kind}"].nbytes for kind in ("key", "value")}
            else:
                held = attention.cache_bytes(state)
            found.update({f"cache_{site}_{kind}": size / tokens for kind, size in held.items()})
    assert memory.cache_bytes(model) == found


def test_copies_are_counted() -> None:
    x = torch.zeros(4, 4)
    with CopyCounter() as copies:
        x.transpose(0, 1).contiguous()
        torch.cat([x, x])
        x[:2].view(8)
        x + x
    assert (copies.calls, copies.bytes) == (2, 64 + 128)


def test_timed_parts_are_measured_with_both_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ours is not torch's own; what the user's environment says is put back."""
    monkeypatch.setenv(onednn.VARIABLE, "torch")
    monkeypatch.setattr(onednn, "is_intel", lambda: False)
    default = run.DEFAULT, SETTINGS
    with run.chosen(run.DEFAULT):
        library = run.matrix_library()
    again = [(run.SAME, replace(SETTINGS, main_only=True))] * (library == "onednn")
    assert [*run.columns("train", SETTINGS)] == [default, *again]
    assert [*run.columns("grouped", SETTINGS)] == [default]
    half = replace(SETTINGS, dtype="bfloat16")  # oneDNN's maps are of float32
    assert [*run.columns("train", half)] == [(run.DEFAULT, half)]
    with run.chosen(run.SAME):
        assert run.matrix_library() == "torch"
    assert os.environ[onednn.VARIABLE] == "torch"
    monkeypatch.setattr(onednn, "is_intel", lambda: True)
    assert [*run.columns("train", SETTINGS)] == [default]
    run.matrix_library.cache_clear()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "cuda"), "--device cuda: torch finds no CUDA device"),
        (
            ("--decoding", __file__, "--data", ".", "--dtype", "bfloat16"),
            "--decoding: fairseq-generate translates in float32",
        ),
        (("--engines", "--dtype", "bfloat16"), "--engines: compares engines on a CPU, in float32"),
        (("--checkpoint", "x.pt"), "--checkpoint: needs the --data"),
        (("--decoding", "x.pt"), "--decoding: needs the --data"),
        (("--length", "30"), "--length: is an option of --decoding; give both, or neither"),
        (("--quick", "--rounds", "2"), "--rounds: is an option of --decoding"),
        (("--engines", __file__), "--engines: needs the --data"),
        (("--engines", "x.pt", "--data", "."), "x.pt: there is no such checkpoint; give --engines"),
        (("--data", "nowhere"), "nowhere: there is no such data folder"),
        (("--data", ".", "--checkpoint", "x.pt"), "x.pt: there is no such checkpoint"),
        (("--out", "nowhere/bench.json"), "nowhere/bench.json: cannot be written"),
        (("--report", "nowhere.json"), "nowhere.json: cannot be read: No such file"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_refusals(
    options: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is run, and with nothing written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        command.main(options)
    assert not list(tmp_path.iterdir())


def test_memory_is_refused_where_nothing_tells_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And not after all other parts have been timed."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.chdir(tmp_path)
    with refusing("--only memory: only Linux tells it; give --only", "grouped,core,counters"):
        command.main([])


def test_engines_are_for_cpus_and_need_ctranslate2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match="--engines: compares engines on a CPU, in float32"):
        command.main(["--engines", "--device", "cuda"])
    monkeypatch.setattr(export, "find_spec", lambda _: None)
    told = "--engines: needs the package ctranslate2, which is not installed; pip install"
    with refusing(told, "'fairseq-collab[export]'"):
        command.main(["--engines"])


def test_engines_take_turns_with_every_beam_and_batch(task: Namespace) -> None:
    """Those of ours in float32 that translate otherwise are not timed."""
    whole = replace(SETTINGS, quick=False)
    natural = [*engines.cases(whole, natural=True)]
    assert {(c.beam, c.batch) for c in natural} == {(b, n) for b in (1, 5) for n in (1, 16, 64)}
    assert all(case.fixed is None for case in natural)
    assert {case.fixed for case in engines.cases(whole)} == {30}
    pair = another_pair(task)
    with pytest.raises(UserError, match=r"is translated otherwise by transformer_collab K=d/4"):
        engines.check_ours(engines.translators(pair, CASE, SETTINGS), pair, CASE, SETTINGS)


def test_words_of_other_engines_are_joined(task: Namespace) -> None:
    assert model_bleu.joined(["\u2581ein", "\u2581Ha", "us"]) == "ein Haus"
    assert model_bleu.joined(["ein", "Ha@@", "us"]) == "ein Haus"
    symbols = task.target_dictionary
    tokens = torch.tensor([symbols.pad(), 7, 8, symbols.eos()])
    assert model_bleu.words_of(symbols, tokens) == [symbols[7], symbols[8]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--only", "nothing"), "must be some of generate, alone, "),
        (("--presets", "huge"), "must be some of multi30k, wmt_en_de, tiny, not 'huge'"),
        (("--threads", "0"), "must be a whole number above 0, not '0'"),
        *(
            ((alone, "x", *option), f"{option[0]} has no effect with {alone}: leave one out")
            for alone, *unread in (
                ("--decoding", ("--presets", "tiny"), ("--quick",), ("--seed", "2")),
                ("--engines", ("--only", "core"), ("--names", "one"), ("--checkpoint", "y")),
                ("--report", ("--data", "."), ("--quick",), ("--dtype", "bfloat16")),
                ("--report", ("--rounds", "2"), ("--decoding", "y"), ("--engines",)),
            )
            for option in unread
        ),
        (("--engines", "--data", "."), "--data needs checkpoints after --engines"),
        *(
            (
                ("--out", "no/where.json", "--only", part, *option),
                f"{option[0]} has no effect with --only {part}: leave one",
            )
            for part, *option in (
                ("core", "--presets", "tiny"),
                ("train,counters", "--checkpoint", "x"),
                ("counters", "--quick"),
                ("memory,paper3", "--data", "."),
            )
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage(options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys, message):
        command.main(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "no results of a benchmark of version 1"),
        ('{"version": 1}', "it has no records"),
        ("{", "not JSON .*"),
    ],
)
def test_a_file_that_is_no_benchmark(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(UserError, match=rf"other\.json: {message}; give what fairseq-collab bench"):
        command.main(["--report", str(tmp_path / "other.json")])


def test_engines_with_a_model_share_a_row_of_the_figure() -> None:
    """And runs of the other parts a mark each."""
    times = {"ratio": 2.0, "low": 1.5, "high": 2.5, "preset": "tiny", "case": "beam 5"}
    of_all = {**times, "against": STOCK, "column": "default"}
    in_engines = [
        {**of_all, "part": "engines", "pair": pair, "model": model, "engine": engine}
        for pair in (HEADSIZE, COLLAB)
        for model, engine in ((STOCK, STOCK), (pair, "ours"), ("CTranslate2", "CTranslate2"))
    ]
    libraries = {"default": "oneDNN"}
    trained = {"libraries": libraries, "records": [{**of_all, "part": "train", "model": HEADSIZE}]}
    figure = report.draw([trained, trained, {"libraries": libraries, "records": in_engines}])
    assert figure is not None
    updates, translation = figure.axes
    assert [len(axes.get_yticks()) for axes in (updates, translation)] == [1, 2]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["run 1, oneDNN", "run 2, oneDNN", "ours", "CTranslate2"]
