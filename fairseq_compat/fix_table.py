"""The list of all fixes: the fault of each, and when the fix is applied.

Importing this module imports neither fairseq nor torch, so that ``doctor`` can read the list
where those are missing or broken.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

from . import fairseq_fixes, messages, option_fixes


class Fix(NamedTuple):
    """One change to a library that is otherwise left as installed."""

    name: str
    apply: Callable[[], None]
    #: "start": before anything that is watched; "before": before hydra, omegaconf and fairseq;
    #: "fairseq": after its import.
    moment: str = "fairseq"

    @property
    def fault(self) -> str:
        """The fault: the first line of ``apply``'s docstring."""
        return (self.apply.__doc__ or "").partition("\n")[0].removesuffix(".")


class FixFailed(RuntimeError):
    """A fix does not fit the installed libraries."""


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, "" if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def safe_checkpoints() -> None:
    """torch 2.6 rejects fairseq's checkpoints; fairseq can report a failed save as success."""
    from . import checkpoints  # only now: it imports torch

    checkpoints.apply()


FIXES = (
    Fix("errors take one line", messages.shorten_errors, "start"),
    Fix("config classes are hashable", fairseq_fixes.make_hashable, "before"),
    Fix("Hydra's warnings are hidden", fairseq_fixes.hide_hydras_warnings, "before"),
    Fix("checkpoints load and save safely", safe_checkpoints),
    Fix("encoder layers call their attention", fairseq_fixes.call_self_attention_in_evaluation),
    Fix("--bf16 needs no TPU", option_fixes.train_in_bfloat16),
    Fix("all of a model is defined", fairseq_fixes.define_buffers),
    Fix("jobs of a sweep are independent", fairseq_fixes.forget_previous_job),
    Fix("batches are not loaded beyond the end", fairseq_fixes.end_loading_with_the_process),
    Fix("models may search themselves", fairseq_fixes.ask_the_model),
    Fix("NumPy 2 and sacreBLEU 2 are usable", fairseq_fixes.restore_removed_names),
    Fix("--user-dir takes a package's name", option_fixes.accept_package_names),
    Fix("--store-ema copies integers", fairseq_fixes.copy_integers),
    Fix("an unknown architecture is named", fairseq_fixes.name_unknown_architectures),
    Fix("checkpoints need no file of embeddings", fairseq_fixes.load_without_embedding_files),
    Fix("new options can be overridden", fairseq_fixes.override_new_options),
    Fix("fairseq-validate needs no --task", option_fixes.validate_without_options),
    Fix("checkpoints name their languages", fairseq_fixes.save_languages),
    Fix("a training locks its --save-dir", fairseq_fixes.lock_save_dir),
    Fix("devices are checked first", option_fixes.check_devices),
    Fix("interactive input may be invalid", option_fixes.replace_invalid_bytes),
    Fix("a translation has the model's direction", option_fixes.check_direction),
    Fix("errors under hydra take one line", messages.shorten_hydras_errors),
)

_applied: set[str] = set()


def apply_fixes(moment: str) -> None:
    """Apply the fixes of ``moment``, each once."""
    for fix in FIXES:
        if fix.moment == moment and fix.name not in _applied:
            _apply(fix)


def _apply(fix: Fix) -> None:
    try:
        fix.apply()
    except (AttributeError, ImportError) as error:
        raise FixFailed(
            f"fairseq_compat: the fix '{fix.name}' does not fit fairseq "
            f"{installed_version('fairseq') or '(not installed)'} and hydra "
            f"{installed_version('hydra-core') or '(not installed)'}: {error}"
        ) from error
    _applied.add(fix.name)


def is_applied(fix: Fix) -> bool:
    """Tell whether ``fix`` is in force in this process."""
    return fix.name in _applied
