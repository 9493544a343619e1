"""Folders of an earlier version: runs, a sweep that was interrupted, results of recipes, exports.

``tests/stored/README.md`` says how they were made.  Commands are called as users call them, no
module inside is.
"""

from __future__ import annotations

import gzip
import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from commands import REPOSITORY, USER_DIR, succeed
from compat.test_stored_checkpoints import EXPECTED, translations
from safetensors.torch import load_file
from transformers import MarianMTModel

from collab_common import main as fairseq_collab_main
from collab_common.errors import UserError
from fairseq_collab.commands import contrast
from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

STORED = REPOSITORY / "tests" / "stored"
OLDER = STORED / "older"
EXPORTED = STORED / "exported"
#: Where the stored sweep ran: what stands for that in it is put right wherever it is unpacked.
ORIGINAL = "/tmp/stored"


def command(*arguments: object) -> None:
    """``fairseq-collab ARGUMENTS``, in this process."""
    assert fairseq_collab_main.main([*map(str, arguments)]) == 0


def tool(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: object) -> None:
    """``python -m NAME ARGUMENTS``, in this process."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The stored sweep, as it would be had it run here."""
    out = tmp_path / "runs"
    shutil.copytree(STORED / "sweep", out)
    shutil.copytree(STORED / "copy", tmp_path / "copy")
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    # It says what was the configurations' default then, which has changed (CHANGELOG.md).
    experiment = (out / "tiny.yaml").read_text()
    then = experiment.replace("\nmodel:\n", "\nmodel:\n  attention_scale: key\n")
    (tmp_path / "configs" / "tiny.yaml").write_text(then)
    (out / "tiny.yaml").unlink()
    for config in out.glob("*/config.yaml"):
        text = config.read_text().replace(f"{ORIGINAL}/fairseq_collab", str(USER_DIR[1]))
        config.write_text(text.replace(ORIGINAL, str(tmp_path)))
    for packed in out.glob("*/checkpoints/*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    interrupted = out / "key_dim-16" / "checkpoints"
    for name in ("checkpoint2.pt", "checkpoint_best.pt"):  # fairseq writes all three alike
        shutil.copy(interrupted / "checkpoint_last.pt", interrupted / name)
    return out


def sweep_again(out: Path) -> list[object]:
    """The command that was interrupted, less the run that cannot succeed."""
    configs = out.parent / "configs"
    return [
        *("sweep", configs / "tiny.yaml", "--config-dir", configs, "--out", out),
        *(f"task.data={out.parent / 'copy'}", f"common.user_dir={USER_DIR[1]}"),
    ]


def test_table_compare_and_report(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished, report = sweep / "key_dim-8", sweep / "report.html"
    command("table", sweep, "--out", sweep / "table")
    assert "| transformer_collab | 8 | 1 |" in " ".join(capsys.readouterr().out.split())
    command("table", sweep, "--gen-subset", "test1")
    assert "| transformer_collab | 8 | 1 |" in " ".join(capsys.readouterr().out.split())
    command("compare", finished, finished, "--json", "--samples", 20)
    assert json.loads(capsys.readouterr().out)
    command("report", sweep, "--out", report)
    assert "transformer_collab" in report.read_text()
    assert "key_dim is 0; it must be at least 1" in capsys.readouterr().out


@pytest.fixture
def pairs(sweep: Path, tmp_path: Path) -> Path:
    """Contrastive pairs of the copy task, whose words are no subwords."""
    pairs = tmp_path / "pairs" / "swapped.copy"
    form = {"subwords": None, "moses": False, "lowercased": False, "hyphens": None}
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps({"form": form}))
    lines = ["w2 w3 w2", "w6 w7 w8", "w5 w5 w1"]
    swapped = ["w2 w2 w3", "w7 w6 w8", "w1 w5 w5"]
    pairs.mkdir(parents=True)
    for name, content in (("src.en", lines), ("tgt.correct.de", lines)):
        (pairs / name).write_text("".join(f"{line}\n" for line in content))
    (pairs / "tgt.incorrect.de").write_text("".join(f"{line}\n" for line in swapped))
    return pairs


def test_contrastive_pairs_of_pruned_models(pairs: Path, tmp_path: Path) -> None:
    checkpoint = STORED / "checkpoints" / "transformer_headsize_n.pt"
    half = ("--steps=0.5", "--most=0.5", "--sites=encoder", "--importance-subset=test1", "--cpu")
    out = tmp_path / "curve"
    options = ("--out", out, "--pairs", pairs.parent, *half)
    command("prune-curve", checkpoint, tmp_path / "copy", *options)
    content = json.loads((out / "curve.json").read_text())
    assert all(set(point["accuracies"]) == {"swapped-copy"} for point in content["points"])
    assert content["settings"]["pairs"].startswith("pairs:")
    assert "| swapped-copy |" in (out / "table.md").read_text()


def test_contrastive_pairs(sweep: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kept in the run's scores, beside what is there, and shown by the table."""
    run = sweep / "key_dim-8"
    before = json.loads((run / "score.json").read_text())
    command("contrast", run, "--pairs", pairs.parent, "--pairs-number", 2, "--json", "--cpu")
    printed = json.loads(capsys.readouterr().out)
    after = json.loads((run / "score.json").read_text())
    assert after["contrast"] == printed["contrast"]
    assert after["contrast"]["swapped-copy"]["accuracy"]["pairs"] == 2
    assert after["contrast_signature"] == printed["contrast_signature"]
    assert all(after[name] == value for name, value in before.items() if name != "version")
    right, pairs_ = map(
        sum,
        zip(
            *json.loads((run / "contrast.json").read_text())["counts"]["swapped-copy"], strict=True
        ),
    )
    assert (100 * right / 2, pairs_) == (after["contrast"]["swapped-copy"]["accuracy"]["mean"], 2)
    command("compare", "--seeds", run, run, "--samples", 20)
    assert "swapped-copy" in capsys.readouterr().out
    command("table", sweep)
    text = capsys.readouterr().out
    assert "swapped-copy, accuracy" in text
    assert f"`{printed['contrast_signature']}`" in text
    (pairs / "tgt.correct.de").rename(pairs / "tgt.correct.fr")
    with pytest.raises(UserError, match=r"no tgt.correct.de \(there: tgt.correct.fr\)"):
        contrast.main([str(run), "--pairs", str(pairs.parent), "--cpu"])


def test_what_has_scores_is_not_translated_again(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep / "key_dim-8" / "average.pt").unlink()  # nothing could be
    one, other = (sweep / name for name in ("key_dim-8", "again"))
    shutil.copytree(one, other)
    for subset, sentences in (("test", 20), ("test1", 10)):
        command("score", one, other, "--gen-subset", subset, "--json")
        for line in capsys.readouterr().out.strip().splitlines():
            assert json.loads(line)["sentences"] == sentences


def test_a_sweep_knows_what_is_done(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(*sweep_again(sweep), "--dry-run")
    found = [line.split()[0] for line in capsys.readouterr().out.strip().splitlines()]
    assert found == ["failed", "finished", "incomplete", "incomplete"]


@pytest.mark.slow
def test_a_sweep_goes_on(sweep: Path) -> None:
    """One run is left alone, one is only scored, one is trained for one more epoch."""
    done, trained, interrupted = (sweep / f"key_dim-{size}" for size in (8, 12, 16))
    before = {path: path.read_bytes() for path in done.iterdir()}
    weights = {path: path.read_bytes() for path in (trained / "checkpoints").iterdir()}
    output = succeed("fairseq-collab", *sweep_again(sweep), "model.key_dim=8,12,16")
    assert "3 runs: 1 finished, 2 to do" in output
    assert "3 of 3 runs are finished" in output
    assert before == {path: path.read_bytes() for path in before}
    assert weights == {path: path.read_bytes() for path in weights}
    for run in (trained, interrupted):
        score = json.loads((run / "score.json").read_text())
        assert score["averaged"] == ["checkpoint2.pt", "checkpoint3.pt"]
        assert (score["epochs"], score["train_updates"]) == (3, 21)
    assert "Loaded checkpoint" in (interrupted / "train.log").read_text()


def test_results_of_language_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(OLDER / "language_models", tmp_path / "lm")
    checkpoint = STORED / "checkpoints" / "transformer_lm_grouped_heads.pt"
    shutil.copy(checkpoint, tmp_path / "lm" / "grouped-2" / "model.pt")
    (tmp_path / "manifest.json").write_text('{"origin": {}}')
    monkeypatch.chdir(tmp_path)  # the log names the model by its place
    options = ("--data", tmp_path, "--out", tmp_path, "--cpu")
    tool(monkeypatch, "fairseq_collab.evaluation.perplexity", "lm/grouped-2", *options)
    expected = (OLDER / "language_models" / "perplexity.md").read_text()
    assert capsys.readouterr().out == expected


def test_results_of_reparametrisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = OLDER / "reparametrize"
    tool(monkeypatch, "fairseq_collab.reparametrize.results", runs, "--out", tmp_path)
    found = json.loads((tmp_path / "table.json").read_text())
    assert found == json.loads((runs / "table.json").read_text())


def test_votes_and_prune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint, out = STORED / "checkpoints" / "transformer_grouped_heads.pt", tmp_path / "p.pt"
    votes = ("--votes", OLDER / "votes.json", "--data", STORED / "copy")
    command("prune", checkpoint, *votes, "--output", out)
    printed = capsys.readouterr().out.replace(str(out), "OUT")
    more = f"{(OLDER / 'prune.txt').read_text().rstrip()} --"  # options that were not said before
    assert printed.startswith(more)


def keys(content: Any) -> Any:
    """The keys of nested objects."""
    if isinstance(content, dict):
        return {name: keys(one) for name, one in content.items()}
    return None


def test_heads(tmp_path: Path) -> None:
    checkpoint = STORED / "checkpoints" / "transformer_grouped_heads.pt"
    command("heads", checkpoint, STORED / "copy", "--examples", 1, "--out", tmp_path)
    before, now = (json.loads((f / "heads.json").read_text()) for f in (OLDER, tmp_path))
    assert keys(now).pop("relevance").keys() == {"paper"}  # which rule; not said before
    said = {name: one for name, one in keys(now).items() if name not in ("relevance", "perplexity")}
    assert keys(before) == said
    for measure in ("confidence", "positional", "entropy"):
        for site, layers in before["measures"][measure].items():
            for one, other in zip(layers or [], now["measures"][measure][site] or [], strict=True):
                assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("form", ["fairseq.pt", "gated.safetensors", "ct2", "hf"])
def test_an_export_again_is_the_same(form: str, tmp_path: Path) -> None:
    out = tmp_path / form
    vocabulary = ["--data", STORED / "copy", "--source-lang=en", "--target-lang=de"]
    command(
        "export", STORED / "checkpoints" / "transformer_gated_heads.pt", "--out", out,
        "--format", form.partition(".")[2].replace("pt", "fairseq") or form,
        *(vocabulary if form in ("ct2", "hf") else []),
    )  # fmt: skip
    before, now = contents(EXPORTED / form), contents(out)
    assert before.keys() == now.keys()
    if form == "hf":  # its limit counts the first token and the end, which fairseq's does not
        before["generation_config.json "]["max_length"] += 2
    for name, content in before.items():
        assert same(content, now[name]), name


def contents(path: Path) -> dict[str, Any]:
    """Tensors of a file, or of each file of a folder; what else is in it as it is."""
    if path.is_dir():
        return {f"{one.name} {k}": v for one in path.iterdir() for k, v in contents(one).items()}
    if path.suffix == ".pt":
        return checkpoints.read(path)["model"]
    if path.suffix == ".safetensors":
        return load_file(path)
    return {"": json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()}


def same(one: Any, other: Any) -> bool:
    """Whether two tensors, or two contents, are equal."""
    return one.equal(other) if isinstance(one, torch.Tensor) else one == other


def test_stored_exports_translate_as_the_original() -> None:
    sentences = EXPECTED["sentences"]
    expected = EXPECTED["translations"]["transformer_gated_heads"]
    for one, (text, score) in zip(
        translations(EXPORTED / "fairseq.pt", sentences), expected, strict=True
    ):
        assert one == [text, pytest.approx(score, abs=1e-5)]
    engine = ctranslate2.Translator(str(EXPORTED / "ct2"), intra_threads=1)
    found = engine.translate_batch([line.split() for line in sentences], beam_size=5)
    assert [" ".join(one.hypotheses[0]) for one in found] == [text for text, _ in expected]
    model = MarianMTModel.from_pretrained(EXPORTED / "hf").eval()
    indices = json.loads((EXPORTED / "hf" / "vocab.json").read_text())
    words = {index: word for word, index in indices.items()}
    for line, (text, _) in zip(sentences, expected, strict=True):
        tokens = torch.tensor([[indices[word] for word in [*line.split(), "</s>"]]])
        (best,) = model.generate(input_ids=tokens).tolist()
        assert " ".join(words[i] for i in best if words[i] not in ("</s>", "<pad>")) == text
