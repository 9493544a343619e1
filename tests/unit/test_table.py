"""Runs in one table and in figures: what is averaged, tested, left out or rejected."""

from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from refusals import refusing
from run_folders import facts_of, some_record, start_run, write_run

from collab_common.errors import UserError
from collab_lab.cli.table import main
from collab_lab.results import figure
from collab_lab.results.table import (
    NO_TEST,
    NO_X,
    Row,
    Table,
    differences,
    read_table,
)
from collab_lab.results.table_text import cell, latex, main_cells, markdown, shown_columns, title
from collab_lab.runs.record import doubts as doubts_of
from collab_lab.runs.scheduler import summary


def read(folder: Path, x: str = "key_dim") -> Table:
    return read_table([folder], x, NO_TEST)


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    """Rows are tested, each by its own spread; one has no seed in common with the baseline."""
    for seed, bleu in ((1, 30.0), (2, 31.0), (3, 32.0)):
        write_run(tmp_path, "concatenated", 64, seed, bleu)
        write_run(tmp_path, "collab", 64, seed, bleu + seed)
        write_run(tmp_path, "latent", 64, seed, bleu + (0.5 if seed == 1 else -0.5))
    write_run(tmp_path, "late", 64, 7, 33.0)
    table = read_table([tmp_path])
    found = dict(zip([row.label for row in table.rows], differences(table), strict=True))
    assert found["collab"].gains == pytest.approx({1: 1, 2: 2, 3: 3})
    gain = found["collab"].gain
    assert gain.mean == pytest.approx(2)
    half = 4.302653 / 3**0.5
    assert (gain.low, gain.high) == pytest.approx((2 - half, 2 + half))
    assert found["collab"].p_holm == pytest.approx(2 * gain.p)
    assert found["late"].gain is None
    assert "no common seed" in markdown(table)


def test_the_text_that_was_scored_is_named(tmp_path: Path) -> None:
    """Tokens of the user's own, as sacreBLEU's signature says, or text."""
    for tokenizer, is_tokens in (("none", True), ("13a", False)):
        write_run(tmp_path / tokenizer, "collab", 64, bleu_signature=f"tok:{tokenizer}|version:2")
        text = markdown(read(tmp_path / tokenizer))
        assert ("your tokens" in text, "as it is in `raw/`" in text) == (is_tokens, not is_tokens)


def test_scores_to_doubt(tmp_path: Path) -> None:
    """Translations that were cut, and a reference that looks like tokens."""
    for name, doubts in (("ordinary", (10, 250)), ("doubtful", (11, 251))):
        cut, apart = doubts
        few = {"sentences": 1000, "at_length_limit": cut, "marks_apart": apart}
        few |= {"unlearnt": 1} if name == "doubtful" else {}
        write_run(tmp_path / name, "collab", 64, **few)
        text, score = markdown(read(tmp_path / name)), summary(some_record(**few))
        for said in ("end at the limit of their length", "apart from its word", "not learnt"):
            assert (said in text, said in score) == (name == "doubtful",) * 2
    assert not doubts_of({"unlearnt": math.nan})  # of a table in which another run has a number


def test_lines_of_several_sentences_are_called_documents(tmp_path: Path) -> None:
    for number, unit in ((None, "sentences"), (0, "sentences"), (30, "documents")):
        write_run(tmp_path / str(number), "collab", 64, sentences=10, breaks_wanted=number)
        assert title(read(tmp_path / str(number))).endswith(f"(10 {unit})")


def test_the_cache_and_its_share(tmp_path: Path) -> None:
    """Keys and values together; the share is the record's."""
    cached = {"key_bytes_per_source_token": 64, "value_bytes_per_source_token": 128}
    write_run(
        tmp_path, "grouped", 64, value_bytes_per_target_token=256, cache_share=0.375, **cached
    )
    table = read(tmp_path)
    found = dict(zip(shown_columns(table), main_cells(table)[1][0][3:], strict=True))
    assert found["cache_bytes_per_target_token"] == f"{12 * 64 + 256:,}"
    assert found["cache_bytes_per_source_token"] == "192"
    assert found["cache_share"] == "37.5%"
    assert not [name for name in found if name.startswith("key")]


@pytest.mark.slow
def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All have the cache, and the interval of the difference; what is left out is said."""
    for seed in (1, 2, 3):
        write_run(tmp_path, "concatenated", 128, seed, 30.0)
        write_run(tmp_path, "collab", 128, seed, 30.0 + seed)
    start_run(tmp_path, "late")
    printed = {}
    for form in ("md", "csv", "latex"):
        assert main([str(tmp_path), "--format", form, "--out", str(tmp_path / form)]) == 0
        printed[form] = capsys.readouterr()
        assert "late: incomplete" in printed[form].out + printed[form].err
    assert {path.name for path in tmp_path.glob("*/table.*")} == {
        "table.md", "table.csv", "table.tex",
    }  # fmt: skip
    rows = pd.read_csv(io.StringIO(printed["csv"].out)).set_index("method")
    row, half = rows.loc["collab"], 4.302653 / 3**0.5
    assert (row["bleu"], row["bleu_sd"], row["seeds"], row["key_dim"]) == (32, 1, 3, 128)
    assert row["cache_bytes_per_target_token"] == 2 * 12 * 128
    assert row["cache_share"] == 0.75
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([2 - half, 2 + half])
    assert rows["difference_low"].isna()["concatenated"]
    tex = printed["latex"].out
    assert all(text in tex for text in (r"75\%", r"+2.00 $\pm$ 2.48", "32.00"))
    assert {path.name for path in tmp_path.glob("md/figure.*")} == {"figure.svg", "figure.pdf"}
    assert (tmp_path / "md" / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_latex_fits_in_a_column(tmp_path: Path) -> None:
    """Six columns by default, numbers to the right, minus signs for numbers alone."""
    for seed in (1, 2, 3):
        write_run(tmp_path, "concatenated", 128, seed, 30.0, valid_nats=2.0)
        write_run(tmp_path, "grouped-query", 128, seed, 30.0 - seed, valid_nats=2.0 + 0.01 * seed)
    wide = {"score": "valid_nats", "x": "key_dim"}
    for options in ({}, {"score": "valid_nats"}, wide, {"x": NO_X}, {"against": NO_TEST}):
        text = latex(read_table([tmp_path], **options))
        assert r"\begin{tabular}{lrrrrr}" in text, options
        lines = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert {line.count("&") for line in lines} == {5}
        assert max(map(len, lines)) < 100
    assert "grouped-query" in text
    chosen = latex(read_table([tmp_path], columns=("chrf", "heads", "multiply_adds")))
    assert r"\begin{tabular}{lrrrrrrr}" in chosen  # key width, score, difference, p
    assert r"$-$2.00 $\pm$ 2.48" in chosen
    assert not re.search(r"(?<![\w$-])-\d", chosen)


def test_times_are_a_column_where_they_are_asked_for(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    columns = ("train_seconds", "translate_seconds", "train_threads", "translate_jobs")
    table = read_table([tmp_path], columns=columns)
    assert main_cells(table)[1][0][3:] == ["-"] * 4
    timed = Row(
        64, "collab", pd.DataFrame({"train_seconds": [3601.4, 3599.0], "train_threads": [1, 1]})
    )
    assert [cell(table, timed, name) for name in columns] == ["3,600 ± 2", "", "1", ""]
    with refusing("--columns"):
        main([str(tmp_path), "--columns", "train_second"])


def test_methods_with_commas(tmp_path: Path) -> None:
    """A method is its whole name: neither a baseline nor a choice is read out of it."""
    for seed, bleu in ((1, 40.0), (2, 41.5)):
        write_run(tmp_path, "concatenated", 64, seed, bleu)
        write_run(tmp_path, "concatenated, fine-tuned", 64, seed, bleu + seed)
    table = read_table([tmp_path])
    assert table.baseline == "concatenated"
    by_label = dict(zip((row.label for row in table.rows), differences(table), strict=True))
    tuned = by_label["concatenated, fine-tuned"]
    assert tuned
    assert tuned.gain
    assert tuned.gain.mean == 1.5
    assert by_label["concatenated"] is None


def test_a_score_of_the_user(tmp_path: Path) -> None:
    """Facts that a user gives are text, and a score if all are numbers: each seed has its own."""
    for method, values in (("concatenated", ("1.5", "1.75")), ("collab", ("2.25", "3.5"))):
        for seed, value in enumerate(values, 1):
            facts = {"mine": value, "common.seed": str(seed)}
            write_run(tmp_path, method, 64, seed, overrides=facts)
    table = read_table([tmp_path], score="mine")
    assert {row.label: row.values("mine") for row in table.rows} == {
        "collab": [2.25, 3.5], "concatenated": [1.5, 1.75],
    }  # fmt: skip
    assert [one.gain.mean for one in differences(table) if one and one.gain] == [1.25]


def test_unknown_columns_of_latex(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    with pytest.raises(UserError, match="valid_los"):
        latex(read_table([tmp_path], columns=("valid_los",)))


def test_seconds_of_two_loads(tmp_path: Path) -> None:
    """A table of seconds says that some were measured next to another run."""
    for seed, jobs in ((1, 1), (2, 1), (3, 2)):
        times = {"train_seconds": 30.0, "train_threads": 1, "train_jobs": jobs}
        write_run(tmp_path / str(seed), "collab", 64, seed, **times)
    write_run(tmp_path / "4", "collab", 64, 4)  # given, not trained here: no seconds
    alone, both = ([tmp_path / str(seed) for seed in seeds] for seeds in ((1, 2, 4), (1, 2, 3)))
    shown = ("train_seconds",)
    assert not read_table(alone, columns=shown).warnings()
    assert not read_table(both, columns=("chrf",)).warnings()
    for table in (read_table(both, columns=shown), read_table(both, score="train_seconds")):
        (warning,) = table.warnings()
        assert "1, 2, some processor" in warning


def test_kinds_that_differ_have_no_impossible_rows(tmp_path: Path) -> None:
    """A kind without a key width, or with one of several: a row per method and setting."""
    for parent in ("a", "b"):
        for width in (64, 32, 16):
            write_run(tmp_path / parent, "collab", width)
    write_run(tmp_path / "a", "vanilla", 64)
    for width in (32, 16):
        latent = write_run(tmp_path / "b", "latent", width) / "score.json"
        latent.write_text(latent.read_text().replace(f'"key_dim": {width}', '"key_dim": null'))
    for parent, number in (("a", 4), ("b", 5)):
        table = read_table([tmp_path / parent])
        assert table.x == NO_X
        assert len(table.rows) == number == len({row.label for row in table.rows})
    by_width = read_table([tmp_path / "a"], "key_dim")
    assert [(row.x, row.label) for row in by_width.rows] == [
        (64, "collab"), (64, "vanilla"), (32, "collab"), (16, "collab"),
    ]  # fmt: skip
    for width in (32, 16):
        write_run(tmp_path / "a", "vanilla", width)
    assert read_table([tmp_path / "a"]).x == "key_dim"


def test_any_number_is_tested(tmp_path: Path) -> None:
    for seed, loss in ((1, 4.0), (2, 4.1)):
        write_run(tmp_path, "concatenated", 64, seed, valid_loss=loss)
        write_run(tmp_path, "collab", 64, seed, valid_loss=loss - 0.1 * seed)
    table = read_table([tmp_path], score="valid_loss")
    assert differences(table)[0].gain.mean == pytest.approx(-0.15)
    for score in ("depth", "hardware"):
        with refusing("--score"):
            read_table([tmp_path], score=score)


def test_losses_are_in_bits_too(tmp_path: Path) -> None:
    """Of the record's negative log-likelihood, in nats, without label smoothing."""
    for method, nats in (("concatenated", 2.0), ("collab", 1.9)):
        write_run(tmp_path, method, 64, valid_nats=nats)
    table = read_table([tmp_path], columns=("valid_bits", "valid_loss"), score="valid_bits")
    assert differences(table)[0].gain.mean == pytest.approx(-0.1 / math.log(2))
    cells = {row[0]: row[3] for row in main_cells(table)[1]}
    assert cells == {"concatenated": "2.8854", "collab": "2.7411"}
    titles = main_cells(table)[0]
    assert len({*titles}) == len(titles)
    assert "valid_bits" not in shown_columns(read(tmp_path)), "where it is asked for"


@pytest.mark.parametrize("smoothed", [True, False])
def test_only_a_smoothed_loss_is_called_smoothed(smoothed: bool, tmp_path: Path) -> None:
    """Two losses of one run have two names in every format; equal ones have one."""
    loss = 2 / math.log(2) + smoothed
    write_run(tmp_path, "collab", 64, valid_nats=2.0, valid_loss=round(loss, 5))
    table = read_table([tmp_path], columns=("valid_loss", "valid_bits"))
    for text in (markdown(table), latex(table)):
        assert ("smoothed " in text) == smoothed
        assert "criterion" not in text
    smoothed_title = title(read_table([tmp_path], score="valid_loss"))
    assert ("smoothed " in smoothed_title) == smoothed


def test_the_baseline_is_chosen(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    assert read_table([tmp_path]).baseline is None
    write_run(tmp_path, "fork_concatenated", 64)
    assert read_table([tmp_path]).baseline == "fork_concatenated"
    assert read_table([tmp_path], against="collab").baseline == "collab"
    assert read_table([tmp_path], against=NO_TEST).baseline is None
    with refusing("--against", "ours", "collab"):
        read_table([tmp_path], against="ours")


def test_language_models_are_tested_by_perplexity(tmp_path: Path) -> None:
    for method, perplexity in (("concatenated", 100.0), ("collab", 90.0)):
        lm = {"task": "language_modeling", "perplexity": {"test": perplexity, "valid": 1.0}}
        folder = start_run(tmp_path, method)
        content = facts_of(method, 64, **lm) | {"bleu": None, "beam": None}
        (folder / "score.json").write_text(json.dumps(content))
    table = read_table([tmp_path], NO_X)
    assert table.score == "perplexity.test"
    assert differences(table)[0].gain.mean == -10
    assert markdown(table).startswith("# perplexity, test against parameters")


def test_unfinished_runs_are_named_and_never_averaged(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, "collab", 16, seed, 30 + seed)
    start_run(tmp_path, "concatenated_16_1", verdict="failed", reason="out of memory")
    start_run(tmp_path, "collab_16_3")
    table = read(tmp_path)
    assert [row.values("bleu") for row in table.rows] == [[31, 32]]
    text = markdown(table)
    assert "- collab_16_3: incomplete\n" in text
    assert "- concatenated_16_1: failed (out of memory)\n" in text
    alone = start_run(tmp_path / "alone", "a", verdict="failed", reason="out of memory").parent
    with pytest.raises(UserError, match=r"a: .*out of memory"):
        read(alone)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("data_sha256", "ffff"),
        ("data_sha256", None),
        ("subset", "valid"),
        ("bleu_signature", "tok:13a|version:2.5.0"),
        ("multiply_adds_length", 50),
        ("sentences", 5),
    ],
)
def test_scores_that_do_not_compare_are_rejected(tmp_path: Path, field: str, other: object) -> None:
    write_run(tmp_path, "collab", 64)
    write_run(tmp_path, "concatenated", 64, **{field: other})
    runs = f"collab_64_1 and {tmp_path / 'concatenated_64_1'}"
    with refusing(runs, field, str(other)):
        read(tmp_path)


def test_runs_that_are_not_seeds_of_one_model_are_rejected(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "collab", 64, 1)
    write_run(tmp_path / "a", "collab", 64, 2, parameters=7)
    with pytest.raises(UserError, match=r"parameters.*1064.*7"):
        read(tmp_path / "a")
    write_run(tmp_path / "b", "collab", 64, 1)
    write_run(tmp_path / "c", "collab", 64, 1)
    with pytest.raises(UserError, match="seed"):
        read_table([tmp_path / "b", tmp_path / "c"])


def trained_with(run: Path, **sections: dict[str, object]) -> None:
    """Write a run's configuration, with what differs between seeds of one model."""
    own = {"common": {"seed": run.name, "save_dir": run.name}, "task": {"data": f"data/{run.name}"}}
    parts = {**own, **sections}
    parts["model"] = {**sections.get("model", {}), "save_dir": run.name, "seed": run.name}
    (run / "config.yaml").write_text(json.dumps(parts))


def test_seeds_of_two_sweeps(tmp_path: Path) -> None:
    """Each with its own rate, which no sweep varied; a model also has options of other sections."""
    rates = ({"lr": [0.002]}, {"lr": [0.0005]})
    for seed, rate in ((1, rates[0]), (2, rates[0]), (3, rates[1])):
        run = write_run(tmp_path / str(seed), "collab", 64, seed)
        options = {"_name": "adam", **rate}
        trained_with(run, optimization=rate, optimizer=options, model={"dropout": 0.1, **rate})
    first, second, third = (tmp_path / str(seed) for seed in (1, 2, 3))
    assert not read_table([first, second]).warnings()
    (warning,) = read_table([first, second, third]).warnings()
    assert all(text in warning for text in ("collab", "lr", "0.002", "0.0005"))


def test_seeds_of_other_training_text(tmp_path: Path) -> None:
    """The first folder, which has the test set, may have another path on another machine."""
    for seed, data in ((1, "here/d1:here/d2"), (2, "there/d1:there/d2"), (3, "here/d1")):
        run = write_run(tmp_path / str(seed), "collab", 64, seed)
        trained_with(run, task={"data": data})
    first, second, third = (tmp_path / str(seed) for seed in (1, 2, 3))
    assert not read_table([first, second]).warnings()
    (warning,) = read_table([first, second, third]).warnings()
    assert "d2" in warning


def test_seeds_of_other_batches(tmp_path: Path) -> None:
    for seed, tokens in ((1, 2048), (2, 2048), (3, 8192)):
        run = write_run(tmp_path / str(seed), "collab", 64, seed)
        trained_with(run, dataset={"max_tokens": tokens, "num_workers": seed})
    first, second, third = (tmp_path / str(seed) for seed in (1, 2, 3))
    assert not read_table([first, second]).warnings()
    (warning,) = read_table([first, second, third]).warnings()
    assert "dataset.max_tokens (2048, 8192)" in warning


def test_models_of_other_options_are_no_seeds_of_one(tmp_path: Path) -> None:
    """Unless each training chose its heads; a version may have options that another lacks."""
    for heads, number in ((8, 1), (None, 0)):
        folder = tmp_path / str(heads)
        for seed, model in ((1, {"dropout": 0.1}), (2, {"dropout": 0.3, "newer": 1})):
            run = write_run(folder, "collab", 64, seed, heads=heads)
            trained_with(run, model=model)
        warnings = read_table([folder]).warnings()
        assert len(warnings) == number
        assert all("dropout" in warning and "newer" not in warning for warning in warnings)


def test_seeds_may_choose_their_own_heads(tmp_path: Path) -> None:
    """Gates leave every seed a shape of its own: attentions differ, so that heads is None."""
    for seed, parameters in ((1, 100), (2, 90)):
        write_run(tmp_path, "gated", 64, seed, heads=None, parameters=parameters)
    table = read(tmp_path)
    assert [len(row.runs) for row in table.rows] == [2]
    assert (
        dict(zip(shown_columns(table), main_cells(table)[1][0][3:], strict=True))["parameters"]
        == "95"
    )
    assert any("90 to 100" in warning for warning in table.warnings())
    write_run(tmp_path, "gated", 64, 3, heads=None, arch="other")
    with pytest.raises(UserError, match="arch"):
        read(tmp_path)


def test_warnings(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "collab", 64, train_updates=4240)
    write_run(tmp_path / "a", "concatenated", 64, train_updates=4210)
    assert "Warnings" not in markdown(read(tmp_path / "a"))
    others = {"train_updates": 4000, "beam": 4, "averaged": ["one.pt"]}
    write_run(tmp_path / "b", "collab", 64, **others, data_sha256=None)
    write_run(tmp_path / "b", "concatenated", 64, data_sha256=None)
    text = markdown(read(tmp_path / "b"))
    for warning in (
        "4,000",
        "beam=4, lenpen=1.0; beam=5, lenpen=1.0",
        "averaged",
        "manifest",
    ):
        assert re.search(f"^- .*{warning}", text, re.M)


def test_checkpoints_whose_training_is_unknown(tmp_path: Path) -> None:
    """They are no runs of 0 updates, next to which any other is longer."""
    given = {"train_updates": None, "epochs": None}
    write_run(tmp_path / "a", "collab", 64, **given)
    write_run(tmp_path / "a", "concatenated", 64, **given)
    assert "Warnings" not in markdown(read(tmp_path / "a"))
    assert not any("updates" in warning for warning in read(tmp_path / "a").warnings())
    write_run(tmp_path / "a", "latent", 64, train_updates=4000)
    text = markdown(read(tmp_path / "a"))
    assert "budgets differ" not in text
    assert re.search("^- .*unknown: .*collab", text, re.M)


@pytest.mark.parametrize(
    "generation",
    [{"sampling": True}, {"sampling": True, "sampling_topk": 10}, {"max_len_b": 20}, None],
)
def test_decoding_is_all_that_is_no_default(tmp_path: Path, generation: object) -> None:
    """Other decoding is a warning between rows, and no seed of a row."""
    write_run(tmp_path, "collab", 64, generation=generation)
    write_run(tmp_path, "concatenated", 64)
    [warning] = read(tmp_path).warnings()
    assert "decoding" in warning
    assert all(f"{name}={value}" in warning for name, value in (generation or {}).items())
    write_run(tmp_path, "concatenated", 64, 2, generation=generation)
    with refusing("decoding"):
        read(tmp_path)


def test_directions_are_kept_apart(tmp_path: Path) -> None:
    """Of one data folder: one set, another text."""
    write_run(tmp_path, "collab", 64, reference="raw/test.de")
    write_run(tmp_path, "concatenated", 64, reference="raw/test.en")
    with refusing("raw/test.de", "raw/test.en"):
        read(tmp_path)


def test_blocks_of_language_models(tmp_path: Path) -> None:
    """Perplexities in other contexts do not compare."""
    lm = {"task": "language_modeling", "perplexity": {"test": 9.0, "valid": 9.0}, "beam": None}
    write_run(tmp_path, "collab", 64, blocks={"tokens_per_sample": 64}, **lm)
    write_run(tmp_path, "concatenated", 64, blocks={"tokens_per_sample": 512}, **lm)
    (warning,) = read(tmp_path).warnings()
    assert all(f"tokens_per_sample={number}" in warning for number in (64, 512))
    write_run(tmp_path, "collab", 64, 2, blocks={"tokens_per_sample": 512}, **lm)
    with refusing("decoding"):
        read(tmp_path)


def test_settings_are_kept_apart(tmp_path: Path) -> None:
    for heads in (16, 8):
        choices = {"model": "collab", "model.heads": str(heads), "common.seed": "1"}
        write_run(tmp_path / str(heads), "collab", 64, 1, 30 + heads, overrides=choices)
    rows = read_table([tmp_path / "8", tmp_path / "16"], NO_X).rows
    assert [(row.label, row.values("bleu")) for row in rows] == [
        ("collab, heads=8", [38]), ("collab, heads=16", [46]),
    ]  # fmt: skip


def test_x_is_a_field_or_a_choice(tmp_path: Path) -> None:
    for size in (4, 16):
        choices = {"model.head_size": str(size), "common.seed": "1"}
        write_run(tmp_path, "concatenated", size * 8, bleu=size, overrides=choices)
    write_run(tmp_path, "concatenated", 32, seed=2, overrides={})
    table = read(tmp_path, "head_size")
    assert [row.x for row in table.rows] == [16, 4]
    assert "- concatenated_32_2: has no head_size\n" in markdown(table)
    with pytest.raises(UserError, match=r"--x.*depth"):
        read(tmp_path, "depth")
    with pytest.raises(UserError, match=r"--x.*averaged"):
        read(tmp_path, "averaged")


# ---- figures -------------------------------------------------------------------------------------


def test_a_p_is_never_zero_and_a_name_stays_in_its_cell(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        write_run(tmp_path, "concatenated", 128, seed, 30.0 + seed / 1000)
        write_run(tmp_path, "a|b", 128, seed, 50.0 + seed / 900)
    table = read_table([tmp_path])
    text = markdown(table)
    assert "<0.001" in text
    assert "a\\|b" in text
    assert r"\ensuremath{<}0.001" in latex(table)


def test_an_axis_with_zero_is_one_of_numbers() -> None:
    drawn = figure.draw({"": {"shared keys": {0: [1.0], 4: [2.0], 8: [3.0]}}}, "x", "y", "title")
    [axes] = drawn.axes
    assert axes.get_xscale() == "linear"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "4", "8"]
    assert axes.get_xticks().tolist() == [0, 4, 8]


def test_a_method_looks_the_same_in_every_figure() -> None:
    own, unknown = figure.styles(["shared keys, own queries", "mine"])
    assert [own] == [*figure.styles(["shared key, own queries, d = 128"])]
    latent, small = figure.styles(["latent", "latent, d = 256"])
    assert latent[:2] == small[:2]
    assert (latent[2], small[2]) == ("-", "--")
    assert len({own[:2], small[:2], unknown[:2]}) == 3


def test_the_legend_has_the_names_of_all_panels() -> None:
    panels = {"a": {"mine": {1: [1.0]}, "latent": {1: [2.0]}}, "b": {"yours": {1: [3.0]}}}
    drawn = figure.draw(panels, "x", "y", "title")
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == ["mine", "latent", "yours"]
    colours = {line.get_label(): line.get_color() for axes in drawn.axes for line in axes.lines}
    assert len({colours[name] for name in ("mine", "latent", "yours")}) == 3


@pytest.mark.slow
def test_a_figure_is_reproducible_and_needs_no_font(tmp_path: Path) -> None:
    write_run(tmp_path, "collab", 64)
    files = [
        [figure.saved(figure.of_table(read_table([tmp_path])), form) for form in ("svg", "pdf")]
        for _ in "ab"
    ]
    assert files[0] == files[1]
    assert b"<text" not in files[0][0]
