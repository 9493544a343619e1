"""The program of an ONNX folder finds fairseq's hypotheses, with every kind of heads.

Here torch runs the modules that are exported: an export takes seconds.  ``tests/unit/test_onnx.py``
has the exported graphs.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_checkpoints
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import import_user_module
from toy_checkpoints import COPY

from collab_lab import open_model
from collab_lab.export import check, onnx, onnx_check
from collab_lab.export.onnx_graphs import EncoderGraph, StepGraph
from collab_lab.export.translate import Hypothesis, Translator
from collab_lab.export.vocabulary import vocabulary
from collab_lab.trained.checkpoint import Trained

BEAM, LONGEST = 4, 14
TIED = Path(__file__).parents[1] / "examples" / "tied_heads"


class Session:
    """A module in place of onnxruntime's session."""

    def __init__(self, module: Any, names: list[str]):
        self.module, self.names = module, names

    def get_inputs(self) -> list[Namespace]:
        return [Namespace(name=name) for name in self.names]

    @torch.no_grad()
    def run(self, _outputs: None, inputs: dict[str, Any]) -> list[Any]:
        given = [torch.from_numpy(np.array(inputs[name], order="C")) for name in self.names]
        return [tensor.numpy() for tensor in self.module(*given)]


def program(trained: Trained, folder: Path) -> Translator:
    """The program of the folder that would be written, with modules for graphs."""
    model = onnx.prepared(trained)
    names, described = onnx.cache_names(model)
    sessions = {"step.onnx": Session(StepGraph(model), [*onnx.STEP_INPUTS, *names])}
    if not trained.is_language_model:
        sessions["encoder.onnx"] = Session(EncoderGraph(model), ["tokens"])
    for name in sessions:
        (folder / name).touch()
    onnx.write_text(trained, folder)
    onnx.write_json(folder / "config.json", onnx.configuration(trained, described, folder))

    class Eager(Translator):
        def _session(self, name: str, threads: int | None) -> Any:
            return sessions[name]

    return Eager(folder)


def opened(path: Path, arch: str, **options: Any) -> Trained:
    return open_model(toy_checkpoints.write(path / "c.pt", arch, **options), str(COPY))


def sources(number: int = 9) -> list[list[int]]:
    """Of several lengths, with an unknown word."""
    chance = np.random.default_rng(3)
    lengths = [1 + i % 7 for i in range(number)]
    return [[*chance.integers(3, 16, n).tolist(), 2] for n in lengths]


def by_fairseq(
    trained: Trained, lines: list[list[int]], beam: int = BEAM, **options: Any
) -> list[list[Hypothesis]]:
    """Hypotheses of fairseq's generator, in one batch."""
    prefix = options.pop("prefix_tokens", None)
    settings = {"max_len_b": LONGEST, "beam_size": beam, **options}
    words = trained.task.target_dictionary
    search = SequenceGenerator([trained.model], words, **settings)
    rows = data_utils.collate_tokens(
        [torch.tensor(line) for line in lines], words.pad(), left_pad=True
    )
    batch = {"src_tokens": rows, "src_lengths": rows.ne(words.pad()).sum(1)}
    found = search.generate([trained.model], {"net_input": batch}, prefix_tokens=prefix)
    return [
        [Hypothesis(float(h["score"]), h["tokens"][:-1].tolist(), "") for h in hypotheses]
        for hypotheses in found
    ]


def check_equal(ours: Any, theirs: Any, within: float = 1e-5) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=within)


SIZED, COLLAB, LATENT = "transformer_headsize_n", "transformer_collab", "transformer_latent"
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {}),
    ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    ("transformer", {"encoder_learned_pos": True, "decoder_learned_pos": True}),
    ("transformer", {"share_decoder_input_output_embed": True, "no_scale_embedding": True}),
    ("transformer", {"layernorm_embedding": True, "activation_fn": "gelu"}),
    (SIZED, {"qk_head_size": 3, "v_head_size": 5, "heads_in_encoder": "2,5"}),
    (SIZED, {"heads_in_encoder": "4,0", "heads_in_decoder": "0", "heads_in_cross": "0,2"}),
    (SIZED, {"heads_in_decoder": "0,4", "ffn_dims_in_encoder": "7,24"}),
    (SIZED, {"ffn_dims_in_encoder": "0,24", "ffn_dims_in_decoder": "0"}),
    (SIZED, {"decoder_input_dim": 8, "decoder_output_dim": 12}),
    (COLLAB, {"key_dim": 6, "query_mixing": "diagonal"}),
    (COLLAB, {"key_dim": 6, "query_mixing": "full", "value_heads": 2}),
    (COLLAB, {"key_dim": 6, "query_mixing": "own"}),
    ("transformer_grouped_query", {"key_value_heads": 2}),
    (LATENT, {"latent_dim": 6, "latent_dim_in_cross": "3"}),
    (LATENT, {"latent_dim": 6, "latent_norm": True}),
    (LATENT, {"latent_dim": 5, "shared_latent_in_cross": 16}),
    (LATENT, {"latent_dim": 5, "shared_latent_in_cross": 7}),
    ("transformer_gated_heads", {}),
    ("transformer_grouped_heads", {"head_groups": 2}),
]  # fmt: skip
ROUNDED: list[tuple[str, dict[str, Any]]] = [
    (SIZED, {"cache_bits": "8"}),
    (SIZED, {"cache_bits": "4", "head_size": 3}),
    (COLLAB, {"key_dim": 7, "cache_bits_in_cross": "4"}),
    (LATENT, {"latent_dim": 6, "cache_bits": "4"}),
    (LATENT, {"latent_dim": 5, "shared_latent_in_cross": 7, "cache_bits": "8"}),
]


@pytest.mark.parametrize(("arch", "options"), KINDS + ROUNDED, ids=str)
def test_translations_are_fairseqs(arch: str, options: dict[str, Any], tmp_path: Path) -> None:
    """All hypotheses and their scores, of sentences that end at different steps."""
    trained = opened(tmp_path, arch, **options)
    lines = sources()
    ours = program(trained, tmp_path).search(lines, BEAM, max_len_a=0, max_len_b=LONGEST)
    check_equal(ours, by_fairseq(trained, lines))


def test_translations_without_positions(tmp_path: Path) -> None:
    """The model cannot tell the order of words, so hypotheses with equal words tie."""
    options = {"no_token_positional_embeddings": True, "encoder_layers": 1}
    trained = opened(tmp_path, "transformer", **options)
    lines = sources()
    ours = program(trained, tmp_path).search(lines, BEAM, max_len_a=0, max_len_b=LONGEST)
    for one, other in zip(ours, by_fairseq(trained, lines), strict=True):
        assert [sorted(h.tokens) for h in one] == [sorted(h.tokens) for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


def test_heads_of_a_file_of_ones_own(tmp_path: Path) -> None:
    """The example of docs/own_heads.md, whose keys are its values: one tensor is cached."""
    import_user_module(Namespace(user_dir=str(TIED)))
    trained = opened(tmp_path, "transformer_tied_heads")
    found = program(trained, tmp_path)
    check_equal(
        found.search(sources(), BEAM, max_len_a=0, max_len_b=LONGEST),
        by_fairseq(trained, sources()),
    )
    assert len(found.config["own"]) == len(found.config["cross"]) == 2  # one for each layer


def test_closed_gates_are_gone(tmp_path: Path) -> None:
    """Those of a whole layer, too; the folder counts the heads that it has."""
    trained = opened(tmp_path, "transformer_gated_heads")
    gates = {"cross": ([1, -1, -1, 1], [1, 1, 1, -1]), "encoder": ([1, 1, 1, 1], [-1, -1, -1, -1])}
    with torch.no_grad():
        for type_, layers in gates.items():
            for attention, signs in zip(trained.attentions[type_], layers, strict=True):
                attention.module.theta.copy_(torch.tensor(signs))
    found = program(trained, tmp_path)
    ours = found.search(sources(), BEAM, max_len_a=0, max_len_b=LONGEST)
    check_equal(ours, by_fairseq(trained, sources()))
    heads = found.config["heads"]
    assert (heads["cross"], heads["encoder"]) == ([2, 3], [4, 0])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"beam": 1}),
        ({}, {"beam": 6}),
        ({"min_len": 6}, {"min_len": 6}),
        ({"lenpen": 0.3}, {"len_penalty": 0.3}),
        ({"lenpen": 2.0, "min_len": 0}, {"len_penalty": 2.0, "min_len": 0}),
        ({"unkpen": 0.7}, {"unk_penalty": 0.7}),
        ({"unkpen": -1.5}, {"unk_penalty": -1.5}),
        ({"max_len_b": 3}, {"max_len_b": 3}),
    ],
    ids=str,
)
def test_options_of_the_search(
    ours: dict[str, Any], theirs: dict[str, Any], tmp_path: Path
) -> None:
    trained = opened(tmp_path, COLLAB, key_dim=6)
    beam = theirs.get("beam", BEAM)
    limits = {"max_len_a": 0, "max_len_b": LONGEST, **ours}
    found = program(trained, tmp_path).search(sources(), beam, **limits)
    check_equal(found, by_fairseq(trained, sources(), **theirs))


def test_the_longest_translation_depends_on_the_source_alone(tmp_path: Path) -> None:
    """fairseq's limit is that of the longest source of a batch."""
    trained = opened(tmp_path, SIZED)
    found = program(trained, tmp_path).search(sources(), BEAM, max_len_a=1.5, max_len_b=1)
    alone = [by_fairseq(trained, [line], max_len_a=1.5, max_len_b=1)[0] for line in sources()]
    check_equal(found, alone)


def test_a_check_has_the_limit_of_fairseqs_batches(tmp_path: Path) -> None:
    """Translations that never end stop where fairseq stops those of the batch."""
    trained, lines = opened(tmp_path, SIZED), sources()
    with torch.no_grad():
        trained.model.decoder.output_projection.weight[2] = 0
    words = vocabulary(trained)
    theirs = check.by_fairseq(trained.model, words, [torch.tensor(line) for line in lines])
    assert onnx_check.translations(program(trained, tmp_path), trained, lines) == theirs
    assert len(theirs[0]) > 2 * len(lines[0]) + 20


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (SIZED, {}),
        ("transformer_lm_headsize_n", {}),
        ("transformer_lm_headsize_n", {"add_bos_token": True}),
    ],
    ids=str,
)
def test_a_check_reads_the_validation_set_as_fairseq_does(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Equal translations, or continuations of first halves, and equal bits of what is there."""
    data = toy_checkpoints.blocks(tmp_path / "data") if "_lm" in arch else COPY
    (tmp_path / "out").mkdir()
    trained = open_model(toy_checkpoints.write(tmp_path / "c.pt", arch, **options), str(data))
    trained.cfg.task.add_bos_token = options.get("add_bos_token", False)
    found, sentences = program(trained, tmp_path / "out"), onnx_check.sentences_to_check(trained, 5)
    assert sentences.targets is not None
    theirs = onnx_check.continued(trained, sentences.sources)
    assert onnx_check.translations(found, trained, sentences.sources) == theirs
    if "_lm" in arch:
        for half, *lines in zip(sentences.sources, sentences.targets, theirs, strict=True):
            assert [line[: len(half)] for line in lines] == [half, half]
    bits = onnx_check.bits_of_folder(found, *sentences)
    assert bits == pytest.approx(onnx_check.bits_of_model(trained, sentences), abs=1e-4)


@pytest.mark.parametrize("bits", ["0", "4"])
def test_another_translation_fails_the_check_unless_the_cache_is_rounded(
    bits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then equal bits pass: a code next to a border may be another in another engine."""
    trained = opened(tmp_path, SIZED, cache_bits=bits)
    eager, translations = program(trained, tmp_path), onnx_check.translations
    monkeypatch.setattr(onnx_check, "Translator", lambda *_: eager)
    assert onnx_check.compare(trained, tmp_path, 3)[1]
    monkeypatch.setattr(onnx_check, "translations", lambda *given: [[7], *translations(*given)[1:]])
    lines, passes = onnx_check.compare(trained, tmp_path, 3)
    assert lines[0].startswith("check: 2 of 3 ")
    assert passes == (onnx_check.BORDER in lines) == (bits != "0")
    monkeypatch.setattr(onnx_check, "bits_of_folder", lambda *_: 99.0)
    assert not onnx_check.compare(trained, tmp_path, 3)[1]


@pytest.mark.parametrize("longest", [LONGEST, 2])
def test_translations_start_with_prefixes(longest: int, tmp_path: Path) -> None:
    """Of several lengths, none among them; one that is longer than translations may be is cut."""
    trained, lines = opened(tmp_path, LATENT, latent_dim=6), sources(4)
    prefixes = [[5], [], [7, 3, 9], [4, 4]]
    ours = program(trained, tmp_path).search(
        lines, BEAM, prefixes=prefixes, max_len_a=0, max_len_b=longest
    )
    padded = data_utils.collate_tokens([torch.tensor(p).long() for p in prefixes], 1)
    check_equal(ours, by_fairseq(trained, lines, prefix_tokens=padded, max_len_b=longest))
    starts = [prefix[:longest] for prefix in prefixes]
    assert all(h.tokens[: len(p)] == p for p, of in zip(starts, ours, strict=True) for h in of)


def test_slots_that_no_beam_sees_are_dropped(tmp_path: Path) -> None:
    """Of long translations most are; the hypotheses stay."""
    trained = opened(tmp_path, SIZED, head_size=2)
    found, sizes = program(trained, tmp_path), []
    run = found.step.run

    def measured(outputs: None, inputs: dict[str, Any]) -> Any:
        sizes.append(inputs["past_0"].shape[2])
        return run(outputs, inputs)

    found.step.run = measured
    ours = found.search(sources(3), BEAM, max_len_a=0, max_len_b=90, min_len=90)
    check_equal(ours, by_fairseq(trained, sources(3), max_len_b=90, min_len=90))
    assert sizes[-1] < 0.6 * 90 * BEAM


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer_lm", {}),
        ("transformer_lm_collab", {"key_dim": 6, "cache_bits": "8"}),
        ("transformer_lm_headsize_n", {"adaptive_softmax_cutoff": "8,13"}),
    ],
    ids=str,
)
def test_a_language_model_continues_lines(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    trained = opened(tmp_path, arch, **options)
    lines = [line[:-1] for line in sources(4)]
    padded = data_utils.collate_tokens([torch.tensor(line) for line in lines], 1)
    ours = program(trained, tmp_path).search(lines, BEAM, prefixes=lines, max_len_a=0, max_len_b=9)
    check_equal(ours, by_fairseq(trained, lines, prefix_tokens=padded, max_len_b=9))


@pytest.mark.parametrize(("arch", "options"), ROUNDED, ids=str)
def test_rounded_caches_have_the_bytes_of_their_cost(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    trained = opened(tmp_path, arch, **options)
    bound = onnx.cache_bytes(trained.model)
    for token, type_ in (("target", "decoder"), ("source", "cross")):
        modules = [a.module for a in trained.attentions[type_]]
        bits = sum(sum(module.cached_bits_per_token()) for module in modules)
        assert 8 * bound[token] == bits
