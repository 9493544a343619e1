"""Every supported Python, with today's Hydra and with the one that fairseq pins.

torch is not installed here: it is large, and it has no wheels for every interpreter. A
stand-in takes its place, so that what is shown is: fairseq builds, all of its modules and
all fixes load, Hydra composes its configuration and runs a sweep. `test_commands.py` trains.

Run by recipes/test_matrix.sh; takes minutes, and pip downloads small packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from interpreters import Interpreter, find_interpreter, succeeded

pytestmark = pytest.mark.matrix

STAND_IN = Path(__file__).with_name("stand_in")
SWEEP = Path(__file__).with_name("sweep.py")
MODEL = ("task=translation", "task.data=x", "model=transformer_lm/transformer_lm_gpt")


class Stack(NamedTuple):
    """Versions that belong together."""

    pip: str
    hydra: tuple[str, str]


STACKS = {
    "today": Stack("pip", ("hydra-core==1.3.2", "omegaconf==2.3.0")),
    "as-pinned-by-fairseq": Stack("pip==23.2", ("hydra-core==1.0.7", "omegaconf==2.0.6")),
}
# What fairseq imports on the way to its commands, beside torch and Hydra.
SMALL = ("numpy", "sacrebleu", "regex", "bitarray", "tqdm", "sentencepiece")


@pytest.fixture(scope="module", params=STACKS)
def stack(request):
    return STACKS[request.param]


@pytest.fixture(scope="module", params=[10, 11, 12, 13], ids="3.{}".format)
def environment(request, stack, wheel, tmp_path_factory):
    """An environment with everything but torch."""
    interpreter = find_interpreter(request.param)
    if interpreter is None:
        pytest.skip(f"there is no Python 3.{request.param} on this machine")
    folder = tmp_path_factory.mktemp("env")
    succeeded(Interpreter(interpreter).run("-m", "venv", folder))
    python = Interpreter(folder / "bin" / "python")
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    python.output(*install, "--upgrade", stack.pip)
    python.output(*install, *SMALL, *stack.hydra)
    python.output(*install, "--no-deps", "fairseq==0.12.2")
    python.output(*install, "--no-deps", wheel)
    return python


def minor(python):
    return int(python.output("-c", "import sys; print(sys.version_info[1])"))


def test_fairseq_is_importable_thanks_to_the_fixes(environment):
    code = (
        "import fairseq, fairseq_cli.train, fairseq_cli.generate, fairseq_cli.preprocess\n"
        "from fairseq_compat import registry\n"
        "print([f.name for f in registry.FIXES if registry.is_applied(f) != f.applies()])"
    )
    assert environment.output("-c", code, PYTHONPATH=str(STAND_IN)) == "[]\n"
    without = environment.run("-c", code, PYTHONPATH=str(STAND_IN), FAIRSEQ_COMPAT_OFF="1")
    if minor(environment) >= 11:
        assert "mutable default" in without.stderr


def run_sweep(environment, tmp_path, *overrides):
    return environment.run(
        *("-W", "ignore", SWEEP, *overrides, *MODEL), cwd=tmp_path, PYTHONPATH=str(STAND_IN)
    )


def test_a_sweep_runs_every_job(environment, tmp_path):
    done = succeeded(run_sweep(environment, tmp_path, "-m", "dataset.max_tokens=1,2"))
    assert [line for line in done.stdout.splitlines() if line.startswith("job")] == [
        "job 1",
        "job 2",
    ]


def test_the_reason_of_a_failure_is_reported(environment, tmp_path):
    done = run_sweep(environment, tmp_path, "dataset.max_tokens=3")
    assert done.returncode == 1
    assert "RuntimeError: the real reason" in done.stderr


def test_doctor_misses_nothing_but_torch(environment):
    done = environment.run_script("fairseq-collab", "doctor")
    assert done.returncode == 1
    assert "1 problem found:\n  WRONG torch is not installed" in done.stdout, done.stdout


def test_start_up_imports_nothing_but_the_hook(environment):
    done = environment.run("-X", "importtime", "-c", "pass")
    assert [line for line in done.stderr.splitlines() if "fairseq_compat." in line] == []
    assert "fairseq_compat" in done.stderr
