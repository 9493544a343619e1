"""Checks of the arguments that users pass to the functions of ``collab_lab``."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from collab_common.errors import UserError
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples


def sentences_of(model: Trained, subset: str, sentences: int | None) -> list[dict[str, Any]]:
    """Batches of a subset's sentences: ``sentences`` of them spread evenly, or all if None.

    Raises:
        UserError: the subset does not exist, or the number is below 1.
    """
    check_model(model)
    check_whole(sentences=sentences)
    if sentences is not None and sentences < 1:
        raise UserError(f"must be a whole number above 0, not {sentences}", "`sentences`")
    try:
        return samples(model, subset, sentences)
    except FileNotFoundError as error:  # fairseq's
        problem = f"{model.cfg.task.data} has no set of the name {subset!r}"
        raise UserError(problem, "`subset`") from error


def check_model(model: Any) -> None:
    """Raise UserError unless ``model`` is a checkpoint that ``open_model`` opened."""
    if not isinstance(model, Trained):
        raise UserError(f"must be what open_model returns, not {model!r:.60}", "`model`")


def check_whole(**arguments: Any) -> None:
    """Raise UserError for the first argument that is neither None nor a whole number."""
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise UserError(f"must be a whole number, not {value!r}", f"`{name}`")
