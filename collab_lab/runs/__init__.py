"""Runs: a folder for each training of a sweep, with its configuration, log and scores."""

from __future__ import annotations

from pathlib import Path


def config_folder() -> Path:
    """Find the folder of Hydra configurations (--config-dir): in the wheel, or the checkout's."""
    installed = Path(__file__).resolve().parents[1] / "configs"
    return installed if installed.is_dir() else installed.parents[1] / "configs"
