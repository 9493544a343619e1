"""Checkpoints of an earlier version, of each architecture, which must compute alike for ever.

``tests/stored/README.md`` says how they were made.  They are reached through fairseq's own loader
and commands alone.  Should a change be meant to end one, raise ``SIGNATURE_VERSION`` and say so.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import REPOSITORY, USER_DIR, succeed
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils
from fairseq.models.transformer import TransformerModel

STORED = REPOSITORY / "tests" / "stored"
EXPECTED: dict[str, Any] = json.loads((STORED / "expected.json").read_text())


def load(path: Path, data: Path) -> tuple[Any, Any, Any]:
    """Model, configuration and task of a checkpoint."""
    utils.import_user_module(Namespace(user_dir=str(USER_DIR[1])))
    overrides = {"data": str(data)}
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    return models[0].eval(), cfg, task


def translations(path: Path, sentences: list[str], data: Path = STORED / "copy") -> list[Any]:
    """The best translation of each sentence with its score, as ``fairseq-generate`` has it."""
    model, cfg, task = load(path, data)
    words = task.source_dictionary
    tokens = [words.encode_line(line, add_if_not_exist=False).long() for line in sentences]
    batch = {
        "net_input": {
            "src_tokens": data_utils.collate_tokens(
                tokens, words.pad(), words.eos(), left_pad=True
            ),
            "src_lengths": torch.tensor([len(line) for line in tokens]),
        }
    }
    generator = task.build_generator([model], cfg.generation)
    found = task.inference_step(generator, [model], batch)
    return [
        [task.target_dictionary.string(best["tokens"]), best["score"].item()] for best, *_ in found
    ]


def log_probabilities(path: Path, sentences: list[str]) -> list[list[float]]:
    """Of each word of each sentence, by what a language model reads before it."""
    model, _, task = load(path, STORED / "twice")
    found = []
    for line in sentences:
        tokens = task.source_dictionary.encode_line(line, add_if_not_exist=False).long()
        source, target = tokens[:-1], tokens[1:]
        with torch.no_grad():
            output = model(source[None])
        logs = model.get_normalized_probs(output, log_probs=True)[0]
        found.append(logs.gather(1, target[:, None])[:, 0].tolist())
    return found


@pytest.mark.parametrize("name", EXPECTED["translations"])
def test_translations_are_those_of_before(name: str) -> None:
    found = translations(STORED / "checkpoints" / f"{name}.pt", EXPECTED["sentences"])
    for one, (text, score) in zip(found, EXPECTED["translations"][name], strict=True):
        assert one == [text, pytest.approx(score, abs=1e-5)]


@pytest.mark.parametrize("name", EXPECTED["log_probabilities"])
def test_log_probabilities_are_those_of_before(name: str) -> None:
    found = log_probabilities(STORED / "checkpoints" / f"{name}.pt", EXPECTED["sentences"])
    for line, expected in zip(found, EXPECTED["log_probabilities"][name], strict=True):
        assert line == pytest.approx(expected, abs=1e-5)


def test_each_checkpoint_is_tested() -> None:
    names = {path.stem for path in (STORED / "checkpoints").glob("*.pt")}
    assert names == {*EXPECTED["translations"], *EXPECTED["log_probabilities"]}


def test_the_hub_shows_attention_and_alignments() -> None:
    """What from_pretrained returns hears that they are wanted when it translates, not before."""
    hub = TransformerModel.from_pretrained(
        str(STORED / "checkpoints"), "transformer_headsize_n.pt", str(STORED / "copy"),
        user_dir=str(USER_DIR[1]),
    )  # fmt: skip
    source = hub.encode(EXPECTED["sentences"][0])
    best = hub.generate(source, beam=2, print_alignment="hard")[0]
    _, extra = hub.models[0](
        source[None], torch.tensor([len(source)]), best["tokens"].roll(1)[None]
    )
    torch.testing.assert_close(best["attention"].T, extra["attn"][0][0])
    assert len(best["alignment"]) == len(best["tokens"]) - 1


def test_fairseq_interactive_translates_as_it_did() -> None:
    """The oldest one, through the command."""
    folder = STORED / "transformer_collab_1"
    output = succeed(
        "fairseq-interactive", folder, *USER_DIR, "--path", folder / "checkpoint.pt",
        "--source-lang=en", "--target-lang=de", "--cpu", "--beam=5",
        stdin=(folder / "source.en").read_text(),
    )  # fmt: skip
    found = re.findall(r"^H-(\d+)\t([^\t]*)\t(.*)$", output, re.MULTILINE)
    expected = EXPECTED["transformer_collab_1"]
    assert len(found) == len(expected)
    for number, score, text in found:
        expected_text, expected_score = expected[int(number)]
        assert text == expected_text
        assert float(score) == pytest.approx(expected_score, abs=1e-5)
