"""Stored checkpoints, one of each architecture, load and compute the stored values."""

from __future__ import annotations

import json
import re
from argparse import Namespace

import pytest
from commands import USER_DIR, succeed
from fairseq import utils
from toy_checkpoints import ARCHITECTURES, STORED, log_probabilities, losses

from fairseq_collab.models.variants import VARIANTS

EXPECTED: dict[str, dict[str, list[float]]] = json.loads((STORED / "expected.json").read_text())
#: Translations of ``transformer_collab_1/source.en`` with their scores.
TRANSLATED = {"w3 w1 w4 w1 w5": -0.1722, "w9 w2 w6": -0.0641, "w0 w0 w0 w11": -0.5573}


@pytest.mark.parametrize("name", EXPECTED)
def test_log_probabilities(name: str) -> None:
    utils.import_user_module(Namespace(user_dir=str(USER_DIR[1])))
    found = log_probabilities(STORED / "checkpoints" / f"{name}.pt")
    assert found == pytest.approx(EXPECTED[name]["log_probabilities"], abs=1e-5)


@pytest.mark.parametrize("name", EXPECTED)
def test_losses_of_a_training(name: str) -> None:
    """From the initial weights on; processors differ by some 1e-6."""
    assert losses(name, **ARCHITECTURES[name]) == pytest.approx(EXPECTED[name]["losses"], abs=1e-5)


def test_each_architecture_has_one() -> None:
    assert {f"transformer_{one.name}" for one in VARIANTS} <= {*EXPECTED}
    assert {path.stem for path in (STORED / "checkpoints").iterdir()} == {*EXPECTED}


@pytest.mark.slow
def test_fairseq_interactive() -> None:
    folder = STORED / "transformer_collab_1"
    output = succeed(
        "fairseq-interactive", folder, *USER_DIR, "--path", folder / "checkpoint.pt",
        "--source-lang=en", "--target-lang=de", "--cpu", "--beam=5",
        "--input", folder / "source.en",
    )  # fmt: skip
    found = re.findall(r"^H-\d\t([^\t]*)\t(.*)$", output, re.MULTILINE)
    translated = {text: pytest.approx(float(score), abs=1e-4) for score, text in found}
    assert translated == TRANSLATED
