"""The copy task of the tests of commands stands in for every corpus."""

from __future__ import annotations

from cli.conftest import data, monolingual  # noqa: F401  (fixtures, which pytest finds by name)
