"""How long the translations of a run may be: the rule of :mod:`collab_lab.metrics.length_limit`.

A limit in the configuration takes precedence, even if it equals fairseq's default.

This module does not import fairseq: see :mod:`collab_lab.runs.train_and_score`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from omegaconf import DictConfig, OmegaConf

from collab_lab.metrics.length_limit import LENGTH_LIMIT

#: fairseq's defaults of these options of the section ``generation``.
FAIRSEQ_LIMIT: dict[str, Any] = {"max_len_a": 0.0, "max_len_b": 200}
#: Values that stand for a limit that no configuration gives.
UNSET: dict[str, Any] = dict.fromkeys(LENGTH_LIMIT, -1)


def unset(config: DictConfig, given: Collection[str]) -> None:
    """Mark fairseq's limit in a checkpoint's configuration as one that the user has not chosen.

    Args:
        given: names of the options that the user gives, with their sections.
    """
    generation = config.get("generation") or {}
    if {name: generation.get(name) for name in LENGTH_LIMIT} == FAIRSEQ_LIMIT:
        for name in LENGTH_LIMIT:
            if f"generation.{name}" not in given:
                generation[name] = UNSET[name]


def limit_lengths(config: DictConfig) -> None:
    """Set the limit if the user gives none; if only one number is given, fairseq's completes it."""
    generation = config.get("generation") or {}
    missing = [name for name in LENGTH_LIMIT if generation.get(name) == UNSET[name]]
    for name in missing:
        generation[name] = (LENGTH_LIMIT if len(missing) == len(LENGTH_LIMIT) else FAIRSEQ_LIMIT)[
            name
        ]


def in_training(config: DictConfig) -> list[str]:
    """Overrides for fairseq-hydra-train that keep fairseq's own limit in checkpoints."""
    options = {name: OmegaConf.select(config, f"generation.{name}") for name in LENGTH_LIMIT}
    if options != LENGTH_LIMIT:
        return []
    return [f"generation.{name}={value}" for name, value in FAIRSEQ_LIMIT.items()]
