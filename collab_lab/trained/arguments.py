"""Arguments of the functions for notebooks: a model, numbers, sentences of a subset."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from collab_common.errors import UserError
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples


def sentences_of(model: Trained, subset: str, sentences: int | None) -> list[dict[str, Any]]:
    """Sentences of a subset, spread evenly, or all; UserError for a subset that does not exist."""
    check_model(model)
    check_whole(sentences=sentences)
    if sentences is not None and sentences < 1:
        raise UserError(f"must be a whole number above 0, not {sentences}", "`sentences`")
    try:
        return samples(model, subset, sentences)
    except FileNotFoundError as error:  # fairseq's
        raise UserError(f"{subset!r} is no subset of {model.cfg.task.data}", "`subset`") from error


def check_model(model: Any) -> None:
    """Raise UserError for what is no opened checkpoint."""
    if not isinstance(model, Trained):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")


def check_whole(**arguments: Any) -> None:
    """Raise UserError for the first argument that is given, and no whole number."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(f"must be a whole number, not {value!r}", f"`{name}`")
