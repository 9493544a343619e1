"""The list of all fixes: what each mends, whether this machine needs it, when it is applied.

Importing this module imports neither fairseq nor torch, so that `doctor` can read the list
where those are missing or broken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

from . import fairseq_fixes, hydra_fixes, one_line, search


class Fix(NamedTuple):
    """One change to a library that is otherwise left as installed."""

    name: str
    why: str
    apply: Callable[[], None]
    moment: str = "fairseq"  # after whose import; or "before" the first that is watched
    applies: Callable[[], bool] = lambda: True  # where not every supported Python meets the fault


class FixFailed(RuntimeError):
    """A fix does not fit the installed libraries."""


def python_from(minor: int) -> Callable[[], bool]:
    """Say that the fault appears from Python 3.`minor` on."""
    return lambda: sys.version_info >= (3, minor)


def hydra_10_and_python_from(minor: int) -> Callable[[], bool]:
    """Say that the fault is hydra 1.0's own, from Python 3.`minor` on."""
    return lambda: python_from(minor)() and installed_version("hydra-core").startswith("1.0.")


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, "" if there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def safe_checkpoints() -> None:
    """Load the module only now: it imports torch."""
    from . import checkpoints

    checkpoints.apply()


FIXES = (
    Fix(
        "config classes are hashable",
        "Python 3.11 refuses defaults such as `common: CommonConfig = CommonConfig()`",
        hydra_fixes.make_hashable,
        "before",
        python_from(11),
    ),
    Fix(
        "typing.io exists",
        "hydra 1.0 and its antlr4 import it; Python 3.13 has dropped it",
        hydra_fixes.restore_typing_io,
        "before",
        hydra_10_and_python_from(13),
    ),
    Fix(
        "hydra reports errors",
        "hydra 1.0 fails while it prints an error (print_exception(etype=...)) and hides it",
        hydra_fixes.report_errors,
        "hydra",
        hydra_10_and_python_from(10),
    ),
    Fix(
        "hydra finds its plugins",
        "hydra 1.0 calls FileFinder.find_module, which Python 3.12 has dropped",
        hydra_fixes.import_plugins,
        "hydra",
        hydra_10_and_python_from(12),
    ),
    Fix(
        "hydra warns of a user's faults only",
        "fairseq-hydra-train starts with eight lines about how fairseq calls hydra 1.1 and later",
        hydra_fixes.ignore_warnings,
        "hydra",
        lambda: not installed_version("hydra-core").startswith("1.0."),
    ),
    Fix(
        "hydra converts options when asked",
        "each command of fairseq starts with converting the options of every model, task, ...",
        hydra_fixes.convert_when_asked,
        "hydra",
    ),
    Fix(
        "checkpoints load and save safely",
        "torch 2.6 refuses fairseq's checkpoints; fairseq can report a failed save as success",
        safe_checkpoints,
    ),
    Fix(
        "encoder layers call their attention",
        "in evaluation they by-pass self_attn, and torch 2 fails on padded batches there",
        fairseq_fixes.call_self_attention_in_evaluation,
    ),
    Fix(
        "--bf16 needs no TPU",
        "fairseq-train takes --bf16 for --tpu, on GPUs and CPUs too, and wants torch_xla",
        fairseq_fixes.train_in_bfloat16,
    ),
    Fix(
        "all of a model is defined",
        "positions and adaptive outputs hold a number of uninitialised memory, which may be NaN",
        fairseq_fixes.define_buffers,
    ),
    Fix(
        "head weights are per head",
        "MultiheadAttention(need_head_weights=True) returns their average over the heads",
        fairseq_fixes.return_weights_per_head,
    ),
    Fix(
        "jobs of a sweep are independent",
        "best metric, patience and tensorboard files leak from one job of `-m` into the next",
        fairseq_fixes.forget_previous_job,
    ),
    Fix(
        "batches are not loaded beyond the end",
        "a training that stops within an epoch may abort at exit, in the thread that loads batches",
        fairseq_fixes.end_loading_with_the_process,
    ),
    Fix(
        "models may search themselves",
        "SequenceGenerator has one loop for all; a plug-in's model can do the same with less work",
        search.ask_the_model,
    ),
    Fix(
        "--user-dir takes a package's name",
        "fairseq finds no plug-in of an editable install but by its path",
        fairseq_fixes.accept_package_names,
    ),
    Fix(
        "--store-ema copies integers",
        "the moving average multiplies integer entries of a model's state, which torch refuses",
        fairseq_fixes.copy_integers,
    ),
    Fix(
        "fairseq-score --sentence-bleu works",
        "it calls the scorer with arguments that the scorer no longer takes",
        fairseq_fixes.accept_symbol_indices,
    ),
    Fix(
        "fairseq-score --sacrebleu works",
        "it hands open files to sacreBLEU 2, which takes lists of lines only",
        fairseq_fixes.accept_open_files,
    ),
    Fix(
        "errors take one line",
        "a wrong option, path or checkpoint ends in a page of traceback",
        one_line.apply,
    ),
)

_applied: set[str] = set()


def apply_fixes(moment: str) -> None:
    """Apply what is due: the fixes of `moment`, each once.

    With "fairseq" come those of "hydra", too: fairseq has imported it, and under pytest the
    import of hydra itself goes unnoticed.
    """
    due = ("hydra", "fairseq") if moment == "fairseq" else (moment,)
    for fix in FIXES:
        if fix.moment in due and fix.name not in _applied and fix.applies():
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
    """Whether `fix` is in force in this process."""
    return fix.name in _applied
