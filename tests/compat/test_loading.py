"""The threads that load batches ahead end before the interpreter does."""

from __future__ import annotations

import pytest
from commands import succeed

SCRIPT = """
import atexit, itertools, sys
atexit.register(lambda: print("alive" if batches._consumer.is_alive() else "ended"))
from fairseq.data.iterators import BufferedIterator

class Endless:
    def __len__(self):
        return 10**9
    def __iter__(self):
        return itertools.count()

batches = BufferedIterator(2, Endless())
assert [next(batches), next(batches)] == [0, 1]
"""


@pytest.mark.slow
def test_the_thread_ends_before_the_interpreter() -> None:
    assert succeed("python", "-c", SCRIPT).splitlines()[0] == "ended"


@pytest.mark.slow
def test_without_the_fix_it_does_not() -> None:
    """On Python 3.11 and later nothing of fairseq can be imported without our fixes."""
    unpatched = SCRIPT.replace(
        "from fairseq.data.iterators",
        "from fairseq_compat import fix_table\n"
        "fix_table.FIXES = tuple(f for f in fix_table.FIXES if not f.name.startswith('batches'))\n"
        "from fairseq.data.iterators",
    )
    assert succeed("python", "-c", unpatched).splitlines()[0] == "alive"
