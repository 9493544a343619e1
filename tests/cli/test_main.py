"""``fairseq-collab`` itself, before any of its commands."""

from __future__ import annotations

from commands import REPOSITORY, run_command


def test_fairseqs_advice_on_speech_is_not_passed_on() -> None:
    """tensorboardX is for a task that translation never uses."""
    # As a module of this folder: an editable installation has a copy of its own.
    done = run_command("python", "-m", "collab_common.main", "cost", "--help", cwd=REPOSITORY)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: fairseq-collab cost")
    assert done.stderr == ""
