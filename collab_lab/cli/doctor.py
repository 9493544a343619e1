"""``fairseq-collab doctor``: what is wrong with an installation, and this plug-in's kernel."""

from __future__ import annotations

from collections.abc import Sequence

from fairseq_compat import doctor


def main(argv: Sequence[str]) -> int:
    return doctor.main([*argv], {"rounded caches": kernel})


def kernel() -> str:
    """Whether rounded caches have their compiled kernel."""
    from fairseq_collab.cpu_kernels.rounded import in_use

    return in_use()
