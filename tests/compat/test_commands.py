"""fairseq's own commands, unmodified, on a tiny corpus: in each kind of installation.

Run by recipes/test_matrix.sh. The environment of the tests has today's Hydra; a second one is
made here with pip 23.2, which still installs what fairseq pins.
"""

from __future__ import annotations

import random

import pytest
from interpreters import Interpreter, succeeded

pytestmark = pytest.mark.matrix

WORDS = {
    "the": "der",
    "man": "mann",
    "sees": "sieht",
    "a": "ein",
    "dog": "hund",
    "and": "und",
    "old": "alter",
    "big": "grosser",
    "here": "hier",
    "today": "heute",
}
TINY = (
    *("--arch", "transformer", "--task", "translation", "--share-decoder-input-output-embed"),
    *("--encoder-layers", "1", "--decoder-layers", "1"),
    *("--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--encoder-ffn-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
    *("--optimizer", "adam", "--lr", "0.005", "--max-tokens", "512", "--log-format", "simple"),
)


@pytest.fixture(scope="module", params=["today", "as-pinned-by-fairseq"])
def environment(request, wheel, tmp_path_factory):
    """An environment with torch and fairseq."""
    if request.param == "today":
        return Interpreter()
    folder = tmp_path_factory.mktemp("env")
    succeeded(Interpreter().run("-m", "venv", folder))
    python = Interpreter(folder / "bin" / "python")
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    python.output(*install, "pip==23.2")
    python.output(*install, "torch==2.13.0")
    python.output(*install, "fairseq==0.12.2")
    python.output(*install, wheel)
    return python


@pytest.fixture(scope="module")
def corpus(environment, tmp_path_factory):
    """A binarised corpus, by fairseq-preprocess."""
    folder = tmp_path_factory.mktemp("corpus")
    choose = random.Random(1)
    for split, size in (("train", 300), ("valid", 30), ("test", 30)):
        pairs = [choose.choices(list(WORDS.items()), k=choose.randint(2, 9)) for _ in range(size)]
        for side, language in enumerate(("en", "de")):
            lines = [" ".join(pair[side] for pair in sentence) for sentence in pairs]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    succeeded(
        environment.run_script(
            *("fairseq-preprocess", "-s", "en", "-t", "de", "--destdir", folder / "bin"),
            *("--trainpref", folder / "train", "--validpref", folder / "valid"),
            *("--testpref", folder / "test", "--workers", "2"),
        )
    )
    return folder


@pytest.fixture(scope="module")
def trained(environment, corpus):
    """A model trained for two epochs, then resumed for a third."""
    for epochs in (2, 3):
        done = succeeded(
            environment.run_script(
                *("fairseq-train", corpus / "bin", *TINY, "--save-dir", corpus / "checkpoints"),
                *("--max-epoch", str(epochs)),
            )
        )
    assert "Loaded checkpoint" in done.stdout + done.stderr
    return corpus / "checkpoints" / "checkpoint_best.pt"


def test_generate_and_score(environment, corpus, trained):
    done = succeeded(
        environment.run_script(
            *("fairseq-generate", corpus / "bin", "--path", trained, "--beam", "2"),
            *("--max-tokens", "256", "--results-path", corpus),
        )
    )
    assert "Generate test with beam=2" in (corpus / "generate-test.txt").read_text() + done.stdout
    lines = (corpus / "generate-test.txt").read_text().splitlines()
    for kind, column in (("H", 2), ("T", 1)):
        chosen = [line.split("\t")[column] for line in lines if line.startswith(f"{kind}-")]
        (corpus / kind).write_text("\n".join(chosen) + "\n")
    for option in ("--ignore-case", "--sacrebleu", "--sentence-bleu"):
        done = succeeded(
            environment.run_script(
                *("fairseq-score", "--sys", corpus / "H", "--ref", corpus / "T", option)
            )
        )
        assert "BLEU" in done.stdout


def test_interactive_and_validate(environment, corpus, trained):
    (corpus / "input").write_text("the man sees a dog\nthe dog\n")
    done = succeeded(
        environment.run_script(
            *("fairseq-interactive", corpus / "bin", "--path", trained, "--beam", "2"),
            *("--input", corpus / "input", "--buffer-size", "2"),
        )
    )
    assert done.stdout.count("H-") == 2
    succeeded(
        environment.run_script(
            *("fairseq-validate", corpus / "bin", "--path", trained, "--task", "translation"),
            *("--max-tokens", "512"),
        )
    )


def test_hydra_sweep(environment, corpus, repository):
    """Two jobs in one process; the second learns next to nothing, but has a best model, too."""
    done = succeeded(
        environment.run_script(
            *("fairseq-hydra-train", "-m", f"task.data={corpus / 'bin'}"),
            *("optimization.lr=[0.01],[0.000001]", "hydra.sweep.dir=sweep"),
            *("--config-dir", repository / "tests" / "compat", "--config-name", "sweep"),
            cwd=corpus,
        )
    )
    assert "Launching 2 jobs" in done.stdout + done.stderr
    saved = (corpus / "sweep").glob("*/checkpoints/checkpoint_best.pt")
    assert sorted(path.parts[-3] for path in saved) == ["0", "1"]


def test_torchrun(environment, corpus):
    """Two processes on the CPU, then resumed: an object from another rank is unpickled."""
    for epochs in (1, 2):
        done = succeeded(
            environment.run_script(
                *("torchrun", "--standalone", "--nproc_per_node", "2"),
                *(environment.executable.with_name("fairseq-train"), corpus / "bin", *TINY),
                *("--cpu", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"),
                *("--save-dir", corpus / "torchrun", "--max-epoch", str(epochs)),
            )
        )
    assert "training on 2 devices" in done.stdout + done.stderr
    assert "Loaded checkpoint" in done.stdout + done.stderr


def test_as_a_module(environment, corpus):
    assert "--arch" in environment.output("-m", "fairseq_cli.train", "--help")
