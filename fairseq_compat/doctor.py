"""``fairseq-collab doctor``: versions, fixes and problems, of broken installations, too.

fairseq and torch are imported on trial, last.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from collab_common.provenance import MATMUL_ENV, hardware

from . import fix_table, is_switched_off
from .fairseq_fixes import SEARCH_ENV, SEARCHES
from .fix_table import installed_version

FAIRSEQ = "0.12.2"
INSTALL_FAIRSEQ = f"pip install --no-deps fairseq=={FAIRSEQ}"
REBUILD_FAIRSEQ = f"{INSTALL_FAIRSEQ} --force-reinstall --no-cache-dir"
#: What training and translating import, with the lowest version that works.
DISTRIBUTIONS = {
    "torch": (2, 6),
    "fairseq": (0, 12),
    "hydra-core": (1, 3),
    "omegaconf": (2, 3),
    "numpy": (1, 0),
    "sacrebleu": (2, 0),
    "sentencepiece": (0, 1),
    "tqdm": (0, 0),
    "bitarray": (0, 0),
    "regex": (0, 0),
}
EXTENSIONS = ("libbleu", "data/data_utils_fast", "data/token_block_utils_fast")


class Problem(NamedTuple):
    """One thing that is wrong, in one line."""

    message: str
    where: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.message} ({self.where}): {self.remedy}"


def main(argv: list[str] | None = None) -> int:
    """Print the report; return 1 if something is wrong."""
    argparse.ArgumentParser(
        prog="fairseq-collab doctor", description="Check the installation."
    ).parse_args(argv)
    logging.disable(logging.INFO)  # fairseq's advice to install tensorboardX
    problems = [problem for check in CHECKS for problem in check()]
    problems += import_problems()
    print_versions()
    print("\nFixes to the installed libraries, made in memory when they are imported:")
    for fix in fix_table.FIXES:
        state = "active" if fix_table.is_applied(fix) else "not active"
        print(f"  {state:<11} {fix.name}: {fix.fault}")
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)} found:"
    print("\n" + (count if problems else "No problem found."))
    for problem in problems:
        print(f"  WRONG {problem}")
    return 1 if problems else 0


# ---- checks that import nothing ------------------------------------------------------------------


def distributions() -> Iterator[Problem]:
    """Every library must be there, in a version that works with the others."""
    for name, lowest in DISTRIBUTIONS.items():
        version = installed_version(name)
        command = INSTALL_FAIRSEQ if name == "fairseq" else f"pip install {name}"
        if not version:
            yield Problem(f"{name} is not installed", sys.prefix, f"run `{command}`")
        elif major_minor(version) < lowest or (name == "fairseq" and version != FAIRSEQ):
            needed = FAIRSEQ if name == "fairseq" else f"{lowest[0]}.{lowest[1]} or later"
            problem = f"{name} {version} instead of {needed}"
            command = command.replace("install", "install --upgrade")
            yield Problem(problem, sys.prefix, f"run `{command}`")


def major_minor(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version: major, minor."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def missing_extensions() -> Iterator[Problem]:
    """fairseq's installation compiles three modules."""
    folder = folder_of("fairseq")
    for name in EXTENSIONS if folder else ():
        if not any(Path(folder or "", name + suffix).exists() for suffix in EXTENSION_SUFFIXES):
            problem = f"fairseq's extension module {name} is not built for this Python"
            remedy = f"install a C++ compiler, then run `{REBUILD_FAIRSEQ}`"
            yield Problem(problem, f"{folder}/{name}", remedy)


def folder_of(package: str) -> Path | None:
    """Return where a top-level package lies, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module without a spec has been put into sys.modules
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def hook() -> Iterator[Problem]:
    """A fresh interpreter must load fairseq_compat by itself."""
    if is_switched_off():
        problem = f"FAIRSEQ_COMPAT_OFF={os.environ['FAIRSEQ_COMPAT_OFF']} switches all fixes off"
        yield Problem(problem, "environment", "run `unset FAIRSEQ_COMPAT_OFF`")
    command = [sys.executable, "-c", "import sys; sys.exit('fairseq_compat' not in sys.modules)"]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return
    pth = Path(sysconfig.get_path("purelib"), "fairseq_compat.pth")
    yield Problem(
        "a new interpreter does not load the fixes, so fairseq's commands run without them",
        f"{pth} {'cannot import fairseq_compat' if pth.exists() else 'is missing'}",
        "install with pip into the environment itself, neither with --target nor by PYTHONPATH",
    )


CHECKS = (distributions, missing_extensions, hook)


def import_problems() -> Iterator[Problem]:
    """Import torch, then fairseq, which needs it."""
    for package in ("torch", "fairseq"):
        if folder_of(package) is None:
            return
        try:
            importlib.import_module(package)
        except Exception as error:  # of any type: a broken installation is the finding
            lines = str(error).strip().splitlines() or [""]
            problem = f"importing {package} fails with {type(error).__name__}: {lines[0]}"
            remedy = "fix the other problems of this list; if there are none, install it again"
            yield Problem(problem, str(folder_of(package)), remedy)
            return


# ---- the report ----------------------------------------------------------------------------------


def print_versions() -> None:
    """Print the versions of everything that matters, and the hardware."""
    rows = {"python": f"{platform.python_version()}  {sys.executable}"}
    rows |= {name: installed_version(name) or "not installed" for name in DISTRIBUTIONS}
    rows["device"] = hardware(cpu=False) if "torch" in sys.modules else "unknown"
    rows["linear maps"] = f"{os.environ.get(MATMUL_ENV) or 'by processor'} ({MATMUL_ENV})"
    rows["search"] = (
        f"{os.environ.get(SEARCH_ENV) or SEARCHES[0]} ({SEARCH_ENV}: {' or '.join(SEARCHES)})"
    )
    for name, value in rows.items():
        print(f"{name:<14} {value}")


if __name__ == "__main__":
    sys.exit(main())
