"""What ``recipes/head_pruning.sh`` has made so far: heads kept, and BLEU.

    OUT/gated/SITES/gate_penalty-P_seed-N    runs with gates at SITES (all, encoder)
    OUT/pruned/N/SITES-P.pt                  what fairseq-collab prune has left of them
    OUT/tuned/model-SITES-P_seed-N           these, fine-tuned
    OUT/scratch/model-SITES-P_seed-N         models of the same shapes, from scratch
    BASELINE/model-concatenated_seed-N       where the runs with gates have started

All of it may be missing or unfinished, but for the configuration of the baseline and a run with
gates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from collab_common.errors import UserError
from fairseq_collab.attention.gates import deterministic
from fairseq_collab.checkpoints.prune.shapes import options_of
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.results.rows import SAME_IN_TABLE, check_same, finished_runs
from fairseq_collab.runs.run import Run, runs_under
from fairseq_compat import checkpoints

#: What else may be done with a shape, each in a folder of its own.
LATER = ("tuned", "scratch")
_GATED = re.compile(r"gate_penalty-(?P<penalty>.+)_seed-(?P<seed>\d+)")


@dataclass(frozen=True)
class Result:
    """What became of one run with gates.

    Attributes:
        sites: the folder of the run: which attentions have gates.
        penalty: what an open gate costs; as it was written.
        heads: how many each layer keeps, by site; None if nothing was pruned yet.
        between: gates that are neither 0 nor 1.
        empty: attentions without an open gate, which keep one head.
        bleu: of the model with gates, of the pruned one after fine-tuning, and of one of the same
            shape from scratch; those that are finished.
    """

    sites: str
    penalty: str
    seed: int
    heads: Mapping[Site, Sequence[int]] | None
    between: int | None
    empty: int | None
    bleu: Mapping[str, float]

    @property
    def total(self) -> int | None:
        """Heads kept in all."""
        return None if self.heads is None else sum(map(sum, self.heads.values()))


@dataclass(frozen=True)
class Found:
    """All results, by sites, penalty and seed; and what they began with.

    Attributes:
        baseline: BLEU of the models that the gates were added to, by seed.
        heads: how many heads these have by layer, by site.
        unfinished: a line for each run that is not finished.
        facts: what all runs share.
    """

    results: list[Result]
    baseline: Mapping[int, float]
    heads: Mapping[Site, Sequence[int]]
    unfinished: list[str]
    facts: Mapping[str, Any]


def read(out: Path, baseline: Path) -> Found:
    """Collect what there is.

    Raises:
        UserError: there are no runs with gates or none is finished, a file is damaged, or the runs'
            scores do not compare.
    """
    gated = dict(gated_runs(out))
    if not gated:
        todo = "give the OUT of recipes/head_pruning.sh"
        raise UserError("no runs with gates in gated/", where=out, todo=todo)
    before = {seed: Run(baseline / f"model-concatenated_seed-{seed}") for *_, seed in gated}
    later = {
        key: {kind: Run(out / kind / f"model-{key[0]}-{key[1]}_seed-{key[2]}") for kind in LATER}
        for key in gated
    }
    runs = [
        *before.values(),
        *gated.values(),
        *filter(begun, (later[key][kind] for kind in LATER for key in gated)),
    ]
    finished, lines = finished_runs(runs)
    waiting = [run for run in runs if run.verdict() != "finished"]
    check_same(finished, SAME_IN_TABLE, todo="they are of different experiments")
    bleu = {run.folder: run.facts["bleu"] for run in finished}
    results = [result(out, key, {"gated": run, **later[key]}, bleu) for key, run in gated.items()]
    return Found(
        results=sorted(results, key=lambda one: (one.sites, float(one.penalty), one.seed)),
        baseline={seed: bleu[run.folder] for seed, run in before.items() if run.folder in bleu},
        heads=heads_of(next(iter(before.values()))),
        unfinished=[
            f"{run.folder.parent.name}/{line}" for run, line in zip(waiting, lines, strict=True)
        ],
        facts={field: finished[0].facts[field] for field in SAME_IN_TABLE},
    )


def gated_runs(out: Path) -> Iterator[tuple[tuple[str, str, int], Run]]:
    """The runs with gates, each with its sites, penalty and seed."""
    for folder in sorted((out / "gated").glob("*/")):
        for run in runs_under(folder):
            named = _GATED.fullmatch(run.name)
            if named:
                yield (folder.name, named["penalty"], int(named["seed"])), run


def begun(run: Run) -> bool:
    return run.config_file.exists()


def heads_of(run: Run) -> dict[Site, list[int]]:
    """The heads by layer of a run with ordinary heads, by site."""
    model = run.config().model
    decoder = [model.decoder_attention_heads] * model.decoder_layers
    encoder = [model.encoder_attention_heads] * model.encoder_layers
    return {"encoder": encoder, "decoder": decoder, "cross": decoder}


def result(
    out: Path, key: tuple[str, str, int], runs: Mapping[str, Run], bleu: Mapping[Path, float]
) -> Result:
    """What became of one run with gates."""
    sites, penalty, seed = key
    pruned = out / "pruned" / str(seed) / f"{sites}-{penalty}.pt"
    average = runs["gated"].average
    between, empty = gates_of(average) if average.exists() else (None, None)
    return Result(
        *key,
        heads=kept_in(pruned) if pruned.exists() else None,
        between=between,
        empty=empty,
        bleu={kind: bleu[run.folder] for kind, run in runs.items() if run.folder in bleu},
    )


def kept_in(pruned: Path) -> dict[Site, list[int]]:
    """The heads by layer of a pruned checkpoint, by site."""
    options = options_of(pruned)
    return {site: [int(n) for n in str(options[f"heads_in_{site}"]).split(",")] for site in SITES}


def gates_of(checkpoint: Path) -> tuple[int, int]:
    """How many gates are neither 0 nor 1, and how many attentions have none from one half up."""
    state = checkpoints.read(checkpoint)
    speed = state["cfg"]["model"]["gate_speed"]
    layers = [
        deterministic(speed * weight.float())
        for name, weight in state["model"].items()
        if name.endswith(".theta")
    ]
    gates = torch.cat(layers)
    empty = sum(not bool((layer >= 0.5).any()) for layer in layers)
    return int(((gates > 0) & (gates < 1)).sum()), empty
