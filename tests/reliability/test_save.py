"""A save succeeds completely, or says so and leaves the former file as it was."""

from __future__ import annotations

import errno
import math
import os
import pickle
import time
import zipfile
from argparse import Namespace
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
import toy
import toy_checkpoints
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.logging.meters import AverageMeter, StopwatchMeter, TimeMeter
from omegaconf import DictConfig, Node, OmegaConf
from refusals import refusing

from collab_common import atomic
from collab_common.errors import UserError
from fairseq_compat import checkpoints
from fairseq_compat.safe_load import evaluate

LARGE = {"model": {"weight": torch.arange(100_000.0)}}


class FullDisk:
    """A file that takes 1,000 bytes, then none."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.room = file, 1000

    def write(self, data: bytes) -> int:
        done = self.file.write(bytes(data)[: self.room])
        self.room -= done
        if done < len(bytes(data)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a partial file fails as on a full disk."""
    write = atomic.write

    def fail(path: Any, fill: Any) -> None:
        write(path, lambda file: fill(FullDisk(file)))

    monkeypatch.setattr(atomic, "write", fail)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("kind", ["save", "copy"])
def test_a_failed_write_is_an_error_and_leaves_the_old_file(kind: str, tmp_path: Path) -> None:
    """fairseq repeats it behind the bytes of the first attempt, and reports success."""
    source, path = tmp_path / "source.pt", tmp_path / "checkpoint1.pt"
    source.write_bytes(b"x" * 5000)
    path.write_bytes(b"former")
    with refusing(str(path)):
        if kind == "save":
            checkpoint_utils.torch_persistent_save(LARGE, str(path))
        else:
            PathManager.copy(str(source), str(path), overwrite=True)
    assert path.read_bytes() == b"former"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint1.pt", "source.pt"]


@pytest.mark.parametrize("place", ["none/a.pt", "."])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    with refusing(str(tmp_path / place)):
        checkpoints.save(LARGE, tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    source.write_bytes(b"one")
    assert PathManager.copy(str(source), str(target), overwrite=True)
    with open(source, "r+b") as file:
        file.write(b"two")
    assert target.read_bytes() == b"one"


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """``checkpoint_last.pt`` may be on another disk; as a link, it may name no file yet."""
    (tmp_path / "other").mkdir()
    link, file = tmp_path / "checkpoint_last.pt", tmp_path / "other" / "a.pt"
    link.symlink_to("other/a.pt")
    for state in ({"model": {"w": torch.ones(1)}}, {"model": {"w": torch.zeros(1)}}):
        checkpoints.save(state, link)
        assert link.is_symlink()
        assert torch.equal(torch.load(file)["model"]["w"], state["model"]["w"])
    (tmp_path / "b.pt").write_bytes(b"copied")
    PathManager.copy(str(tmp_path / "b.pt"), str(link), overwrite=True)
    assert (link.is_symlink(), file.read_bytes()) == (True, b"copied")
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [
        *("a.pt", "b.pt", "checkpoint_last.pt")
    ]  # fmt: skip


def test_two_writers_of_one_name(tmp_path: Path) -> None:
    """The second waits; what a dead writer has left is written over."""
    (tmp_path / "a.partial").write_bytes(b"what a dead writer has left")
    with ThreadPoolExecutor(2) as pool:

        def fill(file: BinaryIO) -> None:
            if not others:
                others.append(pool.submit(atomic.write, tmp_path / "a", lambda f: f.write(b"2")))
            file.write(b"first")
            time.sleep(0.2)

        others: list[Any] = []
        pool.submit(atomic.write, tmp_path / "a", fill).result()
        others[0].result()
    assert (tmp_path / "a").read_bytes() == b"2"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


class Forged:
    """Pickles as a call of the given function."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.call = function, arguments, state

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


#: How numpy pickles an array before its state.
EMPTY = (np.zeros(1).__reduce__()[0], np.ndarray, (0,), b"b")


def meter(kind: type, *values: float) -> Any:
    """As fairseq pickled it up to 0.8, when its meters were a module ``fairseq.meters``."""
    found = kind()
    for value in values:
        found.update(value)
    return found


def checkpoint_with(value: Any, path: Path) -> Path:
    state = {"model": {}, "cfg": {}, "optimizer_history": [], "extra_state": {"value": value}}
    torch.save(state, path)
    return path


#: What criterions, tasks, schedulers and averages of fairseq 0.6 to 0.12 put into a checkpoint.
CONTENTS = {
    "a number": np.float64(0.1),
    "a count": np.int64(-3),
    "a truth": np.bool_(True),
    "counts of --eval-bleu": np.array([3, 2, 0]),
    "a matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "no dimensions": np.array(2.5),
    "options of fairseq before 0.10": Namespace(arch="transformer", lr=[0.1]),
    "metrics": [(10, "loss", "AverageMeter", {"val": 1.5, "sum": np.float64(3), "count": 2})],
    "averages": {"ema": {"weight": torch.ones(2)}, "ema_fp32_params": OrderedDict(a=torch.ones(1))},
    "an optimizer": {"state": {0: {"step": 3, "exp_avg": torch.ones(2)}}, "param_groups": [{}]},
    "a loss scale": {"loss_scale": 128.0},
    "a mean up to 0.8": meter(AverageMeter, 1.5, 2.5),
    "a speed up to 0.8": meter(TimeMeter, 1.0),
    "a watch up to 0.8": meter(StopwatchMeter),
    "the dictionary of a task": toy.dictionary(),
}
#: Modules under their names of today, and under those in old checkpoints.
FAIRSEQ_0_8, NUMPY_1 = (
    {b"fairseq.logging.meters": b"fairseq.meters"},
    {b"numpy._core": b"numpy.core"},
)


def renamed(path: Path, out: Path, names: Mapping[bytes, bytes]) -> Path:
    """The file with other names of modules in its pickle, as older versions wrote them."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            for new, old in names.items():
                content = content.replace(new, old)
            target.writestr(name, content)
    return out


@pytest.mark.parametrize("content", CONTENTS)
def test_what_fairseq_saves_is_read(content: str, tmp_path: Path) -> None:
    """Also after another save, as ``average`` and ``prune`` do; and from numpy 1."""
    path = renamed(
        checkpoint_with(CONTENTS[content], tmp_path / "a.pt"), tmp_path / "b.pt", FAIRSEQ_0_8
    )
    checkpoints.save(checkpoints.read(path), tmp_path / "again.pt")
    again = renamed(tmp_path / "again.pt", tmp_path / "old.pt", NUMPY_1)
    for file in (path, again):
        assert shown(checkpoints.read(file)["extra_state"]["value"]) == shown(CONTENTS[content])
    stock = torch.load(again, weights_only=False)["extra_state"]["value"]
    assert type(stock) is type(CONTENTS[content])


def shown(value: Any) -> tuple[str, Any]:
    return str(getattr(value, "__dict__", value)), getattr(value, "dtype", None)


def large_checkpoint(path: Path) -> torch.Tensor:
    """A checkpoint with its optimizer, 12 MB; its weights."""
    weights = torch.arange(1_000_000.0)
    state = {"model": {"weight": weights}, "cfg": {}, "optimizer_history": [], "extra_state": {}}
    torch.save(state | {"last_optimizer_state": [weights + 1, weights + 2]}, path)
    return weights


def bytes_read() -> int:
    """By this process so far, with calls to read; not through memory."""
    told = Path("/proc/self/io").read_text().split()
    return int(told[told.index("rchar:") + 1])


def test_a_checkpoint_is_read_as_far_as_it_is_looked_at(tmp_path: Path) -> None:
    """Of a training's gigabytes two thirds are its optimizer's, which most commands leave out."""
    weights, before = large_checkpoint(tmp_path / "a.pt"), bytes_read()
    state = checkpoints.read(tmp_path / "a.pt")
    assert bytes_read() - before < 1_000_000
    assert torch.equal(state["model"]["weight"], weights)
    state["model"]["weight"].add_(1)  # as an optimizer does to its state once training goes on
    assert torch.equal(checkpoints.read(tmp_path / "a.pt")["model"]["weight"], weights)


def test_a_checkpoint_that_was_compressed_is_read_whole(tmp_path: Path) -> None:
    weights = large_checkpoint(tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as source,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert torch.equal(checkpoints.read(tmp_path / "b.pt")["model"]["weight"], weights)


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}], dtype=object),
        np.zeros(3, dtype=[("a", "f8")]),
        Forged(np.ndarray, (1,), np.dtype("f8"), b"12345678"),
        Forged(*EMPTY, state=(1, (1,), np.dtype("O"), False, [{}])),
        Forged(*EMPTY, state=(1, (1,), np.dtype("f8"), False, [{}])),
        np.dtype("O"),
        np.dtype([("a", "O")]),
        Forged(getattr, "", "join"),
        Forged(__import__, "os"),
        pickle.PickleBuffer,
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_but_plain_numbers_is_refused(value: Any, tmp_path: Path) -> None:
    """Arrays of objects, made of bytes, would be addresses of the file's choice."""
    path = checkpoint_with(value, tmp_path / "a.pt")
    with refusing(str(path)):
        checkpoints.read(path)


def as_in_2020(cfg: dict[str, Any]) -> DictConfig:
    """Options as fairseq pickled them in late 2020, with omegaconf 2.0."""
    found = OmegaConf.create(cfg, flags={"allow_objects": True})
    OmegaConf.set_struct(found, True)
    found._metadata.resolver_cache = defaultdict(dict)
    return found


def test_pickled_options_are_read_as_data(tmp_path: Path) -> None:
    state = torch.load(toy_checkpoints.write(tmp_path / "c.pt"), weights_only=False)
    state["cfg"]["common"]["pair"] = [0.1, "${common.seed}", {"none": None}]
    torch.save({**state, "cfg": as_in_2020(state["cfg"])}, tmp_path / "old.pt")
    assert checkpoints.read(tmp_path / "old.pt")["cfg"] == state["cfg"]
    old, new = (toy_checkpoints.log_probabilities(tmp_path / f"{n}.pt") for n in ("old", "c"))
    assert old == new


class Command:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made",)


@pytest.mark.parametrize("where", ["value", "metadata", "tensor", "nothing", "elsewhere", "type"])
def test_pickled_options_are_only_data(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their objects hold; nothing of it is run."""
    monkeypatch.chdir(tmp_path)
    state = torch.load(toy_checkpoints.write(tmp_path / "c.pt"), weights_only=False)
    cfg = as_in_2020({**state["cfg"], "more": 1})
    node = cfg._get_node("more")
    assert isinstance(node, Node)
    if where == "metadata":
        cfg._metadata.object_type = Command()
    elif where == "elsewhere":
        state["extra_state"]["options"] = cfg
    elif where == "type":
        state["extra_state"]["options"] = [dict]
    elif where == "nothing":
        del vars(node)["_val"]
    else:
        vars(node)["_val"] = torch.ones(1) if where == "tensor" else Command()
    torch.save({**state, "cfg": cfg}, tmp_path / "old.pt")
    with refusing("old.pt", "only data"):
        checkpoints.read(tmp_path / "old.pt")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("section", ["model", "task"])
def test_options_without_a_model(section: str, tmp_path: Path) -> None:
    state = torch.load(toy_checkpoints.write(tmp_path / "c.pt"), weights_only=False)
    state["cfg"][section] = None
    torch.save(state, tmp_path / "c.pt")
    with refusing("c.pt", section):
        checkpoints.read(tmp_path / "c.pt")


def test_what_others_allow_is_not_allowed_here(tmp_path: Path) -> None:
    path = checkpoint_with(Forged(math.sqrt, 4.0), tmp_path / "a.pt")
    with torch.serialization.safe_globals([math.sqrt]):
        before = set(torch.serialization.get_safe_globals())
        with refusing(str(path)):
            checkpoints.read(path)
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    "text",
    [
        *("(0.9, 0.98)", "[(512, 3)] * 2 + [(1, -2)]", "4096 * 8", "True", "{'a': 1e-3}"),
        "1 - 0.1",
        *("5e-4 / 8", "{'b': [0] * 2}", "'a' * 2", "1.5,", " 2", "2j", "None", "b'a'", "{1, 2}"),
    ],
)
def test_settings_are_evaluated(text: str) -> None:
    assert evaluate(text) == eval(text.strip())


@pytest.mark.parametrize("value", [True, False, 1, 0.5, None, [1], "1 + 'a'", "{[]: 1}"])
def test_what_is_no_text_is_a_type_error(value: Any) -> None:
    """fairseq's ``eval_bool`` takes it for a value that is not given."""
    for function in (eval, evaluate):
        with pytest.raises(TypeError):
            function(value)


@pytest.mark.parametrize(
    "text",
    ["print(1)", "().__class__", "[0] * 10**9", "[0] * 99999999", "(", "1 / 0", "{**{}}", "-'a'"],
)
def test_settings_are_not_run(text: str) -> None:
    with pytest.raises(UserError):
        evaluate(text)
