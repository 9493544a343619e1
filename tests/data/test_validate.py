"""The validator: each fault, found where it is, and handled as the option says."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import wrong_usage
from text_tools import command, error_line, run

from collab_common.errors import UserError
from data_prep import validate as validate_module
from data_prep.divergence import first_divergence, unequal
from data_prep.faults import Action, Kind, Limits, Policy
from data_prep.streams import LINE_BYTES
from data_prep.validate import main, validate

Pair = Callable[[bytes, bytes], tuple[Path, Path]]

GOOD = b"one\ntwo\nthree\n"
# fault in the target: option, its content, line and byte of the fault, words of the message
FAULTS = {
    "cr": (b"eins\nzw\rei\ndrei\n", 2, 7, "carriage return"),
    "crlf": (b"eins\r\nzwei\r\ndrei\r\n", 1, 4, "carriage return"),
    "nul": (b"eins\nzwei\ndr\0ei\n", 3, 12, "NUL"),
    "u+2028": ("eins\nzw\u2028ei\ndrei\n".encode(), 2, 7, "U+2028"),
    "u+2029": ("eins\nzw\u2029ei\ndrei\n".encode(), 2, 7, "U+2029"),
    "u+0085": ("eins\nzw\x85ei\ndrei\n".encode(), 2, 7, "U+0085"),
    "vt": (b"eins\nzw\x0bei\ndrei\n", 2, 7, "U+000B"),
    "ff": (b"eins\nzw\x0cei\ndrei\n", 2, 7, "U+000C"),
    "utf8": (b"eins\nzwei\nd\xe4ei\n", 3, 11, "invalid UTF-8"),
    "cut utf8": (b"eins\nzwei\ndrei\xc3\n", 3, 14, "0xC3"),
    "bom": (b"\xef\xbb\xbfeins\nzwei\ndrei\n", 1, 0, "byte order mark"),
    "empty": (b"eins\n\ndrei\n", 2, 5, "empty line"),
    "blank": ("eins\n \u00a0\ndrei\n".encode(), 2, 5, "empty line"),
    "long": (b"eins\nzwei\n" + b"d " * 1001 + b"\n", 3, 10, "1001 words, limit 1000"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_refuses_by_default(name: str, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    target, line, byte, words = FAULTS[name]
    paths = pair(GOOD, target)
    assert main([str(path) for path in paths]) == 1
    error = capsys.readouterr().err
    assert f"{paths[1]}:{line}: byte {byte}" in error
    assert words in error
    assert error.startswith("data_prep.validate: error: refused: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("side", [0, 1])
def test_looks_at_both_sides(side: int, pair: Pair) -> None:
    texts = [GOOD, b"eins\nzwei\ndrei\n"]
    texts[side] = texts[side].replace(b"\n", b"\r\n", 1)
    paths = pair(*texts)
    report = validate(*paths)
    assert [example.file for example in report.examples[Kind.CR]] == [str(paths[side])]


def test_command(pair: Pair) -> None:
    """Through a process: exit status, summary, one error line."""
    source, target = pair(GOOD, b"eins\nzw\rei\ndrei\n")
    done = run("validate", source, target)
    assert error_line(done, "validate").endswith(
        rf"{target}:2: byte 7; mend the file (CR LF line ends: sed -i 's/\r$//' FILE), "
        "or give --on-cr drop"
    )
    assert done.stdout.splitlines()[-1] == "3 pairs read, 0 dropped, 3 kept"
    assert run("validate", source, target, "--on-cr", "count").returncode == 0
    error_line(run("validate", source, target, "--on-cr", "mend"), "validate", status=2)
    assert "no such file" in error_line(run("validate", source, "absent.de"), "validate")
    done = run("validate", source, source, "--json", "/absent/report.json")
    assert error_line(done, "validate").endswith(": No such file or directory")


def test_drop_takes_the_pair(pair: Pair, tmp_path: Path) -> None:
    source, target = pair(GOOD, b"eins\n\ndrei")
    out = tmp_path / "o.en", tmp_path / "o.de"
    json_file = tmp_path / "report.json"
    options = ["--on-empty", "drop", "--out", *map(str, out), "--json", str(json_file)]
    assert main([str(source), str(target), *options]) == 0
    assert [path.read_bytes() for path in out] == [b"one\nthree\n", b"eins\ndrei\n"]
    report = json.loads(json_file.read_text())
    assert (report["read"], report["kept"]) == (3, 2)
    assert report["dropped"] == {"empty": 1}
    assert report["found"] == {"empty": 1, "no-newline": 1}
    assert report["examples"]["empty"] == [
        {"file": str(target), "line": 2, "byte": 5, "detail": ""}
    ]


def test_refused_text_is_not_written(pair: Pair, tmp_path: Path) -> None:
    paths = pair(GOOD, b"eins\n\ndr\rei\n")
    out = tmp_path / "out"
    out.mkdir()
    options = ["--on-empty", "drop", "--out", str(out / "en"), str(out / "de")]
    assert main([*map(str, paths), *options]) == 1
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on-empty", "drop"], "needs --out"),
        (["--out", "{source}", "x.de"], "nor the input"),
        (["--out", "x", "x"], "neither each other"),
        (["--max-words", "0"], "must be a whole number above 0, not '0'"),
        (["--on-bom", "drop"], "invalid choice"),
    ],
)
def test_usage(
    options: list[str], words: str, pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = pair(GOOD, GOOD)
    with wrong_usage(capsys, words):
        main([*map(str, paths), *[o.format(source=paths[0]) for o in options]])


def test_copies(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    paths = pair(b"Berlin\nyes\n\n", b"Berlin\nja\n\n")
    assert main([*map(str, paths), "--on-empty", "count"]) == 0
    assert "target equal to the source: 1 found" in capsys.readouterr().out
    assert main([*map(str, paths), "--on-empty", "count", "--on-copy", "refuse"]) == 1


def test_long_in_characters(pair: Pair) -> None:
    report = validate(*pair("äöü\nab\n".encode(), b"abc\nabcd\n"), Policy(limits=Limits(None, 3)))
    assert [str(e).partition(": ")[2] for e in report.examples[Kind.LONG]] == [
        "byte 4 (4 characters, limit 3)"
    ]


def test_missing_newline_at_end(pair: Pair) -> None:
    paths = pair(GOOD, GOOD.upper()[:-1])
    assert not validate(*paths).refused
    report = validate(*paths, Policy({Kind.NO_NEWLINE: Action.REFUSE}))
    assert report.refused == [Kind.NO_NEWLINE]
    assert report.examples[Kind.NO_NEWLINE][0].byte == len(GOOD) - 1


@pytest.mark.parametrize("longer", [0, 1])
def test_unequal_line_counts(longer: int, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [b"one\ntwo\n", b"eins\nzwei\n"]
    texts[longer] += b"3\n"
    paths = pair(*texts)
    assert main([*map(str, paths)]) == 1
    error = capsys.readouterr().err
    assert f"{paths[longer]}:3: byte {len(texts[longer]) - 2} (" in error
    for path, lines in zip(paths, (3, 2) if longer == 0 else (2, 3), strict=True):
        assert f"{path} has {lines}" in error


def test_unequal_counts_cannot_be_waved_through(pair: Pair) -> None:
    with pytest.raises(Exception, match="can only be refused"):
        Policy({Kind.LINE_COUNT: Action.COUNT})


@pytest.mark.parametrize("at", [3, 150, 298])
@pytest.mark.parametrize("cut", ["source", "target"])
def test_hint_where_texts_part(at: int, cut: str, tmp_path: Path) -> None:
    texts = {}
    for side, word in (("source", "word"), ("target", "wort")):
        lines = [f"{word} " * (1 + (i * 7) % 11) + f"{i * 37 % 100} ." for i in range(300)]
        if side == cut:
            del lines[at - 1]
        texts[side] = tmp_path / side
        texts[side].write_text("".join(line + "\n" for line in lines))
    extra = -1 if cut == "source" else 1
    guess = first_divergence(texts["source"], texts["target"], extra)
    assert guess is not None
    assert abs(guess - at) <= 2


def test_reads_gzip_and_names_a_cut_one(tmp_path: Path) -> None:
    whole = gzip.compress(b"word\n" * 10_000)
    source, target = tmp_path / "a.en.gz", tmp_path / "a.de.gz"
    source.write_bytes(whole)
    target.write_bytes(whole)
    assert validate(source, target).read == 10_000
    target.write_bytes(whole[:-20])
    assert "cut short" in error_line(run("validate", source, target), "validate")


@pytest.mark.parametrize("zipped", [False, True])
def test_pipes_are_read_from_their_first_byte(zipped: bool, tmp_path: Path) -> None:
    """As `validate <(head -40 en) <(head -40 de)` gives them: nothing is lost."""
    content = b"".join(b"line %d\n" % n for n in range(3000))
    text = tmp_path / "text"
    text.write_bytes(gzip.compress(content) if zipped else content)
    out = tmp_path / "o.en", tmp_path / "o.de"
    words = " ".join(
        [*command("validate"), f"<(cat {text})", f"<(cat {text})", "--out", *map(str, out)]
    )
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "3,000 pairs read, 0 dropped, 3,000 kept" in done.stdout
    assert [path.read_bytes() for path in out] == [content, content]
    shorter = f"<(head -c 100 {text})" if not zipped else "<(echo 1 | gzip)"
    words = " ".join([*command("validate"), f"<(cat {text})", shorter])
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=60)
    assert "unequal line counts" in error_line(done, "validate")


def test_a_pipe_that_nobody_writes_to(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("collab_common.files.PIPE_PATIENCE", 0.2)
    source, _ = pair(GOOD, GOOD)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"pipe: nobody writes to this pipe"):
        validate(source, pipe)
    assert unequal(source, pipe, [4, 3]).endswith("pipe has 3"), "not read a second time"
    writer = threading.Thread(target=lambda: pipe.write_bytes(GOOD))
    writer.start()
    assert validate(source, pipe).read == 3, "somebody does"
    writer.join()


def test_outputs_are_named(pair: Pair, tmp_path: Path) -> None:
    """A missing folder, and a full disk, which by itself names no file."""
    source, target = pair(GOOD, GOOD)
    absent = tmp_path / "absent"
    done = run("validate", source, target, "--out", absent / "x", absent / "y")
    assert f"{absent}: there is no such folder; make it first" in error_line(done, "validate")
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        validate(source, target, None, (Path("/dev/full"), tmp_path / "y"))


def test_blocks_are_joined_up(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Positions and pairing go on over the edges of the blocks that are read."""
    monkeypatch.setattr(validate_module, "BLOCK_LINES", 2)
    source, target = pair(b"a\nb\n\nd\ne\nf\n", b"A\nB\nC\nD\n\rE\nF\n")
    out = tmp_path / "o.en", tmp_path / "o.de"
    report = validate(source, target, Policy({Kind.EMPTY: Action.DROP, Kind.CR: Action.DROP}), out)
    assert [p.read_bytes() for p in out] == [b"a\nb\nd\nf\n", b"A\nB\nD\nF\n"]
    assert str(report.examples[Kind.CR][0]) == f"{target}:5: byte 8"


def test_a_file_without_lines_is_no_text(pair: Pair) -> None:
    paths = pair(b"x" * (LINE_BYTES + 1), b"y\n")
    assert "a line of more than 1,048,576 bytes" in error_line(run("validate", *paths), "validate")


LINES = st.lists(
    st.tuples(
        st.sampled_from([b"", b" ", b"\r", b"a\rb", b"\0", b"\xff", b"w w w", "\u2028".encode()]),
        st.sampled_from([b"", b"\x0c", b"ok", b"\xc3", b"w w w", b"\xef\xbb\xbf"]),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(faults=LINES, kinds=st.sets(st.sampled_from([k for k in Kind if k is not Kind.LINE_COUNT])))
def test_drop_keeps_pairs_aligned(
    faults: list[tuple[bytes, bytes]], kinds: set[Kind], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is dropped: what is left is a subsequence of the pairs, and its count is told."""
    folder = tmp_path_factory.mktemp("drop")
    pairs = [(b"%d %s" % (i, s), b"%d %s" % (i, t)) for i, (s, t) in enumerate(faults)]
    # every other pair is the fault alone, without a number to know it by
    pairs[1::2] = faults[1::2]
    paths = [folder / name for name in ("s", "t", "s.out", "t.out")]
    for side in (0, 1):
        paths[side].write_bytes(b"".join(pair[side] + b"\n" for pair in pairs))
    whole_file = {Kind.BOM, Kind.NO_NEWLINE}
    policy = Policy(
        {k: Action.DROP if k in kinds - whole_file else Action.COUNT for k in Kind}
        | {Kind.LINE_COUNT: Action.REFUSE},
        Limits(max_words=3),
    )
    report = validate(paths[0], paths[1], policy, (paths[2], paths[3]))
    kept = [path.read_bytes().split(b"\n")[:-1] for path in paths[2:]]
    assert len(kept[0]) == len(kept[1]) == report.kept
    assert report.read == len(pairs) == report.kept + sum(report.dropped.values())
    remaining = iter(pairs)
    for pair in zip(*kept, strict=True):
        assert pair in remaining
    # and nothing that was to go is left
    again = validate(paths[2], paths[3], policy)
    assert not again.dropped
