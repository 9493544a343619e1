"""What results depend on beside their input, for whoever writes them down."""

from __future__ import annotations

import datetime
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path


def commit() -> str | None:
    """The project's git commit, marked where files differ from it; None outside git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:  # git is not installed, so this is no clone
        return None
    return described.stdout.strip() or None


def processor() -> str:
    """The processor's name."""
    cpuinfo = Path("/proc/cpuinfo")  # Linux; Python itself knows only the architecture there
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^model name\s*: *(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def today() -> str:
    """The date, by UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
