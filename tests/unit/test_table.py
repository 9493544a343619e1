"""Many runs in one table: what is averaged, what is compared, and what is left out or refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from refusals import refusing, wrong_usage
from run_folders import MODEL_DIM, facts_of, start_run, write_run

from collab_common.errors import UserError
from fairseq_collab.commands.table import main
from fairseq_collab.results import against, figure
from fairseq_collab.results.table import main_table, markdown
from fairseq_collab.results.table_content import Table, as_csv, read_table
from fairseq_collab.results.tables import num

KEY_DIMS = (128, 64, 32, 16)


def grid(parent: Path) -> Path:
    """Both methods at four key dimensions, two seeds each; concatenated at 16 was not run."""
    for method, gain in (("concatenated", 0.0), ("collab", 0.5)):
        for position, key_dim in enumerate(KEY_DIMS):
            if (method, key_dim) != ("concatenated", 16):
                for seed in (1, 2):
                    write_run(parent, method, key_dim, seed, 40 - position + gain + seed / 10)
    return parent


def read(folder: Path, x: str = "key_dim") -> Table:
    return read_table([folder], x, against.NO_TEST)


def cells(table: Table) -> list[list[str]]:
    return split(main_table(table).split("\n"))[2:]


def split(lines: Iterable[str]) -> list[list[str]]:
    """The cells of Markdown's tables, line by line."""
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def csv_rows(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(table))))


def test_one_row_a_method_and_key_dimension(tmp_path: Path) -> None:
    table = read(grid(tmp_path))
    assert [(row.label, row.x, len(row.runs)) for row in table.rows] == [
        ("collab", 128, 2),
        ("concatenated", 128, 2),
        ("collab", 64, 2),
        ("concatenated", 64, 2),
        ("collab", 32, 2),
        ("concatenated", 32, 2),
        ("collab", 16, 2),
        ("concatenated", 16, 0),
    ]


def test_mean_and_standard_deviation_over_seeds(tmp_path: Path) -> None:
    for seed, bleu, speed in ((1, 38.0, 1000), (2, 39.0, 2000), (10, 40.0, 3000)):
        write_run(tmp_path, "collab", 64, seed, bleu, train_tokens_per_second=speed)
    write_run(tmp_path, "concatenated", 64, 1, 37.5)
    table = read(tmp_path)
    assert cells(table)[0][:5] == ["collab", "64", "3", "39.00 ± 1.00", "50.00 ± 0.00"]
    assert cells(table)[0][5:9] == ["1,064", "768", "10,064", "2,000"]
    assert cells(table)[1][:5] == ["concatenated", "64", "1", "37.50", "50.00"]
    first, second = csv_rows(table)
    assert first["seeds"] == "1 2 10"  # not in the order of names
    assert float(first["bleu_mean"]) == 39
    assert float(first["bleu_sd"]) == 1
    assert (second["bleu_mean"], second["bleu_sd"]) == ("37.5", "")
    assert (first["method"], first["key_dim"]) == ("collab", "64")
    assert first["bleu_signature"] == "tok:13a|version:2.6.0"


def test_the_figure_shows_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", "collab", 64, valid_nats=1.5)
    drawn: list[tuple[object, ...]] = []
    monkeypatch.setattr(figure, "draw", lambda _, *about: drawn.append(about) or {})

    def draw(field: str, *out: str) -> None:
        main([str(tmp_path / "runs"), "--figure", field, *out])

    out = f"--out={tmp_path / 'out'}"
    draw("valid_nats", out)
    name = "valid. nats/token"
    title = "key dimension: toy, test (4 sentences)"
    assert drawn == [("key dimension", title, "valid_nats", name)]
    write_run(tmp_path / "runs", "concatenated", 64, 1)
    for field in ("valid_nats", "hardware"):
        with pytest.raises(UserError, match=f"--figure: not every run has a number '{field}'"):
            draw(field, out)
    with wrong_usage(capsys, "argument --figure: goes with --out"):
        draw("chrf")


def test_cells_that_were_not_run(tmp_path: Path) -> None:
    table = read(grid(tmp_path))
    missing = cells(table)[-1]
    assert missing[:4] == ["concatenated", "16", "0", "not run"]
    assert set(missing[4:-1]) == {"-"}
    assert missing[-1] == "26.77"  # the paper did run it
    assert csv_rows(table)[-1]["status"] == "not run"


def test_unfinished_runs_are_named_and_never_averaged(tmp_path: Path) -> None:
    grid(tmp_path)
    before = [row.values("bleu") for row in read(tmp_path).rows]
    start_run(tmp_path, "concatenated_16_1", verdict="failed", reason="out of memory")
    start_run(tmp_path, "concatenated_16_2", verdict="diverged", reason="loss is nan")
    start_run(tmp_path, "collab_16_3")
    table = read(tmp_path)
    assert [row.values("bleu") for row in table.rows] == before
    text = markdown(table)
    assert "- collab_16_3: incomplete\n" in text
    assert "- concatenated_16_1: failed (out of memory)\n" in text
    assert "- concatenated_16_2: diverged (loss is nan)\n" in text
    assert cells(table)[-1][3] == "no finished run"


def test_only_unfinished_runs(tmp_path: Path) -> None:
    start_run(tmp_path, "a", verdict="failed", reason="out of memory")
    with pytest.raises(UserError, match=r"no finished run; a: failed \(out of memory\)"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("data", "more"),
        ("data_sha256", "ffff"),
        ("subset", "valid"),
        ("bleu_signature", "tok:13a|version:2.5.0"),
        ("chrf_signature", "nc:4|version:2.6.0"),
        ("multiply_adds_length", 50),
        ("sentences", 5),
    ],
)
def test_scores_that_do_not_compare_are_refused(tmp_path: Path, field: str, other: object) -> None:
    write_run(tmp_path, "collab", 64)
    write_run(tmp_path, "concatenated", 64, **{field: other})
    runs = f"collab_64_1 and {tmp_path / 'concatenated_64_1'}"
    with refusing(f"{runs} differ in {field}: ", f" and {other}; make a table of each"):
        read(tmp_path)


def test_models_that_are_no_seeds_of_each_other_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64, 1)
    write_run(tmp_path, "collab", 64, 2, parameters=7)
    with pytest.raises(UserError, match="differ in parameters: 1064 and 7; they are not seeds of"):
        read(tmp_path)


def test_seeds_with_the_heads_that_each_has_chosen_are_one_model(tmp_path: Path) -> None:
    """Gates leave every seed a shape of its own; what it costs is a mean, then."""
    own = {"encoder": [1, 2], "decoder": [4, 4], "cross": [4, 4]}
    write_run(tmp_path, "collab", 64, 1, heads_by_site=own, parameters=100)
    write_run(tmp_path, "collab", 64, 2, heads_by_site=own | {"cross": [4, 3]}, parameters=90)
    (row,) = read(tmp_path).rows
    assert (len(row.runs), row.fact("parameters")) == (2, 95)
    write_run(tmp_path, "collab", 64, 3, heads_by_site=own, arch="other")
    with pytest.raises(UserError, match="differ in arch: "):
        read(tmp_path)


@pytest.mark.parametrize("others", [4, 8])
def test_seeds_of_another_number_of_heads_are_refused(tmp_path: Path, others: int) -> None:
    """Where it is the same in all layers of a site, somebody has configured it."""
    for seed, count in ((1, 4), (2, 8)):
        heads = {"encoder": [count, count], "decoder": [others] * 2, "cross": [others] * 2}
        write_run(tmp_path, "collab", 64, seed, heads_by_site=heads, parameters=100 * count)
    with pytest.raises(UserError, match="differ in parameters: 400 and 800; they are not seeds of"):
        read(tmp_path)


def test_seeds_of_before_all_multiply_adds_were_counted_are_seeds_of_one_model(
    tmp_path: Path,
) -> None:
    """Of language models with adaptive softmax."""
    write_run(tmp_path, "collab", 64, 1, multiply_adds=None)
    write_run(tmp_path, "collab", 64, 2)
    assert [len(row.runs) for row in read(tmp_path).rows] == [2]
    write_run(tmp_path, "collab", 64, 3, multiply_adds=7)
    with pytest.raises(UserError, match="differ in multiply_adds"):
        read(tmp_path)


def test_the_same_seed_twice_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "collab", 64, 1)
    write_run(tmp_path / "b", "collab", 64, 1)
    with pytest.raises(UserError, match=r"same model with the same seed \(1\); leave one out"):
        read_table([tmp_path / "a", tmp_path / "b"])


def test_a_run_given_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path, "collab", 64, 1)
    assert len(read_table([tmp_path, run]).finished) == 1


def test_warnings_below_the_table(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64, train_updates=4000, beam=4, hardware="other",
              data_sha256=None)  # fmt: skip
    write_run(tmp_path, "concatenated", 64, averaged=["checkpoint16.pt"], data_sha256=None)
    text = markdown(read(tmp_path))
    assert (
        "- training budgets differ by more than 1%: 4,000 updates (collab_64_1) to "
        "4,240 (concatenated_64_1)\n"
    ) in text
    assert "- translated differently: beam 4, lenpen 1.0; beam 5, lenpen 1.0\n" in text
    assert "- different numbers of averaged checkpoints: 1, 2\n" in text
    assert "- training tokens/s come from different hardware" in text
    assert "- the data folder has no manifest" in text


def test_nothing_to_warn_of(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64, train_updates=4240)
    write_run(tmp_path, "concatenated", 64, train_updates=4210)
    assert "Warnings" not in markdown(read(tmp_path))


def test_a_product_of_choices_is_kept_apart(tmp_path: Path) -> None:
    for heads in (8, 16):
        for seed in (1, 2):
            choices = {
                "model": "collab",
                "model.key_dim": "64",
                "model.encoder_attention_heads": str(heads),
                "common.seed": str(seed),
            }
            folder = tmp_path / str(heads)
            write_run(folder, "collab", 64, seed, 30 + heads, heads=heads, overrides=choices)
    table = read_table([tmp_path / "8", tmp_path / "16"])
    assert [(row.label, row.values("bleu")) for row in table.rows] == [
        ("collab, encoder_attention_heads=8", [38, 38]),
        ("collab, encoder_attention_heads=16", [46, 46]),
    ]


def test_other_x(tmp_path: Path) -> None:
    for head_size in (4, 16):
        write_run(
            tmp_path, "concatenated", head_size * 8, bleu=head_size,
            overrides={"model.head_size": str(head_size), "common.seed": "1"},
        )  # fmt: skip
    write_run(tmp_path, "concatenated", 32, seed=2, overrides={})
    table = read(tmp_path, "head_size")
    assert [row.x for row in table.rows] == [16, 4]
    assert "paper" not in markdown(table)
    assert "- concatenated_32_2: has no head_size\n" in markdown(table)
    assert [row.x for row in read(tmp_path, "model.head_size").rows] == [16, 4]
    by_heads = read(tmp_path / "concatenated_32_2", "heads")
    assert split(main_table(by_heads).split("\n"))[0][:3] == ["method", "heads", "seeds"]
    with pytest.raises(UserError, match=r"--x: no run has 'depth'; give a field of score\.json"):
        read(tmp_path, "depth")
    with pytest.raises(UserError, match="--x: 'averaged' is no single value"):
        read(tmp_path, "averaged")


def test_columns_are_chosen_from_the_record(tmp_path: Path) -> None:
    for seed, loss in ((1, 4.0), (2, 5.0)):
        choices = {"model": "collab", "fit": "root", "common.seed": str(seed)}
        write_run(tmp_path, "collab", 64, seed, valid_loss=loss, overrides=choices)
    table = read_table([tmp_path], columns=("valid_loss", "parameters", "fit", "averaged"))
    head, _, row = split(main_table(table).split("\n"))
    assert head[3:] == ["valid. loss (criterion, bits)", "parameters", "fit", "averaged"]
    assert row[3:] == ["4.50 ± 0.71", "1,064", "root", "checkpoint15.pt, checkpoint16.pt"]
    assert csv_rows(table)[0]["valid_loss_mean"] == "4.5"
    assert "--columns valid_loss,parameters,fit,averaged`" in markdown(table)
    sums = read_table([tmp_path], columns=("cache_bytes_per_target_token", "parameters"))
    assert split(main_table(sums).split("\n"))[2][3] == f"{12 * (64 + MODEL_DIM):,}"
    with pytest.raises(UserError, match="--columns: no run has 'depth'; give a field"):
        markdown(read_table([tmp_path], columns=("depth",)))


@pytest.mark.parametrize(
    ("task", "facts", "score"),
    [
        ("language_modeling", {"perplexity": {"test": 80.0, "valid": 90.0}}, ["80.00", "90.00"]),
    ],
)
def test_each_task_has_its_columns(
    tmp_path: Path, task: str, facts: dict[str, object], score: list[str]
) -> None:
    others = facts_of("collab", 64, **{**facts, "task": task, "run": "one"})
    (start_run(tmp_path, "one") / "score.json").write_text(json.dumps(others))
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    table = read(tmp_path)
    assert cells(table)[0][3 : 3 + len(score)] == score
    assert cells(table)[0][3 + len(score)] == "1,064"
    page = markdown(table)
    assert page.startswith("# Perplexity")
    assert "multiply-adds (a block of 30 tokens)" in page


@pytest.mark.parametrize(("x", "heading"), [("key_dim", "key dimension"), ("none", "parameters")])
def test_any_order_gives_the_same_bytes(tmp_path: Path, x: str, heading: str) -> None:
    runs = sorted(grid(tmp_path / "runs").iterdir())
    outputs = []
    for name, order in (("a", runs), ("b", runs[::-1])):
        options = ["--x", x, "--against", "none", "--out", str(tmp_path / name)]
        assert main([*map(str, order), *options]) == 0
        outputs.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert sorted(outputs[0]) == ["figure.png", "figure.svg", "table.csv", "table.md"]
    assert outputs[0] == outputs[1]
    assert f"BLEU against {heading}: toy, test (4 sentences)" in outputs[0]["table.md"].decode()


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [(-0.004, ".2f", "0.00"), (-0.004, "+.2f", "+0.00"), (-0.006, ".2f", "-0.01"),
     (-0.004, ".0%", "0%"), (0, ",", "0"), (None, ".2f", "-")],
)  # fmt: skip
def test_numbers(value: float | None, spec: str, text: str) -> None:
    """What is shown as nothing has no sign of less."""
    assert num(value, spec) == text


def test_every_number_has_its_source(tmp_path: Path) -> None:
    text = markdown(read(grid(tmp_path)))
    for source in (
        "- BLEU: `tok:13a|version:2.6.0`",
        "- chrF: `nc:6|version:2.6.0`",
        "- data: toy, SHA-256 0123abcd",
        "- hardware: some processor",
        "- translated with: beam 5, lenpen 1.0, 2 checkpoints averaged",
        f"- command: `fairseq-collab table {tmp_path} --x key_dim --against none`",
        "- paper: Cordonnier, Loukas, Jaggi 2020, arXiv 2006.16362",
    ):
        assert source in text
    run = "collab_64_2 collab 64 2 39.70 4.000 4,240 16 2026-11-21 c0ffee"
    assert run.split() in split(text.splitlines())


def test_the_paper_stands_beside_the_same_ratio(tmp_path: Path) -> None:
    grid(tmp_path)
    write_run(tmp_path, "collab", 48)  # no ratio of the paper's
    write_run(tmp_path, "fork_collab", 64)
    table = read(tmp_path)
    assert "paper's BLEU (WMT14, d = 512, same d/K)" in main_table(table).split("\n")[0]
    found = {(row[0], row[1]): row[-1] for row in cells(table)}
    ours = [found["concatenated", str(key_dim)] for key_dim in KEY_DIMS]
    assert ours == ["27.40", "27.10", "26.89", "26.77"]
    assert [found["collab", str(k)] for k in KEY_DIMS] == ["27.58", "27.41", "27.40", "27.31"]
    assert found["fork_collab", "64"] == "27.41"
    assert found["collab", "48"] == "-"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "collab", 64)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/out: no such folder can be made: Not a directory"):
        main([str(tmp_path / "runs"), "--out", str(tmp_path / "file" / "out")])
