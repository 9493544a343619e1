"""Which runs ``recipes/glue.sh`` asks for."""

from __future__ import annotations

from pathlib import Path

from recipe_recorder import Recorded, record

from fairseq_collab.commands import glue


def test_rows_of_every_task(tmp_path: Path) -> None:
    """After the swap as many epochs as the model that is not swapped, which is the control."""
    (tmp_path / "bert").mkdir()
    tuned = "out/{}-concatenated-7/model"
    for task in ("cola", "rte"):
        (tmp_path / tuned.format(task)).mkdir(parents=True)
    asked = record(
        tmp_path, "glue.sh", MODEL=str(tmp_path / "bert"), TASKS="cola rte", DIMS="384 256",
        OPTIONS="--max-length 64",
    )  # fmt: skip
    *runs, table = asked
    assert table == ["glue-table", "/out", "--out", "/out/table"]
    found = []
    for name, *rest in runs:
        assert name == "glue"
        args = glue.build_parser().parse_args(rest)
        assert (args.data, args.max_length, args.seed) == (Path("/data"), 64, 7)
        start = "/bert" if "concatenated" in args.out.name else f"/{tuned.format(args.task)}"
        assert str(args.model) == start
        assert args.no_model == (start != "/bert")
        found.append((args.out.name, args.method, args.key_dim, args.epochs))
    assert found == [
        row
        for task, epochs in (("cola", 3), ("rte", 10))
        for row in (
            (f"{task}-concatenated-7", None, None, epochs),
            (f"{task}-twice-7", "twice", None, epochs),
            (f"{task}-swapped-384-7", "swapped", 384, 0),
            (f"{task}-collab-384-7", None, 384, epochs),
            (f"{task}-swapped-256-7", "swapped", 256, 0),
            (f"{task}-collab-256-7", None, 256, epochs),
        )
    ]


def test_without_the_first_row_there_is_nothing_to_swap(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    failed = Recorded(
        tmp_path, "glue.sh", MODEL=str(tmp_path / "bert"), TASKS="cola", FAILS="glue", STATUS="1"
    )
    assert failed.status == 1
    assert [name for name, *_ in failed.commands] == ["glue", "glue-table"]
