"""Steps of fixed shapes are ordinary steps, also where a graph is replayed.

Without a GPU, a :class:`Tape` replays: it repeats the operators of one step, on the same tensors
and with the same plain numbers.
"""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import toy
from fairseq.sequence_generator import SequenceGenerator
from operators import Operators
from parity.test_search import ending_early, sample
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.decoding import fixed_steps
from fairseq_collab.decoding.beam_search import ModelDecoding
from fairseq_collab.decoding.fixed_steps import (
    FIXED_STEPS_ENV,
    FixedDecoding,
    FixedStep,
    in_fixed_shapes,
)

#: Architectures and options.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("headsize_n", {}),
    "key and value size": ("headsize_n", {"qk_head_size": 3, "v_head_size": 5}),
    "no heads": ("headsize_n", {"heads_in_decoder": "4,0", "heads_in_cross": "0,4"}),
    "no heads at the end": ("headsize_n", {"heads_in_cross": "4,0"}),
    "shared key, full": ("collab", {"key_dim": 5, "query_mixing": "full", "value_heads": 2}),
    "grouped query": ("grouped_query", {"key_value_heads": 2}),
    "latent": ("latent", {"latent_dim": 6}),
    "standard, 8 bits": ("headsize_n", {"cache_bits": "8"}),
    "latent, 4 bits": ("latent", {"latent_dim": 6, "cache_bits": "4"}),
    "shared latent": ("latent", {"shared_latent_in_cross": 16}),
    "shared latent, 4 bits": ("latent", {"shared_latent_in_cross": 6, "cache_bits": "4"}),
    "learned positions": ("collab", {"key_dim": 5, "decoder_learned_pos": True}),
    "no positions": ("headsize_n", {"no_token_positional_embeddings": True}),
    "other output width": ("headsize_n", {"decoder_output_dim": 8, "decoder_input_dim": 6}),
    "without cross-attention": ("headsize_n", {"no_cross_attention": True}),
    "adaptive softmax": ("headsize_n", {"adaptive_softmax_cutoff": [30, 60]}),
}


class Tape(Operators):
    """Records operators, and repeats them as a CUDA graph does its kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = super().__torch_dispatch__(func, types, args, kwargs)
        self.calls.append((func, args, kwargs or {}, output))
        return output

    def replay(self, *outputs: Tensor | None) -> None:
        """Overwrite what the recorded run returned."""
        made: dict[int, Any] = {}  # in this run, by the objects of the recorded one

        def now(x: Any) -> Any:
            return made.get(id(x), x)

        for func, args, kwargs, recorded in self.calls:
            output = func(*tree_map(now, args), **tree_map(now, kwargs))
            pairs = zip(tree_flatten(recorded)[0], tree_flatten(output)[0], strict=True)
            made |= {id(old): new for old, new in pairs if isinstance(old, Tensor)}
        for x in outputs:
            if x is not None:
                x.copy_(now(x))


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    """Steps are replayed; the tapes, in the order of their capture."""
    tapes: list[Tape] = []

    def _captured(step: FixedStep, decoding: Any, pool: Any) -> Any:
        asked = step.history.order.clone()
        torch.arange(len(asked), out=step.history.order)
        with Tape() as tape:
            output = step._run(decoding)
        step.history.order.copy_(asked)
        assert not tape.waits(), "a graph cannot wait for the host"
        assert output[0].isfinite().all(), "of idle places, too"
        tapes.append(tape)
        return lambda: tape.replay(*output), output

    monkeypatch.setattr(FixedStep, "_captured", _captured)
    monkeypatch.setattr(fixed_steps, "GRAPHS_ON", ("cpu",))
    return tapes


@pytest.fixture(scope="module")
def symbols() -> Any:
    return toy.task(words=150)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIXED_STEPS_ENV, "1")
    fixed_steps.explain.cache_clear()


def model_of(name: str, symbols: Any) -> nn.Module:
    arch, options = CASES[name]
    torch.manual_seed(3)
    return toy.randomised(toy.model(f"transformer_{arch}", symbols, **options), 0.3).eval()


@pytest.fixture(scope="module")
def model(symbols: Any) -> nn.Module:
    return ending_early(symbols, query_mixing="own")


# ---- steps ---------------------------------------------------------------------------------------


@torch.no_grad()
def check_steps(
    model: nn.Module,
    batch: Any,
    beam: int,
    steps: int,
    within: float = 1e-9,
    temperature: float = 1.3,
) -> None:
    """Compare with ordinary steps, while beams descend from each other at random.

    A sentence ends in every third step, until one is left.
    """
    ordinary, other = (ModelDecoding(model, batch["net_input"], temperature) for _ in range(2))
    sentences = len(batch["net_input"]["src_tokens"])
    tokens = torch.full((sentences * beam, 1), 2)
    with in_fixed_shapes(other) as fixed:
        assert isinstance(fixed, FixedDecoding)
        for step in range(steps):
            for expected, found in zip(ordinary.step(tokens), fixed.step(tokens), strict=True):
                assert (expected is None) == (found is None)
                if expected is not None:
                    torch.testing.assert_close(found, expected, rtol=within, atol=within)
            staying = None
            if step % 3 == 2 and sentences > 1:
                sentences -= 1
                staying = torch.randperm(sentences + 1)[:sentences]
            left = torch.arange(sentences) if staying is None else staying
            rows = (left[:, None] * beam + torch.randint(beam, (sentences, beam))).flatten()
            for decoding in (ordinary, fixed):
                decoding.reorder(rows, staying)
            tokens = torch.cat([tokens[rows], torch.randint(4, 150, (len(rows), 1))], dim=1)


@pytest.mark.parametrize("name", CASES)
def test_replayed_steps_are_ordinary_steps(
    name: str, symbols: Any, captured: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots that no beam sees are dropped: all of them would take three blocks."""
    monkeypatch.setattr(fixed_steps, "BLOCK", 4)
    check_steps(model := model_of(name, symbols).double(), sample(symbols, 3), 3, 12)
    assert len(captured) <= 4  # one or two blocks of four sentences, and of one
    assert max(shape.slots for shape in fixed_steps.BUFFERS[model]._steps) <= 2 * 4 * 3


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float16, 0.02)])
def test_in_other_number_formats(
    model: nn.Module, symbols: Any, dtype: torch.dtype, within: float, captured: list[Tape]
) -> None:
    model = copy.deepcopy(model).to(dtype)
    check_steps(model, sample(symbols, 6), 2, 12, within)


def test_graphs_are_kept(
    symbols: Any, captured: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read new weights at their old place."""
    monkeypatch.setattr(fixed_steps, "BLOCK", 8)
    model = model_of("learned positions", symbols).double()
    counts = []
    for _ in range(3):
        torch.manual_seed(1)  # equal slots are live
        check_steps(model, sample(symbols, 6), 4, 26)
        counts.append(len(captured))
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(0.9)
    # The first batch replaces memory until there is enough.
    assert 2 <= counts[0] <= counts[1] == counts[2] <= 2 * counts[0]


def test_what_a_graph_holds_makes_new_graphs(
    model: nn.Module, symbols: Any, captured: list[Tape]
) -> None:
    """Where weights are, and plain numbers."""
    model, batch = copy.deepcopy(model), sample(symbols, 2)

    def check(**options: Any) -> None:
        before = len(captured)
        check_steps(model, batch, 2, 4, 1e-4, **options)
        assert len(captured) == before + 1
        check_steps(model, batch, 2, 4, 1e-4, **options)
        assert len(captured) == before + 1

    check()
    check(temperature=0.7)
    model.double()
    check()
    with torch.no_grad():
        model.decoder.layers[1].fc1.weight = nn.Parameter(2 * model.decoder.layers[1].fc1.weight)
    check()
    for module in model.decoder.modules():
        if isinstance(module, HeadAttention):
            module.cache_bits = 8
    check()
    with torch.inference_mode():
        check()


@torch.no_grad()
def test_a_step_waits_only_where_it_drops_slots(symbols: Any, monkeypatch: Any) -> None:
    """Not where sentences end, and buffers change."""
    monkeypatch.setattr(fixed_steps, "BLOCK", 4)
    model = model_of("learned positions", symbols)
    with in_fixed_shapes(ModelDecoding(model, sample(symbols, 6)["net_input"], 1.0)) as fixed:
        fixed.step(torch.full((12, 1), 2))
        with Operators() as operators:
            for steps, sentences in ((2, 6), (3, 5), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2)):
                fixed.reorder(torch.arange(2 * sentences), torch.arange(sentences))
                fixed.step(torch.full((2 * sentences, steps), 4))
            assert operators.ran
            assert not operators.waits()
            for steps in (9, 10):  # two blocks are full
                fixed.reorder(torch.tensor([1, 1, 2, 2]), None)
                fixed.step(torch.full((4, steps), 4))
                assert operators.waits() == 1
    assert fixed._filled == 8 + 2 * 2, "a slot of each of eight steps, and two new steps"


def test_one_memory_for_all_steps(symbols: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the largest; a model that goes takes it along."""
    monkeypatch.setattr(fixed_steps, "BLOCK", 8)
    model = model_of("standard", symbols)
    for sentences, steps in ((6, 14), (6, 6), (2, 30), (3, 3)):
        check_steps(model, sample(symbols, sentences), 2, steps, 1e-4)
        buffers = fixed_steps.BUFFERS[model]
        caches = [len(x) for name, x in buffers.memory.items() if name[-1].isdigit()]
        # Six sentences have eight places; their number falls before the second block.
        assert sorted(caches) == [8 * 8 * 16] * 4 + [8 * 2 * 8 * 16] * 4
    gone = weakref.ref(buffers)
    del model, buffers
    gc.collect()
    assert gone() is None


# ---- searches ------------------------------------------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "default": {},
    "minimum length": {"min_len": 6},
    "beyond a block": {"min_len": 66, "max_len_b": 70},
    "maximum length 0": {"min_len": 0, "max_len_b": 0},
    "temperature": {"temperature": 1.5},
}


def search(model: nn.Module, symbols: Any, **options: Any) -> Any:
    options = {"max_len_b": 9, "beam_size": 4, **options}
    generator = SequenceGenerator([model], symbols.target_dictionary, **options)
    return generator.generate([model], sample(symbols, 6))


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", SEARCHES)
def test_finds_the_same(
    model: nn.Module, symbols: Any, beam: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = search(model, symbols, beam_size=beam, **SEARCHES[name])
    assert model in fixed_steps.BUFFERS
    monkeypatch.delenv(FIXED_STEPS_ENV)
    ordinary = search(model, symbols, beam_size=beam, **SEARCHES[name])
    for one, other in zip(ordinary, found, strict=True):
        for expected, hypothesis in zip(one, other, strict=True):
            assert hypothesis["tokens"].tolist() == expected["tokens"].tolist()
            for key in ("score", "positional_scores", "attention"):
                torch.testing.assert_close(hypothesis[key], expected[key], rtol=1e-5, atol=1e-5)


def test_a_search_with_an_error_leaves_no_buffers(model: nn.Module, symbols: Any) -> None:
    search(model, symbols)
    broken = copy.deepcopy(model)
    search(broken, symbols)
    assert broken in fixed_steps.BUFFERS
    with torch.no_grad():
        broken.decoder.output_projection.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="probability"):
        search(broken, symbols)
    assert broken not in fixed_steps.BUFFERS


def test_two_searches_at_a_time_share_no_buffers(model: nn.Module, symbols: Any) -> None:
    search(model, symbols)
    one, other = (ModelDecoding(model, sample(symbols, 6)["net_input"], 1.0) for _ in range(2))
    with in_fixed_shapes(one) as first, in_fixed_shapes(other) as second:
        assert first._buffers is not second._buffers


# ---- the switch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", "0", "1"])
def test_off_by_default(
    model: nn.Module, symbols: Any, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FIXED_STEPS_ENV)
    if value is not None:
        monkeypatch.setenv(FIXED_STEPS_ENV, value)
    search(model := copy.deepcopy(model), symbols)
    assert (model in fixed_steps.BUFFERS) == (value == "1")


def test_other_values_are_rejected(
    model: nn.Module, symbols: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a search that is not ours, too."""
    monkeypatch.setenv(FIXED_STEPS_ENV, "yes")
    for options in ({}, {"no_repeat_ngram_size": 2}):
        with pytest.raises(UserError, match=FIXED_STEPS_ENV):
            search(model, symbols, **options)


class Plugged(nn.Linear):
    """Of a package that is not known."""


def plug(model: Any) -> None:
    model.decoder.layers[1].fc1.__class__ = Plugged


def hook_before(model: Any) -> None:
    model.decoder.embed_tokens.register_forward_pre_hook(lambda *_: None)


def replace(model: Any) -> None:
    model.decoder.layers[0].forward = model.decoder.layers[0].forward


#: What is done to a model; options; a context.
LEFT: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "a plug-in's module": (plug, {}, nullcontext),
    "a hook": (hook_before, {}, nullcontext),
    "another forward": (replace, {}, nullcontext),
    "autocast": (id, {}, lambda: torch.autocast("cpu", torch.bfloat16)),
    "fairseq's search": (id, {"no_repeat_ngram_size": 2}, nullcontext),
}


@pytest.mark.parametrize("name", LEFT)
def test_ordinary_steps_are_reported_once(
    model: nn.Module, symbols: Any, name: str, caplog: Any, monkeypatch: Any
) -> None:
    change, options, context = LEFT[name]
    change(model := copy.deepcopy(model))
    with context(), caplog.at_level(logging.WARNING, fixed_steps.logger.name):
        for _ in range(2):
            assert search(model, symbols, **options)
            assert len([x for x in caplog.records if FIXED_STEPS_ENV in x.getMessage()]) == 1
        caplog.clear()
        monkeypatch.delenv(FIXED_STEPS_ENV)
        fixed_steps.explain.cache_clear()
        assert search(model, symbols, **options)
    assert not caplog.records
    assert model not in fixed_steps.BUFFERS
