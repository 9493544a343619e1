"""Options that make no sense: argparse's status and its message, before anything is read."""

from __future__ import annotations

import shlex

import pytest
from refusals import wrong_usage

from collab_lab.bench import PRESETS
from collab_lab.cli import bench
from collab_lab.cli.main import main

#: By command: options, and what is said of them.
USAGE: dict[str, list[tuple[str, str]]] = {
    "average --out out.pt": [
        ("", "the following arguments are required: checkpoints"),
        (". --last 0", "argument --last: must be a whole number above 0, not '0'"),
        ("a b --last 2", "argument --last: needs one folder"),
    ],
    "data prepare --text t --out o --source-lang en --target-lang de": [
        ("--allow-loss nan", "number from 0 to 1, not 'nan'"),
        ("--allow-loss 5", "number from 0 to 1, not '5'"),
        ("--like d --vocab-size 9", "--vocab-size has no effect with --like"),
        ("--like d --subwords subword_nmt", "--subwords has no effect with --like"),
    ],
    "heads c.pt data --out=out": [
        ("--subwords=code", "--subwords needs --conllu"),
        ("--relevance-sentences=x", "argument --relevance-sentences: must be a"),
    ],
    "prune c.pt --out=o.pt": [
        ("", "give a number of heads: --remove-share, --as-many-as or --keep"),
        ("--random=1", "give a number of heads"),
        ("--gates --keep=1", "--keep needs a choice by price or --random"),
        ("--random=1 --keep=1,2,3", "must be a whole number above 0, not '1,2,3'"),
        ("--random=1 --keep=1 --as-many-as=x.pt", "not allowed with argument"),
        ("--gates --random=1", "not allowed with argument"),
        ("--keep=1 --remove-share=0", "not allowed with argument"),
        ("--remove-share=1.1", "must be a number from 0 to 1, not '1.1'"),
    ],
    "reparametrize c.pt --out=out.pt": [
        ("", "and sizes (--key-dim or --key-dim-in-TYPE)"),
        ("--cache=0.5 --key-dim=4", "give one of --cache, --parameters, and sizes"),
        ("--cache=1.5", "must be a number from 0 to 1, not '1.5'"),
        ("--latent-dim=4", "--latent-dim needs --to latent"),
        ("--to=headsize --key-dim-in-cross=4", "does not go with --to headsize: give --key-dim"),
        ("--key-dim=4 --sentences=0", "must be a whole number above 0, not '0'"),
    ],
    "reparametrize c.pt --out=out.pt --to=latent": [
        ("", "and sizes (--latent-dim or --latent-dim-in-TYPE)"),
        ("--key-value-heads-in-cross=2", "--key-value-heads-in-cross needs --to grouped-query"),
        ("--latent-dim=4 --value-heads=2", "--value-heads needs --to collab"),
        ("--latent-dim=4 --query-mixing=full", "--query-mixing needs --to collab"),
    ],
}
CASES = [(command, *case) for command, cases in USAGE.items() for case in cases]


@pytest.mark.parametrize(("command", "given", "message"), CASES)
def test_usage(command: str, given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys, message):
        main(shlex.split(f"{command} {given}"))


def test_presets_of_the_bench() -> None:
    """The parser names them without their table, whose module imports torch."""
    assert {*bench.PRESETS} == {*PRESETS}
