"""The list of all fixes, and when each is applied; the docstring of a fix names the fault.

Importing this module imports neither fairseq nor torch, so that ``doctor`` can read the list
where those are missing or broken.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from . import (
    checkpoint_fixes,
    data_fixes,
    fairseq_fixes,
    generation_fixes,
    hydra_options,
    messages,
    option_fixes,
    overrides,
    resuming,
)


class FixFailed(RuntimeError):
    """A fix that does not fit the installed libraries."""


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; "" if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


#: The fixes by the moment when they are applied: "start" precedes every import that is watched,
#: "before" precedes the imports of hydra, omegaconf and fairseq, "fairseq" follows that of fairseq.
FIXES: dict[str, tuple[Callable[[], None], ...]] = {
    "start": (messages.shorten_errors,),
    "before": (fairseq_fixes.make_hashable, fairseq_fixes.hide_hydras_warnings),
    "fairseq": (
        checkpoint_fixes.read_settings_as_data,
        checkpoint_fixes.load_as_data,
        checkpoint_fixes.save_atomically,
        checkpoint_fixes.copy_atomically,
        checkpoint_fixes.name_files,
        checkpoint_fixes.require_start,
        checkpoint_fixes.refuse_asynchronous_writes,
        fairseq_fixes.call_self_attention_in_evaluation,
        option_fixes.name_nearest_options,
        option_fixes.require_model_and_optimizer,
        option_fixes.name_joined_subwords,
        option_fixes.train_in_bfloat16,
        fairseq_fixes.define_buffers,
        fairseq_fixes.forget_previous_job,
        resuming.keep_patience,
        resuming.keep_exact_weights,
        resuming.keep_plateau,
        resuming.end_at_max_update,
        resuming.start_averages,
        fairseq_fixes.end_loading_with_the_process,
        fairseq_fixes.ask_the_model,
        fairseq_fixes.restore_removed_names,
        option_fixes.accept_package_names,
        fairseq_fixes.copy_integers,
        fairseq_fixes.name_unknown_architectures,
        overrides.override_parts,
        overrides.add_text_sections,
        fairseq_fixes.override_new_options,
        overrides.reject_unknown_overrides,
        overrides.reject_wrong_values,
        overrides.reject_unknown_arguments,
        option_fixes.validate_without_options,
        fairseq_fixes.save_languages,
        fairseq_fixes.lock_save_dir,
        option_fixes.check_number_format,
        option_fixes.check_direction,
        data_fixes.write_exact_offsets,
        data_fixes.sign_block_offsets,
        data_fixes.keep_long_sizes,
        data_fixes.add_sizes_in_64_bits,
        generation_fixes.block_repeated_ngrams,
        generation_fixes.give_masks_one_type,
        generation_fixes.check_constraints,
        generation_fixes.check_interactive,
        generation_fixes.check_min_len,
        generation_fixes.skip_overlong_lines,
        generation_fixes.name_overlong_sentences,
        hydra_options.name_unknown_options,
        messages.shorten_hydras_errors,
    ),
}
#: The fixes that are in force in this process.
applied: set[Callable[[], None]] = set()


def apply_fixes(moment: str) -> None:
    """Apply the fixes of ``moment``, each only once.

    Raises:
        FixFailed: a fix does not fit the installed libraries.
    """
    for fix in FIXES.get(moment, ()):
        if fix in applied:
            continue
        try:
            fix()
        except (AttributeError, ImportError) as error:
            raise FixFailed(
                f"fairseq_compat: the fix '{fix.__name__}' does not fit fairseq "
                f"{installed_version('fairseq') or '(not installed)'} and hydra "
                f"{installed_version('hydra-core') or '(not installed)'}: {error}"
            ) from error
        applied.add(fix)
