"""The file of votes: what ``fairseq-collab vote`` writes and ``fairseq-collab prune`` reads.

    {"version": 1, "checkpoint": ..., "data": ..., "subset": ..., "feature": ..., "rule": "group",
     "batches": 400, "stability": {"changed": 0.01, "shift": 0.02},
     "votes": {"encoder": [LAYER, ...], "decoder": [...], "cross": [...]}}

Each LAYER has a line for each of its groups, each line the votes for each of its heads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab_common import atomic
from collab_common.errors import UserError
from collab_common.files import read_versioned
from fairseq_collab.checkpoints.prune.choices import RULES, Heads, check_enough, elected
from fairseq_collab.checkpoints.prune.surgery import Kept
from fairseq_collab.models.layers import SITES, Site

VERSION = 1
Layer = list[list[int]]  # C x H


@dataclass(frozen=True)
class VotesFile:
    """The votes for the heads of one model, and the rule to count them by."""

    path: Path
    rule: str
    votes: dict[Site, list[Layer]]

    def kept(self, heads: Heads, keep: Mapping[Site, int] | None) -> Kept:
        """The heads that stay: one a group, or ``keep`` in each attention.

        Raises:
            UserError: the votes are for other heads, ``keep`` is missing with the rule ``top``, or
                is not the number of groups with the rule ``group``.
        """
        self._check_heads(heads)
        kept = {}
        for site, layers in self.votes.items():
            kept[site] = [
                elected(votes, self.rule, self._number(site, votes, keep)) for votes in layers
            ]
        return kept

    def _number(self, site: Site, votes: Layer, keep: Mapping[Site, int] | None) -> int:
        if keep is None and self.rule == "top":
            raise UserError("say how many heads stay", where="--keep")
        number = len(votes) if keep is None else keep[site]
        if self.rule == "group" and number != len(votes):
            raise UserError(
                f"{number} heads of {site} attention cannot stay, one for each of its "
                f"{len(votes)} groups",
                where=self.path,
                todo="vote again with --groups, or --rule top",
            )
        check_enough({site: [len(votes[0])]}, {site: number})
        return number

    def _check_heads(self, heads: Heads) -> None:
        for site in SITES:
            voted = [len(votes[0]) for votes in self.votes[site]]
            if voted != list(heads[site]):
                raise UserError(
                    f"is of another model: heads by layer in {site} attention are {voted} in it, "
                    f"{list(heads[site])} in the checkpoint",
                    where=self.path,
                )


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of votes as a whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    text = json.dumps({"version": VERSION, **content}, indent=1, ensure_ascii=False) + "\n"
    try:
        atomic.write(path, lambda file: file.write(text.encode()))
    except OSError as error:
        todo = "give another file with --output"
        raise UserError(f"cannot be written: {error.strerror or error}", path, todo) from error


def read(path: Path) -> VotesFile:
    """Read a file of votes.

    Raises:
        UserError: it cannot be read, or is none.
    """
    todo = "give a file that fairseq-collab vote has written"
    content = read_versioned(path, VERSION, "votes", todo)
    rule, votes = content.get("rule"), content.get("votes", {})
    if rule not in RULES or not _are_votes(votes):
        raise UserError("its votes are damaged", where=path, todo="vote again")
    return VotesFile(path, rule, {site: votes[site] for site in SITES})


def _are_votes(votes: Any) -> bool:
    """Whether it is a table of whole numbers for each layer of each site."""
    if not isinstance(votes, dict) or set(votes) != set(SITES):
        return False
    for layer in (layer for layers in votes.values() for layer in layers):
        if not layer or len({len(row) for row in layer}) != 1 or not layer[0]:
            return False
        if not all(isinstance(number, int) for row in layer for number in row):
            return False
    return True
