"""A checkpoint becomes a run like any other; multilingual ones go through every command."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
from cli.conftest import ENDING, SIZES
from commands import USER_DIR, refuse, succeed
from refusals import refusing
from reliability.test_save import CONTENTS

from collab_lab import validation_loss
from collab_lab.cli import export
from collab_lab.cli.score import main
from collab_lab.export import check, ct2
from collab_lab.export.vocabulary import directions, language_tags
from collab_lab.runs.record import Record, read
from collab_lab.runs.run import Run
from collab_lab.runs.translations import hypotheses_in, read_lines
from collab_lab.trained.checkpoint import open_model
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

SAID = [
    *("--set", "generation.max_len_b=10"),  # it has not learnt to end
    *("--set", "method=pruned", "--set", "share=half"),
    *("--set", "generation.beam=2"),
]


def score(checkpoint: Path, data: Path, run: Path, *options: str) -> None:
    """The command."""
    main([str(checkpoint), str(data), "--run", str(run), "--cpu", *options])


@pytest.fixture(scope="module")
def made(corpus: Path, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a checkpoint."""
    run = tmp_path_factory.mktemp("runs") / "pruned"
    score(trained, corpus, run, *SAID)
    return run


def test_the_record_of_a_checkpoint(made: Path, trained: Path) -> None:
    record = read(Record, made / "score.json")
    assert (record.task, record.method, record.arch) == (
        "translation", "pruned", "transformer_collab",
    )  # fmt: skip
    assert record.overrides["share"] == "half"
    assert (record.beam, record.sentences, record.key_dim, record.heads) == (2, 50, 8, 4)
    assert (record.train_updates, record.epochs, record.trained_at_commit) == (None, None, None)
    assert record.valid_loss > record.valid_nats > 0, "in bits and smoothed; in nats and not"
    assert all((record.seed, record.hardware, record.date))
    started = Run(made).started()
    assert started.checkpoint == str(trained)
    assert started.command is not None
    assert started.command[:2] == ["fairseq-collab", "score"]
    assert (record.command, record.commit) == (started.command, started.commit)


def test_translations_are_those_of_fairseq_generate(made: Path, corpus: Path) -> None:
    printed = succeed(
        "fairseq-generate", corpus, *USER_DIR, "--path", made / "average.pt", "--beam", 2,
        "--max-len-b", 10, "--max-tokens", 800, "--cpu",
    )  # fmt: skip
    found = hypotheses_in(printed.splitlines(), Path("printed"))
    assert found == read_lines(made / "translations.txt")


def test_another_checkpoint_or_choice_is_refused(
    made: Path, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.pt"
    shutil.copy(trained, other)
    for checkpoint, options, place in (
        (other, SAID, "checkpoint.finetune_from_model"),
        (trained, [*SAID[:2], *SAID[4:]], "pruned"),
        (trained, [*SAID[:-1], "generation.beam=3"], "generation.beam"),
    ):
        with refusing(place):
            score(checkpoint, corpus, made, *options)
    with refusing("raw/test0.de"):
        score(trained, corpus, tmp_path / "new", "--set", "dataset.gen_subset=test0")
    assert not (tmp_path / "new").exists()


def test_a_plug_in_is_named(made: Path, corpus: Path, trained: Path, tmp_path: Path) -> None:
    """Also this project's own, which is loaded without it."""
    score(trained, corpus, tmp_path / "new", *SAID, *map(str, USER_DIR))
    assert read_lines(tmp_path / "new" / "translations.txt") == read_lines(
        made / "translations.txt"
    )


def test_a_reference_of_another_length_is_refused(
    trained: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is translated."""
    data = shutil.copytree(corpus, tmp_path / "data")
    lines = read_lines(data / "raw" / "test.de")
    (data / "raw" / "test.de").write_text("\n".join(lines[:-1]) + "\n")
    score(trained, data, run := tmp_path / "new", *SAID)
    assert re.search(rf"raw/test.de: has {len(lines) - 1} lines", capsys.readouterr().err)
    assert not (run / "translations.txt").exists()


def test_perplexities_of_a_language_model(
    ordinary_lm: Path, monolingual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    score(ordinary_lm, monolingual, run)
    report = capsys.readouterr().out
    record = read(Record, run / "score.json")
    assert record.task == "language_modeling"
    assert record.perplexity is not None
    assert record.perplexity.keys() == {"valid", "test"}
    assert record.blocks is not None
    assert record.blocks.keys() == {"tokens_per_sample", "sample_break_mode", "add_bos_token"}
    assert f"perplexity {record.perplexity['test']:.2f} (test)" in report
    assert record.bleu is None
    assert record.heads_by_type == {"decoder": [4]}
    assert record.multiply_adds
    assert record.key_bytes_per_target_token == 16 * 2
    # The same in blocks, by fairseq-validate: of all tokens, in bits.
    assert record.perplexity["valid"] == pytest.approx(2**record.valid_loss, rel=0.05)
    # The beginning of a block, which is given, is no word that was predicted.
    score(ordinary_lm, monolingual, run := tmp_path / "bos", "--set", "task.add_bos_token=true")
    record = read(Record, run / "score.json")
    expected = validation_loss(open_model(ordinary_lm, monolingual, add_bos_token=True))
    assert record.valid_loss == pytest.approx(expected, rel=1e-3)
    assert record.perplexity is not None
    assert record.perplexity["valid"] == pytest.approx(2**expected, rel=1e-3)


# ---- every command -------------------------------------------------------------------------------

TASK = [
    "--task=translation_multi_simple_epoch", "--lang-pairs=en-de,de-en", "--langs=en,de",
    "--encoder-langtok=tgt", "--decoder-langtok", "--sampling-method=temperature",
]  # fmt: skip
ONE = ["--source-lang=en", "--target-lang=de"]


@pytest.fixture(scope="module")
def multilingual(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stock fairseq's model, with every content in its checkpoint."""
    folder = tmp_path_factory.mktemp("multilingual")
    model = ["--arch=transformer", *SIZES]
    succeed("fairseq-train", corpus, *model, *ENDING, *TASK, "--save-dir", folder)
    path = folder / "checkpoint_last.pt"
    state = checkpoints.read(path)
    state["extra_state"]["contents"] = CONTENTS
    checkpoints.save(state, path)
    return path


@pytest.fixture(scope="module")
def untagged(multilingual: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, but it begins no translation with the symbol of a language by itself."""
    path, state = tmp_path_factory.mktemp("untagged") / "model.pt", checkpoints.read(multilingual)
    symbols = open_model(multilingual, corpus).task.target_dictionary
    scores = state["model"]["decoder.output_projection.weight"]
    for tag in ("__en__", "__de__"):
        scores[symbols.index(tag)] = scores[symbols.unk()]
    checkpoints.save(state, path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        "cost MODEL",
        "average MODEL --out OUT",
        "reparametrize MODEL DATA --key-dim 8 --out OUT.pt",
        "prune MODEL DATA --random 1 --keep 2 --out OUT.pt",
        "heads MODEL DATA --relevance-sentences 1 --cpu --out OUT",
        "export MODEL --format fairseq --out OUT",
        "export MODEL DATA --format fairseq --check 4 --out OUT",
        "score MODEL DATA --cpu --run OUT --set task.source_lang=en --set task.target_lang=de "
        "--set generation.max_len_b=10",
        "shrink MODEL DATA --parameters 0.9 --sentences 20 --cpu --out OUT.pt",
        "prices MODEL DATA --sentences 20 --cpu --out OUT",
    ],
    ids=lambda words: re.sub(r"^(\w+).*?( --format \w+|$).*", r"\1\2", words),
)
def test_every_command(words: str, multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    """As a user starts it; the variable has some start anew, where others are forks."""
    paths = {"MODEL": str(multilingual), "DATA": str(corpus), "OUT": str(tmp_path / "out")}
    for name, path in paths.items():
        words = words.replace(name, path)
    anew = {"PYTHONHASHSEED": "1"} if words.startswith(("cost", "score")) else {}
    succeed("fairseq-collab", *words.split(), **anew)


def test_a_direction_must_be_chosen(multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = refuse("fairseq-collab", "score", multilingual, corpus, "--cpu", "--run", out)
    assert f"{multilingual}: " in line
    assert "en-de, de-en" in line


@pytest.mark.parametrize(("model", "beam"), [("multilingual", 3), ("untagged", 1)])
def test_ctranslate2_translates_alike(
    model: str, beam: int, corpus: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In beams, engines score a symbol that they are given differently if it is improbable."""
    checkpoint, out = request.getfixturevalue(model), tmp_path / "out"
    data = (corpus, "--path", checkpoint, "--cpu", *TASK, *ONE)
    search = (f"--beam={beam}", "--max-len-a=0", "--max-len-b=20")
    output = succeed("fairseq-generate", *data, *search)
    found = {
        int(number): text.split()
        for number, text in re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.MULTILINE)
    }
    export = ("export", checkpoint, corpus, "--format=ct2", "--out", out)
    said = succeed("fairseq-collab", *export)
    (call,) = re.findall(r"translate_batch\(.*\)$", said, re.MULTILINE)
    engine = ctranslate2.Translator(str(out))

    def limited(*args: Any, **options: Any) -> Any:
        """As the call above; fairseq's limit counts the end of a translation, too."""
        as_above = {"beam_size": beam, "max_decoding_length": 21}
        return engine.translate_batch(*args, **options | as_above)

    lines = (corpus / "raw" / "test.en").read_text().splitlines()
    names = {"tokens": [line.split() for line in lines], "translate_batch": limited}
    results = eval(call, names)
    words = [result.hypotheses[0][1:20] for result in results]  # as many as fairseq allows
    assert words == [found[n] for n in sorted(found)]


def test_an_export_is_checked_in_every_direction(
    untagged: Path,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Greedily: engines end beam searches by different rules, which shows before training."""
    for module in (check, ct2):
        monkeypatch.setattr(module, "BEAM", 1)
    words = (str(untagged), str(corpus), "--format=ct2", "--check=8", "--out")
    assert export.main([*words, str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.count("4 of 4 translations equal") == 2
    assert "they may choose differently" in said  # which a beam of one does not
    assert re.findall("^from (..) to (..):", said, re.MULTILINE) == [("en", "de"), ("de", "en")]
    one, other = directions(open_model(untagged, corpus))
    assert language_tags(one) == ("__de__", "__de__")
    assert language_tags(other) == ("__en__", "__en__")
    assert language_tags(open_model(untagged, corpus)) == (None, None)
