"""Options that make no sense: argparse's status, before anything is read."""

from __future__ import annotations

import shlex

import pytest
from refusals import wrong_usage

from collab_lab.bench import PRESETS
from collab_lab.cli import bench
from collab_lab.cli.main import main

#: By command: options of which one is wrong, or missing.
USAGE = {
    "bench": ["--presets huge", "--lengths 9 --presets tiny"],
    "average --out out.pt": ["", ". --last 0", "a b --last 2"],
    "data prepare --text t --out o --source-lang en --target-lang de": [
        "--allow-loss nan", "--allow-loss 5", "--like d --vocab-size 9",
        "--like d --subwords subword_nmt",
    ],
    "heads c.pt data --out=out": ["--subwords=code", "--relevance-sentences=x"],
    "prune c.pt --out=o.pt": [
        "", "--random=1", "--gates --keep=1", "--random=1 --keep=1,2,3", "--gates --random=1",
        "--random=1 --keep=1 --as-many-as=x.pt", "--keep=1 --remove-share=0",
        "--remove-share=1.1",
    ],
    "reparametrize c.pt --out=out.pt": [
        "", "--cache=0.5 --key-dim=4", "--cache=1.5", "--latent-dim=4",
        "--to=headsize --key-dim-in-cross=4", "--key-dim=4 --sentences=0",
    ],
    "reparametrize c.pt --out=out.pt --to=latent": [
        "", "--key-value-heads-in-cross=2", "--latent-dim=4 --value-heads=2",
        "--latent-dim=4 --query-mixing=full",
    ],
}  # fmt: skip
CASES = [f"{command} {given}" for command, cases in USAGE.items() for given in cases]


@pytest.mark.parametrize("command", CASES)
def test_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys):
        main(shlex.split(command))


def test_presets_of_the_bench() -> None:
    """The parser names them without their table, whose module imports torch."""
    assert {*bench.PRESETS} == {*PRESETS}
