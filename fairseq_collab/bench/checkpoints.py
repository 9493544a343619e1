"""Trained models and their twins, in memory and as files for the real ``fairseq-generate``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import load_checkpoint_to_cpu, load_model_ensemble_and_task
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf

from collab_common.errors import UserError
from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Variant,
    build_ours,
    build_stock,
    copy_from_stock,
    copy_to_stock,
)
from fairseq_collab.bench.settings import BEAM, Settings
from fairseq_collab.bench.timing import compare
from fairseq_collab.models.translation import HeadTransformer
from fairseq_collab.models.variants import COLLABORATIVE
from fairseq_compat import checkpoints as files

#: fairseq-generate's own last words.
_TRANSLATED = re.compile(
    r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) .*?\(([\d.]+) sentences/s"
)
#: How far two scores of one translation may be apart, as printed.
SCORE_TOLERANCE = 1e-3
#: How often each model of a pair is run by the real command.
COMMAND_TURNS = 3
#: Sentences that it translates together, and those of which set.
COMMAND_BATCH = 64
SUBSET = "test"


@dataclass(frozen=True)
class TrainedPair:
    """fairseq's model and ours, the same function, from one checkpoint.

    Attributes:
        path: the checkpoint, which is one of the two.
        twin: options (flat, with ``arch``) of the other one.
    """

    name: str
    path: Path
    stock: Any
    ours: Any
    twin: dict[str, Any]

    @property
    def twin_is_stock(self) -> bool:
        """Whether the file is ours."""
        return self.twin["arch"] == STOCK


def trained_pairs(settings: Settings) -> Iterator[TrainedPair]:
    """One pair for each checkpoint that was given.

    Raises:
        UserError: a checkpoint is not what its option says.
    """
    data = {"data": settings.data}
    if settings.checkpoint:
        path = Path(settings.checkpoint)
        (stock,), cfg, task = load_model_ensemble_and_task([str(path)], arg_overrides=data)
        if type(stock) is not TransformerModel:
            wanted = "give one of fairseq's transformer"
            raise UserError(f"is the checkpoint of a {type(stock).__name__}", path, wanted)
        options = flat(cfg.model)
        ours = build_ours(HEADSIZE, options, task)
        copy_from_stock(stock, ours)
        twin = {**options, "arch": HEADSIZE}
        yield TrainedPair(Variant(HEADSIZE).name, path, stock, ours, twin)
    if settings.collab_checkpoint:
        path = Path(settings.collab_checkpoint)
        (ours,), cfg, task = load_model_ensemble_and_task([str(path)], arg_overrides=data)
        if not isinstance(ours, HeadTransformer) or ours.variant is not COLLABORATIVE:
            wanted = "give one of transformer_collab"
            raise UserError(f"is the checkpoint of a {type(ours).__name__}", path, wanted)
        options = flat(cfg.model)
        stock = build_stock(options, task)
        copy_to_stock(ours, stock)
        key_dim = options.get("key_dim", options["encoder_embed_dim"] // 4)
        size, rest = divmod(options["encoder_embed_dim"], key_dim)
        name = f"{COLLAB} K={key_dim}" if rest else Variant(COLLAB, size).name
        yield TrainedPair(name, path, stock, ours, {**options, "arch": STOCK})


def flat(options: Any) -> dict[str, Any]:
    """A checkpoint's model options by name, whether it keeps them as a namespace or a config.

    Those that are None are left out: fairseq's transformer wants its own defaults for them.
    """
    if isinstance(options, Namespace):
        values: Any = vars(options)
    else:
        values = OmegaConf.to_container(options, resolve=True, enum_to_str=True)
    return {name: value for name, value in values.items() if value is not None}


def commands(settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """``fairseq-generate`` itself, start to end, with both models of a pair in turn.

    Raises:
        UserError: a command failed, or the two translations differ.
    """
    records = []
    for pair in trained_pairs(settings):
        with tempfile.TemporaryDirectory() as folder:
            twin = Path(folder) / "twin.pt"
            write_twin(pair, twin)
            stock, ours = (twin, pair.path) if pair.twin_is_stock else (pair.path, twin)
            runs: dict[Path, list[Finished]] = {stock: [], ours: []}
            for turn in range(1 if settings.quick else COMMAND_TURNS):
                for path in (stock, ours) if turn % 2 == 0 else (ours, stock):
                    say(f"fairseq-generate: {STOCK if path == stock else pair.name}")
                    runs[path].append(fairseq_generate(path, settings))
        for one, other in zip(runs[stock], runs[ours], strict=True):
            check_files(one.lines, other.lines)
        common: dict[str, Any] = {
            "part": "generate",
            "preset": "trained",
            "model": pair.name,
            "against": STOCK,
        }
        common |= {"beam": BEAM, "batch": COMMAND_BATCH, "ties": 0, "unit": "sentences"}
        common["work"] = common["sentences"] = runs[stock][0].sentences
        for case, field in (
            ("fairseq-generate, its own clock", "translating"),
            ("fairseq-generate, start to end", "wall"),
        ):
            times = [
                (getattr(one, field), getattr(other, field))
                for one, other in zip(runs[stock], runs[ours], strict=True)
            ]
            records.append({**common, "case": case, **compare(times).as_dict()})
    return records


def write_twin(pair: TrainedPair, path: Path) -> None:
    """The twin as a checkpoint of its own."""
    state = load_checkpoint_to_cpu(str(pair.path))
    cfg = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
    arch = pair.twin["arch"]
    if pair.twin_is_stock:  # fairseq's transformer has no option class
        cfg.model = Namespace(**{**pair.twin, "_name": arch})
    else:
        known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]())
        cfg.model = {**{k: v for k, v in pair.twin.items() if k in known}, "_name": arch}
    model = pair.stock if pair.twin_is_stock else pair.ours
    content = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    kept = {name: value for name, value in state.items() if name != "last_optimizer_state"}
    files.save({**kept, "args": None, "cfg": content, "model": model.state_dict()}, path)


@dataclass(frozen=True)
class Finished:
    """A finished ``fairseq-generate``: seconds by its own clock and by ours, and its output.

    Attributes:
        tokens: of the best translations, ends of sentences included.
    """

    translating: float
    wall: float
    sentences: int
    tokens: int
    lines: list[str]


def fairseq_generate(path: Path, settings: Settings) -> Finished:
    """Translate the test set with the real command.

    Raises:
        UserError: it failed.
    """
    command = [
        str(Path(sys.executable).with_name("fairseq-generate")),
        *(str(settings.data), "--user-dir", str(Path(__file__).parents[1]), "--path", str(path)),
        *("--gen-subset", SUBSET, "--beam", str(BEAM), "--batch-size", str(COMMAND_BATCH)),
        *(["--cpu"] * (settings.device == "cpu")),
        *(["--bf16"] * (settings.dtype == "bfloat16")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": str(settings.threads)}
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    wall = time.perf_counter() - start
    found = _TRANSLATED.search(done.stdout + done.stderr)
    if done.returncode or found is None:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(f"fairseq-generate failed: {last}", path)
    number, tokens = (int(count.replace(",", "")) for count in found.group(1, 2))
    lines = [line for line in done.stdout.splitlines() if line.startswith(("H-", "D-"))]
    return Finished(number / float(found[3]), wall, number, tokens, lines)


def check_files(stock: list[str], ours: list[str]) -> None:
    """``H-`` and ``D-`` lines (number, score, text) must agree, scores to 1e-3.

    Raises:
        UserError: names the first line that does not.
    """
    if len(stock) != len(ours):
        raise UserError(
            f"{len(stock)} lines of translations by fairseq's model, {len(ours)} by ours"
        )
    for one, other in zip(stock, ours, strict=True):
        (name, score, text), (own_name, own_score, own_text) = (
            line.split("\t", 2) for line in (one, other)
        )
        alike = (name, text) == (own_name, own_text)
        if not alike or abs(float(score) - float(own_score)) > SCORE_TOLERANCE:
            raise UserError(f"translations differ in {name}: {text!r} and {own_text!r}")
