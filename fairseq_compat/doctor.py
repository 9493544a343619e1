"""What is installed, what is patched and why, and what is wrong: for a broken environment.

Nothing here relies on fairseq or torch: both are imported on trial, last.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from collab_common.errors import UserError
from collab_common.processor import linear_maps

from . import is_switched_off, registry
from .registry import installed_version
from .search import SEARCHES, VARIABLE, choice

FAIRSEQ = "0.12.2"
INSTALL_FAIRSEQ = f"pip install --no-deps fairseq=={FAIRSEQ}"
REBUILD_FAIRSEQ = f"{INSTALL_FAIRSEQ} --force-reinstall --no-cache-dir"
DISTRIBUTIONS = (
    *("torch", "fairseq", "hydra-core", "omegaconf", "numpy", "sacrebleu", "sentencepiece"),
    *("tqdm", "bitarray", "regex"),
)
EXTENSIONS = ("libbleu", "data/data_utils_fast", "data/token_block_utils_fast")


class Problem(NamedTuple):
    """One thing that is wrong, in one line."""

    what: str
    where: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.remedy}"


def main(argv: list[str] | None = None, plugin: str | None = None) -> int:
    """Print the report; return 1 if something is wrong.

    Args:
        plugin: the --user-dir package of which a second copy would be in the way
    """
    argparse.ArgumentParser(
        prog="doctor", description="Check the installation: versions, fixes, problems."
    ).parse_args(argv)
    logging.disable(logging.INFO)  # fairseq's advice to install tensorboardX
    problems = [problem for check in CHECKS for problem in check()]
    problems += [*copies(plugin), *import_problems()]
    print_versions()
    print("\nFixes to the installed libraries, made in memory when they are imported:")
    for fix in registry.FIXES:
        print(f"  {state(fix):<11} {fix.name}: {fix.why}")
    print_problems(problems)
    return 1 if problems else 0


# What can be seen without importing anything that may be broken.


def python_version() -> Iterator[Problem]:
    """Python has to be one that the fixes were tried with."""
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        what = f"Python {platform.python_version()} is not supported"
        yield Problem(what, sys.executable, "make the environment with Python 3.10 to 3.13")


def missing_distributions() -> Iterator[Problem]:
    """Everything that training and translating import has to be there."""
    for name in DISTRIBUTIONS:
        if not installed_version(name):
            command = INSTALL_FAIRSEQ if name == "fairseq" else f"pip install {name}"
            yield Problem(f"{name} is not installed", sys.prefix, f"run `{command}`")


def versions_out_of_range() -> Iterator[Problem]:
    """Check the versions that have to fit each other."""
    fairseq, torch = installed_version("fairseq"), installed_version("torch")
    hydra, omegaconf = installed_version("hydra-core"), installed_version("omegaconf")
    if fairseq and fairseq != FAIRSEQ:
        what = f"fairseq {fairseq} instead of {FAIRSEQ}"
        yield Problem(what, sys.prefix, f"run `{INSTALL_FAIRSEQ}`")
    if torch and numbers(torch) < (2, 6):
        what = f"torch {torch} unpickles whatever a checkpoint holds"
        yield Problem(what, sys.prefix, "run `pip install 'torch>=2.6'`")
    if hydra and omegaconf and not hydra_fits(hydra, omegaconf):
        what = f"hydra-core {hydra} does not work with omegaconf {omegaconf}"
        yield Problem(what, sys.prefix, "run `pip install hydra-core==1.3.2 omegaconf==2.3.0`")


def numbers(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def hydra_fits(hydra: str, omegaconf: str) -> bool:
    """Hydra 1.0 reads omegaconf 2.0 only; 1.1 needs 2.1 or later, 1.2 and 1.3 need 2.2."""
    hydra_minor, found = numbers(hydra)[1], numbers(omegaconf)
    if hydra_minor == 0:
        return found == (2, 0)
    return (2, 1 if hydra_minor == 1 else 2) <= found < (2, 4)


def missing_extensions() -> Iterator[Problem]:
    """The three modules that fairseq's installation compiles have to be there."""
    folder = folder_of("fairseq")
    if folder is None:
        return
    for name in EXTENSIONS:
        if not any((folder / (name + suffix)).exists() for suffix in EXTENSION_SUFFIXES):
            what = f"fairseq's extension module {name} is not built for this Python"
            remedy = f"install a C++ compiler, then run `{REBUILD_FAIRSEQ}`"
            yield Problem(what, str(folder / name), remedy)


def folder_of(package: str) -> Path | None:
    """Return where a top-level package lies, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module without a spec has been put into sys.modules
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def hook() -> Iterator[Problem]:
    """A fresh interpreter has to load fairseq_compat by itself."""
    if is_switched_off():
        what = f"FAIRSEQ_COMPAT_OFF={os.environ['FAIRSEQ_COMPAT_OFF']} switches all fixes off"
        yield Problem(what, "environment", "run `unset FAIRSEQ_COMPAT_OFF`")
    command = [sys.executable, "-c", "import sys; sys.exit('fairseq_compat' not in sys.modules)"]
    if subprocess.run(command, capture_output=True, check=False).returncode == 0:
        return
    pth = Path(sysconfig.get_path("purelib"), "fairseq_compat.pth")
    yield Problem(
        "a new interpreter does not load the fixes, so fairseq's commands run without them",
        f"{pth} {'cannot import fairseq_compat' if pth.exists() else 'is missing'}",
        "install with pip into the environment itself, neither with --target nor by PYTHONPATH",
    )


def search_variable() -> Iterator[Problem]:
    """The variable that chooses the beam search has to have one of its values."""
    try:
        choice()
    except UserError as error:
        yield Problem(f"{VARIABLE} {error.what}", "environment", str(error.todo))


def copies(plugin: str | None) -> Iterator[Problem]:
    """Only one copy of the user-dir package may be in reach.

    fairseq takes a --user-dir for its last component: if a package of this name was imported
    from elsewhere, it stops with "not globally unique"; if not, it runs the other copy.
    """
    installed = folder_of(plugin) if plugin else None
    if plugin is None or installed is None:
        return
    folders = (Path(entry or os.curdir, plugin) for entry in [os.curdir, *sys.path])
    found = {folder.resolve() for folder in folders if (folder / "__init__.py").exists()}
    for other in sorted(found - {installed.resolve()}):
        what = f"a second {plugin} is in reach, beside {installed}"
        remedy = f"give --user-dir {installed}, or run `pip install -e {other.parent}`"
        yield Problem(what, str(other), remedy)


#: Versions, files and environment variables.
CHECKS = (
    *(python_version, missing_distributions, versions_out_of_range, missing_extensions),
    *(hook, search_variable),
)


# What only an attempt can tell.


def import_problems() -> Iterator[Problem]:
    """Import what is installed, torch first: fairseq cannot work without it."""
    for package in ("torch", "fairseq"):
        if folder_of(package) is None:
            return
        try:
            importlib.import_module(package)
        except Exception as error:  # whatever a broken installation raises is the finding
            lines = str(error).strip().splitlines() or [""]
            what = f"importing {package} fails with {type(error).__name__}: {lines[0]}"
            remedy = "mend what else is listed here; if nothing is, install it again"
            yield Problem(what, str(folder_of(package)), remedy)
            return


# The report.


def print_versions() -> None:
    """Print the versions of everything that matters, and the hardware."""
    rows = {"python": f"{platform.python_version()}  {sys.executable}"}
    rows |= {name: installed_version(name) or "not installed" for name in DISTRIBUTIONS}
    rows["devices"] = devices()
    rows["linear maps"] = linear_maps()
    rows["search"] = of_search()
    rows["compiler"] = compiler() or "none (needed only to install fairseq)"
    for name, value in rows.items():
        print(f"{name:<14} {value}")


def devices() -> str:
    """Name what torch can compute on."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):
        return f"cpu ({os.cpu_count()} cores); torch could not be asked for more"
    names = [f"cpu ({os.cpu_count()} cores, {torch.get_num_threads()} threads)"]
    for index in range(torch.cuda.device_count()):
        names.append(f"cuda:{index} ({torch.cuda.get_device_name(index)})")
    if torch.backends.mps.is_available():
        names.append("mps")
    return ", ".join(names)


def of_search() -> str:
    """Say whose beam search translates with models of ours."""
    exact, fairseq = SEARCHES
    if os.environ.get(VARIABLE) == fairseq:
        return f"fairseq's, as {VARIABLE}={fairseq} says"
    return f"{exact}, of models that have one ({VARIABLE}={fairseq}: fairseq's own)"


def compiler() -> str | None:
    """Return the path of the C++ compiler that would build fairseq."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((path for path in map(shutil.which, candidates) if path), None)


def state(fix: registry.Fix) -> str:
    """Say in two words what became of a fix in this process."""
    if registry.is_applied(fix):
        return "active"
    return "not active" if fix.applies() else "not needed"


def print_problems(problems: list[Problem]) -> None:
    """Print each problem in a line of its own, or that there is none."""
    if not problems:
        print("\nNo problem found.")
        return
    print(f"\n{len(problems)} problem{'s' if len(problems) > 1 else ''} found:")
    for problem in problems:
        print(f"  WRONG {problem}")


if __name__ == "__main__":
    sys.exit(main())
