"""README, docs, results and the recipes' headers: commands parse, links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from command_checks import Wrong, check, options_of
from commands import REPOSITORY
from commands_page import PAGE, text
from documents import (
    PAGES,
    RECIPES,
    anchors,
    blocks,
    code_spans,
    commands_of,
    links,
    name_of,
    usage_lines,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of Hydra, argparse and fairseq

BLOCKS = [block for page in PAGES for block in blocks(page)]
SCRIPTS = {
    **{block.where: block.text for block in BLOCKS if block.language == "bash"},
    **{recipe.name: "\n".join(usage_lines(recipe)) for recipe in RECIPES},
}


@pytest.mark.parametrize("where", SCRIPTS)
def test_commands_parse(where: str, tmp_path: Path) -> None:
    wrong = []
    for command in commands_of(SCRIPTS[where], tmp_path):
        try:
            check(command)
        except Wrong as error:
            wrong.append(f"{' '.join(command.words)}\n    {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_the_text(page: Path) -> None:
    """``fairseq-collab NAME --option``, where arguments may be missing; recipes."""
    for span in code_spans(page):
        name = re.match(r"fairseq-collab ((?:data )?[a-z0-9-]+)", span)
        if name and name[1] != "configs":
            assert set(re.findall(r"(?<= )--[a-z][\w-]*", span)) <= options_of(name[1]), span
        for recipe in re.findall(r"recipes/\w+\.sh", span):
            assert (REPOSITORY / recipe).is_file(), span


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_page_of_commands_is_that_of_the_parsers() -> None:
    assert PAGE.read_text() == text(), "run python tests/commands_page.py"


def test_python_on_pages() -> None:
    """Imports what exists; code below a line ``<!-- FILE -->`` is in the file, but for ``...``."""
    for page in PAGES:
        marked = r"^(?:<!-- (\S+) -->\n)?```python\n(.*?)^```$"
        for file, code in re.findall(marked, page.read_text(), re.M | re.S):
            if not file:
                for node in ast.walk(ast.parse(code, page.name)):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        exec(ast.unparse(node), {})
                continue
            rest = (REPOSITORY / file).read_text()
            for part in re.split(r"^ *\.\.\.\n", code, flags=re.M):
                assert part.strip("\n") in rest, f"not in {file}, or not in this order:\n{part}"
                rest = rest.partition(part.strip("\n"))[2]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("fairseq-collab tabel runs", "no command fairseq-collab tabel"),
        ("fairseq-collab table runs --xx key_dim", "unrecognized arguments: --xx key_dim"),
        ("fairseq-collab sweep configs/none.yaml", "there is no configs/none.yaml"),
        ("fairseq-train data --user-dir fairseq_collab --arch transformer_colab", "invalid choice"),
        ("python examples/minilm.py STSB --sett test", "knows no --sett"),
        ("bash recipes/none.sh", "there is no recipes/none.sh"),
        ("FRM=DIR bash recipes/demo.sh", "reads no FRM"),
        ("fairseq-collab sweep my_sweep.yaml model.head_sizes=8", "did you mean model."),
        ("bash recipes/iwslt14.sh --pear en-de", "--pear: unknown option"),
    ],
)
def test_a_mistake_is_noticed(script: str, complaint: str, tmp_path: Path) -> None:
    (command,) = commands_of(script, tmp_path)
    with pytest.raises(Wrong, match=f"(?i){re.escape(complaint)}"):
        check(command)
