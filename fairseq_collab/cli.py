"""``fairseq-collab COMMAND``: what fairseq's own commands do not do."""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple

from fairseq_compat.errors import UserError


class Command(NamedTuple):
    """A module with ``main(argv) -> exit status``, imported when the command is called."""

    module: str
    summary: str


COMMANDS = {
    "average": Command("fairseq_collab.checkpoint_average", "average checkpoints of one training"),
    "bench": Command("fairseq_collab.evaluation.bench.command", "speed beside stock fairseq"),
    "compare": Command("fairseq_collab.evaluation.compare", "significance tests of two runs"),
    "cost": Command("fairseq_collab.evaluation.cost", "parameters and cache bytes of a checkpoint"),
    "export": Command("fairseq_collab.reparametrize.export", "a model for other engines, exactly"),
    "heads": Command("fairseq_collab.analysis.heads.command", "what a model's heads do"),
    "prune": Command("fairseq_collab.pruning.command_prune", "take heads out of a trained model"),
    "prune-curve": Command(
        "fairseq_collab.pruning.command_curve", "BLEU against the share of heads removed"
    ),
    "rank": Command("fairseq_collab.analysis.rank", "spectra and ranks of a model's heads"),
    "reparametrize": Command(
        "fairseq_collab.reparametrize.command", "collaborative heads from a trained model's"
    ),
    "report": Command(
        "fairseq_collab.evaluation.report.command", "finished runs on one page, with tests"
    ),
    "score": Command("fairseq_collab.evaluation.score", "BLEU and chrF of a run or a translation"),
    "sweep": Command("fairseq_collab.evaluation.sweep", "all runs of a Hydra sweep; resumes"),
    "table": Command("fairseq_collab.evaluation.table", "many runs in a table and a figure"),
    "vote": Command("fairseq_collab.pruning.command_vote", "which heads stand for their groups"),
}
#: Served by ``fairseq_collab_main``, without importing fairseq.
BUILT_IN = {
    "configs": "print the folder of Hydra configurations, to pass as --config-dir",
    "doctor": "what is installed, what is patched and why, and what is wrong",
    "user-dir": "print the folder to pass as --user-dir",
}


def main(argv: list[str]) -> int:
    """Run one command: 0 if it succeeded, 1 for bad input, 2 for bad usage."""
    name, *arguments = argv or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name not in COMMANDS:
        print(f"fairseq-collab: error: no command {name!r}\n{usage()}", file=sys.stderr)
        return 2
    try:
        return importlib.import_module(COMMANDS[name].module).main(arguments)
    except UserError as error:
        print(f"fairseq-collab {name}: error: {error}", file=sys.stderr)
        return 1


def usage() -> str:
    """All commands, a line each."""
    summaries = {name: command.summary for name, command in COMMANDS.items()} | BUILT_IN
    lines = [f"  {name:13} {summary}" for name, summary in sorted(summaries.items())]
    return "\n".join(["usage: fairseq-collab COMMAND [OPTIONS]", "", *lines])
