"""``fairseq-collab doctor``: versions, fixes, and what is wrong with a broken installation."""

from __future__ import annotations

import importlib
import itertools
import logging
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

from collab_common.command import Parser
from collab_common.errors import UserError
from collab_common.provenance import hardware

from . import fix_table, is_switched_off
from .fix_table import installed_version

FAIRSEQ = "0.12.2"
INSTALL = f"pip install --no-deps fairseq=={FAIRSEQ}"
LIBRARIES = ("torch", "fairseq", "hydra-core", "omegaconf", "numpy", "sacrebleu", "sentencepiece")
#: Modules whose import is tried; the last three are compiled when fairseq is installed.
MODULES = ["torch", "fairseq", "fairseq.libbleu"]
MODULES += ["fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast"]


def main(argv: list[str] | None = None, more: Mapping[str, Callable[[], str]] | None = None) -> int:
    """Print versions, fixes and problems; return 1 if there is a problem.

    Args:
        more: further lines by their names, from a package that builds on this one; they are
            computed only if there is no problem.
    """
    Parser(prog="fairseq-collab doctor", description="Check the installation.").parse_args(argv)
    logging.disable(logging.INFO)  # fairseq's advice to install tensorboardX
    found = [*problems()]
    print(f"{'python':<14} {platform.python_version()}  {sys.executable}")
    for name in LIBRARIES:
        print(f"{name:<14} {installed_version(name) or 'not installed'}")
    print(f"{'device':<14} {hardware(cpu=False) if 'torch' in sys.modules else 'unknown'}")
    for name, say in (more or {}).items() if not found else ():  # it may need fairseq, fixed
        print(f"{name:<14} {say()}")
    print("\nFaults of the installed libraries, fixed in memory when they are imported:")
    for fix in itertools.chain(*fix_table.FIXES.values()):
        state = "active" if fix in fix_table.applied else "not active"
        print(f"  {state:<11} {str(fix.__doc__).splitlines()[0]}")
    print(
        "", *(f"WRONG {problem}" for problem in found) if found else ["No problem found."], sep="\n"
    )
    return 1 if found else 0


def problems() -> Iterator[UserError]:
    """Yield each problem with its remedy; of several failing imports, only the first one."""
    version = installed_version("fairseq")
    if version and version != FAIRSEQ:
        yield UserError(f"fairseq {version} instead of {FAIRSEQ}", sys.prefix, f"run `{INSTALL}`")
    if is_switched_off():
        todo = "run `unset FAIRSEQ_COMPAT_OFF`"
        yield UserError("switches all fixes off", "FAIRSEQ_COMPAT_OFF", todo)
    hook = [sys.executable, "-c", "import sys; sys.exit('fairseq_compat' not in sys.modules)"]
    if subprocess.run(hook, capture_output=True, check=False).returncode:
        problem = "a new interpreter does not load the fixes, nor do fairseq's commands"
        todo = "install with pip into the environment itself, neither with --target nor PYTHONPATH"
        yield UserError(problem, sys.prefix, todo)
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception as error:  # of any type: a broken installation is the finding
            lines = str(error).strip().splitlines() or [""]
            todo = f"run `{INSTALL}`" if not version else "install what is missing"
            if module.startswith("fairseq."):
                todo = "install a C++ compiler and Python's headers, then run "
                todo += f"`{INSTALL} --force-reinstall --no-cache-dir`"
            yield UserError(f"import fails with {type(error).__name__}: {lines[0]}", module, todo)
            return


if __name__ == "__main__":
    sys.exit(main())
