"""The import hook: loaded by every interpreter, cheap, and active only when it is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fairseq_compat

IS_HOOKED = "import sys; print('Finder' in [getattr(f, '__name__', '') for f in sys.meta_path])"


def modules_loaded_by(python, *arguments):
    """Return the modules that `python -X importtime ARGUMENTS` imports."""
    done = python.run("-X", "importtime", *arguments)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"\|\s+([\w.]+)$", done.stderr, re.MULTILINE))


def test_start_up_imports_nothing_but_the_hook(python):
    """What costs time at start-up is importing: there is one small module to import."""
    # -S leaves out site, and with it every .pth file; importing site brings the rest back.
    # Not isolated, as below: PYTHONWARNINGS, if it is set, loads a module.
    bare = modules_loaded_by(python, "-S", "-c", "import os")
    ours = {name for name in modules_loaded_by(python, "-I", "-c", "pass") if "fairseq" in name}
    alone = modules_loaded_by(
        python,
        "-S",
        "-c",
        f"import os, sys; sys.path.append({str(Path(fairseq_compat.__file__).parents[1])!r});"
        "import fairseq_compat",
    )
    assert ours == {"fairseq_compat"}
    assert alone - bare == {"fairseq_compat"}


@pytest.mark.parametrize(("off", "hooked"), [("", True), ("0", True), ("1", False), ("yes", False)])
def test_every_interpreter_is_hooked_unless_the_environment_switches_it_off(python, off, hooked):
    assert python.output("-c", IS_HOOKED, FAIRSEQ_COMPAT_OFF=off) == f"{hooked}\n"


def test_without_pth_file_importing_the_package_installs_it(python, repository):
    """As after `pip install --target`, where no .pth file is read."""
    code = (
        f"import sys; sys.path.append({str(repository)!r}); import fairseq_compat;"
        "print(sys.meta_path[0] is fairseq_compat.Finder)"
    )
    assert python.output("-S", "-c", code) == "True\n"


def fake_libraries(folder):
    """Write stand-ins for the watched packages, which tell what was applied before them."""
    for name, imports in (("omegaconf", ""), ("hydra", "import omegaconf"), ("fairseq", "")):
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            f"{imports}\nfrom fairseq_compat_log import log\nlog.append('run {name}')\n"
        )
    (folder / "fairseq_compat_log.py").write_text("log = []\n")


WATCH = """
import sys
sys.path.insert(0, {path!r})
from fairseq_compat import fix_table
from fairseq_compat_log import log
fix_table.apply_fixes = lambda moment: log.append(moment)
"""


def test_fixes_come_before_and_after_each_watched_import(python, tmp_path):
    fake_libraries(tmp_path)
    code = WATCH.format(path=str(tmp_path)) + "import hydra, fairseq; print(*log, sep='; ')"
    assert python.output("-c", code).strip().split("; ") == [
        *("start", "before", "start", "before", "run omegaconf", "omegaconf", "run hydra"),
        *("hydra", "start", "before", "run fairseq", "fairseq"),
    ]


def test_a_missing_fairseq_stays_a_plain_import_error(python, tmp_path):
    """Programs probe for packages with find_spec, which must go on to return None."""
    code = (
        f"import sys; sys.path = [{str(Path(fairseq_compat.__file__).parents[1])!r}] + "
        "[p for p in sys.path if 'site-packages' not in p]\n"
        "import importlib.util; print(importlib.util.find_spec('fairseq'))\n"
        "import fairseq_compat\n"
        "try: fairseq_compat.require_fairseq()\n"
        "except Exception as error: print(error)"
    )
    assert python.output("-I", "-c", code).splitlines() == [
        "None",
        "fairseq is not installed; run `pip install --no-deps fairseq==0.12.2`",
    ]


def test_a_fairseq_imported_earlier_is_mended_at_once(python, tmp_path, repository):
    fake_libraries(tmp_path)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(repository)!r}]\n"
        "import fairseq\n"
        "from fairseq_compat_log import log\n"
        "import fairseq_compat\n"
        "from fairseq_compat import fix_table\n"
        "fix_table.apply_fixes = log.append\n"
        "fairseq_compat.install(); print(log)"
    )
    done = python.output("-c", code, FAIRSEQ_COMPAT_OFF="1").strip()
    assert done == "['run fairseq', 'start', 'before', 'fairseq']"
