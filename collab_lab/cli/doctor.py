"""``fairseq-collab doctor``: check an installation and this plug-in's compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_compat import doctor


def main(argv: Sequence[str]) -> int:
    return doctor.main([*argv], {"rounded caches": kernel})


def kernel() -> str:
    """A line that says whether the kernel for rounded caches is compiled."""
    from fairseq_collab.cpu_kernels.rounded import in_use

    return in_use()
