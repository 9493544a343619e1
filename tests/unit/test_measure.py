"""All rows of ``results/measure.py``, on toys; and when a row is measured again."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import shutil
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import toy_checkpoints
from commands import warm
from run_folders import write_run

from collab_common import provenance
from collab_common.errors import UserError
from collab_lab import open_model
from collab_lab.clock.turns import times_as_fast
from collab_lab.metrics.loss import mean_bits
from collab_lab.trained.sentences import samples
from results import data, live_slots, measure, records, rows, runs, tables, what_cuts_buy
from results.changes import CHANGES
from results.measures import MEASURES, RANDOM
from results.rows import Row, call
from results.tables import TABLES

COPY = toy_checkpoints.COPY
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
ORIGIN = {"command", "commit", "seed", "hardware", "date", "made_from"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose files tables read."""
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    return tmp_path


def content(file: Path) -> Any:
    return json.loads(file.read_text())


def by_names(found: list[dict[str, Any]], *names: str) -> dict[Any, dict[str, Any]]:
    """Rows by some of their names."""
    return {tuple(row.get(name) for name in names): row for row in found}


# ---- all rows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of all files, and what the program printed; commands that it times are forks."""
    folder, printed = tmp_path_factory.mktemp("toys"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "executable", str(warm() / "python"))
        assert measure.main(["--all", "--tiny", "--out", str(folder)]) == 0
    return folder, printed.getvalue()


@pytest.fixture
def files(toys: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All files, which tables read, by name."""
    monkeypatch.setattr(data, "FOLDER", toys[0])
    return {path.stem: content(path) for path in toys[0].iterdir()}


@pytest.mark.slow
def test_all_rows_are_measured(toys: tuple[Path, str], files: dict[str, Any]) -> None:
    """Those that no toy is large enough for are said and left out; nothing is measured twice."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("onnxruntime")
    folder, printed = toys
    left_out = [line for line in printed.splitlines() if ": left out: " in line]
    assert all("no smaller model reaches" in line for line in left_out)
    found = 0
    for table, every in rows.tables(tiny=True).items():
        for row in every:
            some = files[table].get(row.part, [])
            found += any(records.is_same(one, row.names) for one in some)
        assert all({*one} >= ORIGIN for part in files[table].values() for one in part)
    wanted = sum(map(len, rows.tables(tiny=True).values()))
    assert wanted - len(left_out) <= found <= wanted
    assert len(left_out) < wanted / 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "found", lambda *_: pytest.fail("a row is measured twice"))
        assert measure.main(["--all", "--tiny", "--out", str(folder)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("shrunk", "equal shares a layer"), ("shrunk", "masks by Fisher"),
        ("shrunk_together", "| cache "), ("refit_ladder", "pairs instead of prices"),
        ("refit_ladder", "their mean in the bias"), ("prices_agreement", "grouped query"),
        ("translations_changed", "| a third of the heads "), ("long_positions", "an eighth"),
        ("long_calibration", "another text"), ("long_rivals", "rotation, 2 bits"),
        ("long_translations", "16 bits"), ("long_steps", "8 bits"), ("live_slots", "8 bits"),
        ("live_documents", "live slots"), ("speed_rounded", "grouped query, 2 heads"),
        ("one_copy_losses", "one for all layers"), ("one_copy_steps", "one for all layers"),
        ("onnx_speed", "| ONNX int8 "), ("tools_time", "prices"),
    ],
)  # fmt: skip
def test_tables(table: str, text: str, files: dict[str, Any]) -> None:
    """Tables of toys; of onnx_speed, where the packages are installed."""
    if table == "onnx_speed":
        pytest.importorskip("onnxruntime")
    assert text in TABLES[table]()


@pytest.mark.slow
def test_cuts(files: dict[str, Any]) -> None:
    """Predicted and measured losses; rivals at the same shares."""
    shrunk = by_names(files["shrink"]["rows"], "name", "share")
    assert {"price", "rise", "lost", "lost_test", "d"} <= {*shrunk["heads and units", 0.66]}
    masks = shrunk["masks by Fisher", 0.66]
    assert masks["price"] is None
    assert masks["shares"]["parameters"] <= 0.66 < masks["shares"]["parameters"] + 0.1
    for share in rows.PARAMETERS:
        left = shrunk["equal shares a layer", share]["shares"]["parameters"]
        assert left <= share < left + 0.01
    assert files["shrink"]["models"][0]["parameters"] > 0
    svd = by_names(files["at_size"]["rows"], "name", "share")["latents by SVD", 0.25]
    assert sum(svd["sizes"].values()) == 32, "a quarter of the numbers of four attentions"
    assert {row["choice"] for row in files["at_size"]["choices"]} == {*rows.CHOICES}
    assert len(files["cache"]["pooled"]) == 3


@pytest.mark.slow
def test_prices(files: dict[str, Any]) -> None:
    found = files["prices"]["rows"]
    assert {row["what"] for row in found} == {"spread", "even", "heads", "ladder", "alone"}
    weightings = {row["weighting"] for row in found if row["what"] == "ladder"}
    assert weightings == {"weights", "inputs", "both", "read", "fisher"}
    alone = [row for row in found if (row["what"], row["kind"]) == ("alone", "latent")]
    assert len(alone) == 5 * 3, "attentions, and parts"
    heads = [row for row in found if (row["what"], row["kind"]) == ("alone", "heads removed")]
    assert [(row["type"], row["head"]) for row in heads][:2] == [("encoder", 0), ("encoder", 3)]
    assert files["prices"]["models"][0]["group"] == "toys"


@pytest.mark.slow
def test_changed(files: dict[str, Any]) -> None:
    """What is exact changes no translation; another model does."""
    found = by_names(files["changed"]["rows"], "model", "name")
    own, exact = (found["toy", name] for name in (data.ITSELF, "latents, exact"))
    assert (own["changed"], own["lost"]) == (0, 0)
    assert (exact["changed"], exact["bleu"]) == (0, own["bleu"])
    assert exact["lost"] == pytest.approx(0, abs=1e-4)
    one, two = (found[name, "another seed"] for name in ("toy", "other"))
    assert one["changed"] == two["changed"] > 0
    assert one["lost"] == pytest.approx(-two["lost"], abs=1e-5)
    if ("toy", "in CTranslate2's int8") in found:  # where CTranslate2 is installed
        assert found["toy", "in CTranslate2's int8"]["lost"] is None


@pytest.mark.slow
def test_long(files: dict[str, Any]) -> None:
    """By part, with an interval; a rival's numbers are rounded; steps have their bytes."""
    (model,) = files["long"]["models"]
    found = by_names(files["long"]["rows"], "name", "calibrated")
    rival = found["rotation, 2 bits", "documents"]
    assert rival["lost"] != found["rotation, 3 bits", "documents"]["lost"] != 0
    tokens = [sum(part) for part in zip(*model["tokens"], strict=True)]
    rises = [sum(part) for part in zip(*rival["rises"], strict=True)]
    per_part = [rise / number for rise, number in zip(rises, tokens, strict=True)]
    assert per_part == pytest.approx(rival["by_part"], abs=0.01)
    low, high = rival["interval"][-1]
    assert low <= rival["lost"] <= high
    assert rival["lost_sentences"] == pytest.approx(rival["lost"], abs=1e-4)
    assert files["long"]["translations"][0]["documents"] == 5
    steps = by_names(files["long_steps"]["rows"], "name", "batch")
    assert steps["float32", 2]["cache"] > steps["float32", 1]["cache"]
    assert steps["float32", 2]["cache"] > steps["8 bits", 2]["cache"]


@pytest.mark.slow
def test_one_copy(files: dict[str, Any]) -> None:
    """Exact where it is not rounded; bytes do not grow with layers."""
    own, shared = rows.LATENTS
    losses = by_names(files["one_copy"]["losses"], "name", "bits", "share")
    one = losses[shared, 0, None]
    assert (one["cache"], losses[own, 0, None]["cache"]) == (3 / 8, 1 / 2)
    assert abs(one["lost"]) < 1e-4
    assert losses[shared, 4, None]["price"] > 0
    assert losses[shared, None, 1 / 8]["cache"] <= 1 / 8
    steps = files["one_copy"]["steps"]
    assert {row["layers"] for row in steps} == {1, 2}
    of_one = [row["cache"][f"{shared}, 0"] for row in steps]
    assert of_one == [2 * row["d"] * (row["layers"] + 1) for row in steps]


@pytest.mark.slow
def test_seconds(files: dict[str, Any]) -> None:
    """What takes turns, with its bytes; no test looks at a time."""
    latent = files["rounded"]["records"][-1]
    assert latent["bytes"]["0"] == 4 * 20 * 256 * 4, "keys and values are one"
    assert latent["bytes"]["4"] < latent["bytes"]["8"] < latent["bytes"]["0"] / 3
    forced, (documents,) = files["live_slots"]["forced"][0], files["live_slots"]["documents"]
    for row in (forced, documents):
        assert row["equal"] == row["sentences"] > 0
    assert forced["bytes"]["live slots"] < forced["bytes"]["all slots"]
    assert [{*turn} for turn in forced["turns"]] == 2 * [{*forced["bytes"]}]
    assert documents["live slots"]["state"] <= documents["all slots"]["state"]
    commands = [(row["model"], row["name"]) for row in files["tools_time"]["rows"]]
    assert commands == [
        ("toy", "shrink, heads"), ("toy", "export --check"), ("d = 16", "prices")
    ]  # fmt: skip
    names = [(row.names.get("model"), row.names["name"]) for row in rows.tables()["tools_time"]]
    assert len(names) == 6 + 3 * 5
    assert ("d = 128", "export --check") not in names
    assert all(row["seconds"] > 0 and row["parameters"] > 0 for row in files["tools_time"]["rows"])


@pytest.mark.slow
def test_what_cuts_buy(files: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    pytest.importorskip("onnxruntime")
    cuts, caches, heads = files["what_cuts_buy"]["records"]
    assert cuts["predicted"]["ct2-int8: whole model"] == 1
    assert {name.partition(":")[0] for name in cuts["predicted"]} == {*what_cuts_buy.ENGINES}
    assert "fairseq: 4 heads, F 512" in cuts["predicted"]
    assert len(cuts["turns"]) == len(caches["turns"]) == 2
    assert {"ct2-int8: F 512", "fairseq: plan, 50%", "ct2-float32: shortlist of words"} <= {
        *cuts["turns"][0]
    }
    assert "fairseq: cache in 4 bits" in caches["turns"][0]
    assert "ct2-int8: cache in 4 bits" not in caches["turns"][0], "which CTranslate2 does not round"
    assert "ct2-int8: latents 1/4" not in caches["turns"][0], "which CTranslate2 does not have"
    models = product(("whole model", "4 of 8 heads"), what_cuts_buy.ALL_ENGINES)
    assert [*heads["turns"][0]] == [f"{engine}: {name}" for name, engine in models]
    shares = {name: n / cuts["parameters"]["whole model"] for name, n in cuts["parameters"].items()}
    assert 0.4 < shares["4 heads, F 512"] < shares["4 of 8 heads"] < 1
    found = [[str(cell) for cell in row] for row in tables.cuts_bought((60, 5))]
    assert [row[0] for row in found][-1] == "whole model in CTranslate2's int8"
    assert len({*map(len, found)}) == 1
    titles = next(tables.cuts_bought((40, 5)))
    assert titles[2:] == ["int8, 1", "float32, 1", "ONNX int8, 1", "ours, 1"]


@pytest.mark.slow
def test_engines(files: dict[str, Any]) -> None:
    """Each engine has a row of each case; latents only in the longest, with their bytes."""
    pytest.importorskip("onnxruntime")
    found = by_names(files["onnx_speed"]["rows"], "heads", "engine", "sentences", "tokens")
    engines = {e for heads, e, *case in found if (heads, *case) == ("standard", 1, 5)}
    assert {"stock fairseq", "fairseq", "onnx-int8", "onnx-float32"} <= engines
    assert {tuple(case) for heads, _, *case in found if heads != "standard"} == {(1, 9)}
    whole, quarter = (
        sum(found[heads, "onnx-int8", 1, 9]["cache"].values())
        for heads in ("standard", "latents 1/4")
    )
    assert quarter == whole / 4
    assert all(len(row["seconds"]) == 2 for row in found.values())
    peaks = {row["engine"]: row.get("peak") for row in found.values()}
    assert peaks["fairseq"] is None
    assert all(10 < peaks[engine] < 1000 for engine in engines if "fairseq" not in engine)


# ---- rows as data --------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "tiny"), [*product(rows.tables(), (False, True))])
def test_rows_call_functions_that_exist(table: str, tiny: bool) -> None:
    """With arguments that these have; no two rows have one name."""
    every = rows.tables(tiny)[table]
    for row in every:
        of = RANDOM if row.change is None else MEASURES
        calls = [(of[one.name], one.arguments, row.change is not None) for one in row.measures]
        if row.change is not None:
            calls.append((CHANGES[row.change.name], row.change.arguments, True))
        for function, arguments, is_trained in calls:
            inspect.signature(function).bind(*["text"] * is_trained, **arguments)
    names = [(row.part, repr(sorted(row.names.items(), key=repr))) for row in every]
    assert len(names) == len({*names})


def test_the_size_of_the_whole_model() -> None:
    """That of Vaswani et al. 2017, table 3, base: the preset leaves it to fairseq."""
    assert what_cuts_buy.sizes_of("wmt_en_de") == (512, 8, 2048, 6)


def test_ratios_are_of_one_turn() -> None:
    """A machine of half the speed in the second turn changes no ratio."""
    turns = [{"a": 2.0, "b": 1.0}, {"a": 4.0, "b": 2.0}]
    assert times_as_fast(turns, "b", "a") == (pytest.approx(2), None, None)
    ratio = times_as_fast([*turns, {"a": 2.0, "b": 1.1}], "b", "a")
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.mean < 2 < ratio.high


# ---- the policy ----------------------------------------------------------------------------------


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The rows that are measured, of a table "shrink" of one row, in a folder without git."""
    measured = list[Row]()

    def found(row: Row, _: Any) -> list[dict[str, Any]]:
        measured.append(row)
        return [{"lost": 0.0}]

    one = Row("rows", {"name": "x"}, call("itself"), (call("losses"),))
    monkeypatch.setattr(measure, "tables", lambda tiny=False: {"shrink": [one]})
    monkeypatch.setattr(measure, "found", found)
    monkeypatch.setattr(provenance, "_git", lambda *_: None)
    return measured


def words(out: Path, checkpoint: Path, *more: str) -> list[str]:
    """A command that measures a toy."""
    model = ["--data", str(COPY), "--model", f"toy={checkpoint}"]
    return ["shrink", *model, "--out", str(out), "--sentences=20", *more]


def test_rows_of_other_code_inputs_or_data_are_measured_again(
    tmp_path: Path, measures: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without git, too, where no commit equals no commit."""
    checkpoint = toy_checkpoints.write(tmp_path / "toy.pt", **SHALLOW)
    for more in ((), (), ("--sentences=30",), ("--sentences=30",)):
        measure.main(words(tmp_path, checkpoint, *more))
    assert len(measures) == 2, "other sentences"
    other = Row("rows", {"name": "x"}, call("itself"), (call("d"),))
    monkeypatch.setattr(measure, "tables", lambda tiny=False: {"shrink": [other]})
    for _ in range(2):
        measure.main(words(tmp_path, checkpoint))
    assert len(measures) == 3, "another row of the same name"
    with monkeypatch.context() as patch:
        patch.setattr(records, "_code", lambda: "changed")
        measure.main(words(tmp_path, checkpoint))
    assert len(measures) == 4, "other code"
    measure.main(words(tmp_path, toy_checkpoints.write(tmp_path / "other.pt")))
    assert len(measures) == 5, "another checkpoint"
    (row,) = content(tmp_path / "shrink.json")["rows"]
    assert row["model"] == "toy"
    assert {*row} >= ORIGIN
    assert row["commit"].startswith("code-")


@pytest.mark.parametrize(
    ("name", "of"), [("losses", "itself"), ("steps", "itself"), ("bought", None)]
)
def test_seconds_of_another_machine_are_measured_again(
    name: str, of: str | None, tmp_path: Path, measures: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are not."""
    checkpoint = toy_checkpoints.write(tmp_path / "toy.pt", **SHALLOW)
    row = Row("rows", {"name": "x"}, of and call(of), (call(name),))
    monkeypatch.setattr(measure, "tables", lambda tiny=False: {"shrink": [row]})
    for number in (1, 1):
        measure.main(words(tmp_path, checkpoint))
        assert len(measures) == number
    monkeypatch.setattr(provenance, "processor_name", lambda: "another")
    measure.main(words(tmp_path, checkpoint))
    assert len(measures) == (1 if name == "losses" else 2)
    assert len(content(tmp_path / "shrink.json")["rows"]) == 1


def test_some_rows(tmp_path: Path, measures: list[Row]) -> None:
    """--only and --parts leave the others out."""
    checkpoint = toy_checkpoints.write(tmp_path / "toy.pt", **SHALLOW)
    for more in ("--only=z", "--parts=models"):
        with pytest.raises(UserError, match="no row"):
            measure.main(words(tmp_path, checkpoint, more))
    with pytest.raises(UserError, match="no row"):
        measure.main(["shrink", "--out", str(tmp_path)])  # without a model
    assert not measures
    measure.main(words(tmp_path, checkpoint, "--only=toy x"))
    assert len(measures) == 1


def test_a_model_that_cannot_be_opened(tmp_path: Path, measures: list[Row]) -> None:
    """It ends the program, where a change that is impossible does not."""
    (tmp_path / "toy.pt").write_text("nothing")
    with pytest.raises(UserError):
        measure.main(words(tmp_path, tmp_path / "toy.pt"))
    assert not measures


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["nothing"], ["--all", "cache"], ["cache", "--data=x"], ["cache", "--model=a=b"],
        ["cache", "--data=x", "--model=a"], ["long", "--text=more=x"],
        ["long", "--text=sentences=x", "--block=4"],
    ],
)  # fmt: skip
def test_what_cannot_be_measured(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        measure.parsed(arguments)


def test_the_code_and_the_inputs_of_a_row(tmp_path: Path) -> None:
    """Files by their content, folders by their text, several folders, options."""
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("1")
    other.write_text("1")
    assert records.digest(file, 3) == records.digest(other, 3) != records.digest(file, 4)
    other.write_text("2")
    assert records.digest(file, 3) != records.digest(other, 3)
    text = tmp_path / "data"
    shutil.copytree(COPY, text)
    assert records.digest(text) == records.digest(COPY) != records.digest(Path(f"{text}:{text}"))
    shutil.copy(text / "test.en-de.de.idx", text / "train.en-de.de.idx")
    assert records.digest(text) != records.digest(COPY)
    words = shutil.copytree(COPY, tmp_path / "words") / "test.en-de.de.bin"
    words.write_bytes(words.read_bytes()[::-1])  # no length changes
    assert records.digest(words.parent) != records.digest(COPY)


def test_two_programs_write_one_file(tmp_path: Path) -> None:
    first, second = records.File(tmp_path / "a.json"), records.File(tmp_path / "a.json")
    first.put("rows", ({"name": "x"}, {"name": "x", "lost": 1}))
    second.put("rows", ({"name": "y"}, {"name": "y", "lost": 2}))
    first.add("rows", {"name": "z", "lost": 3})
    assert [row["name"] for row in content(tmp_path / "a.json")["rows"]] == ["x", "y", "z"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.json"}


def test_shares_may_be_rounded() -> None:
    assert records.is_same({"share": 0.333333, "what": "x"}, {"share": 1 / 3, "what": "x"})
    assert not records.is_same({"share": 0.5}, {"share": 1 / 3})


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_masks_and_the_updates_after_them(folder: Path) -> None:
    """A changed model is kept with its configuration; then its runs."""
    checkpoint = toy_checkpoints.write(folder / "toy.pt", **SHALLOW)
    file, kept, out = folder / "shrink.json", folder / "kept", folder / "out"
    more = ["--only=masks by Fisher 0.66", "--keep", str(kept)]
    assert measure.main(words(folder, checkpoint, *more)) == 0
    (row,) = content(file)["rows"]
    small = kept / "model" / "masks-by-Fisher-0.66.pt"
    assert small.with_suffix(".yaml").exists()
    made, given = open_model(small, COPY), open_model(checkpoint, COPY)
    valid = samples(made, "valid")
    rise = mean_bits(made.model, valid) - mean_bits(given.model, valid)
    assert rise == pytest.approx(row["lost"], abs=1e-5)
    for method, weights in (("standard", checkpoint), (small.stem, small)):
        run = write_run(out, method, 64, valid_nats=2.0, model_dim=16, train_updates=250)
        (run / "config.yaml").write_text(f"task: {{data: {COPY}}}\n")
        shutil.copy(weights, run / "average.pt")
    assert runs.main([str(file), f"toy={out}"]) == 0
    assert TABLES["shrunk_tuned"]().count("masks by Fisher") == 1


@pytest.mark.slow
def test_long_blocks_of_a_language_model(folder: Path) -> None:
    """Changes of its one cache; short blocks are of the same text."""
    blocks = folder / "blocks"
    blocks.mkdir()
    shutil.copy(COPY / "dict.en.txt", blocks / "dict.txt")
    for split, kind in product(("train", "valid", "test"), ("bin", "idx")):
        shutil.copy(COPY / f"{split}.en-de.en.{kind}", blocks / f"{split}.{kind}")
    checkpoint = toy_checkpoints.write(folder / "lm.pt", "transformer_lm")
    arguments = ["long", "--out", str(folder), "--model", f"wikitext-1={checkpoint}", "--tiny"]
    arguments += [f"--data={blocks}", "--block=4", "--sentences=32", "--parts", "models", "rows"]
    assert measure.main(arguments) == 0
    found = content(folder / "long.json")
    (model,) = found["models"]
    assert model["documents_bits"] != model["sentences_bits"]
    every = by_names(found["rows"], "name", "calibrated")
    assert {name for name, _ in every} >= {*rows.LONG_CACHES} - {"4 bits"}
    assert {"documents", "sentences"} == {text for _, text in every}
    assert every["rotation, 2 bits", "documents"]["lost"] != 0
    sites = {site.partition(" ")[0] for row in every.values() for site in row["sizes"]}
    assert sites == {"decoder"}
    assert "grouped query" in TABLES["long_blocks"]()


def test_stock_fairseq_keeps_all_slots(tmp_path: Path) -> None:
    checkpoint = toy_checkpoints.write(tmp_path / "toy.pt", **SHALLOW)
    with pytest.raises(UserError, match="stock"):
        live_slots.opened(checkpoint, COPY)
