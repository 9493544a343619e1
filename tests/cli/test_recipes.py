"""What the recipes refuse, before they install or make anything."""

from __future__ import annotations

import subprocess

import pytest
from commands import REPOSITORY


@pytest.mark.parametrize(
    ("recipe", "arguments", "message"),
    [
        ("key_dim_table.sh", [], "DATASET is ''; it must be embedded, multi30k, tatoeba, iwslt14"),
        ("key_dim_table.sh", ["wmt15"], "DATASET is 'wmt15'; it must be embedded"),
        ("key_dim_table.sh", ["tatoeba"], "Give FROM=DIR with train, valid and test"),
        ("key_dim_table.sh", ["wmt14"], "where is Google's wmt16_en_de archive"),
    ],
)
def test_refusals(recipe: str, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        ["bash", REPOSITORY / "recipes" / recipe, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout
