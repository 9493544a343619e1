"""README, docs, results and the recipes' headers: commands parse, links lead somewhere."""

from __future__ import annotations

import ast
import re
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from commands import REPOSITORY
from commands_page import PAGE, text
from documents import PAGES, anchors, blocks, commands_of, links
from fairseq import options
from parsers import parser_of

from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.runs import sweep

pytestmark = pytest.mark.filterwarnings("ignore")  # of Hydra, argparse and fairseq

FAIRSEQS: dict[str, Any] = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": options.get_interactive_generation_parser,
}
#: Configurations that pages show, by the file that their first line names.
SHOWN = {text.split()[1]: text for page in PAGES.values() for text in blocks(page, "yaml")}
SCRIPTS = {name: "\n".join(blocks(page, "bash")) for name, page in PAGES.items()}
for recipe in (REPOSITORY / "recipes").glob("*.sh"):
    usage = re.findall(
        r"^#   ((?:[A-Z]+=\S+ )*bash recipes/.*?)(?:  .*)?$", recipe.read_text(), re.M
    )
    SCRIPTS[recipe.name] = "\n".join(usage)


@pytest.mark.slow
@pytest.mark.parametrize("where", SCRIPTS)
def test_commands_parse(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # paths in commands, and --user-dir
    every = sweep.combinations
    monkeypatch.setattr(sweep, "combinations", lambda words: list(islice(every(words), 1)))
    for name, *words in commands_of(SCRIPTS[where]):
        if name == "fairseq-collab" and words[0] != "configs":
            width = 2 if words[0] == "data" else 1
            found = parser_of(" ".join(words[:width]))[1](words[width:])
            if words[0] == "sweep":
                # A model is still to be made.
                fixed = [o for o in found.overrides if not o.startswith(("hydra.", "model=choice"))]
                config = found.config
                if config.name in SHOWN:
                    config = tmp_path / config.name
                    config.write_text(SHOWN[config.name])
                assert sweep.plan(config, fixed)
        elif name in FAIRSEQS:
            words = [word for word in words if word != "..."]
            words += ["--arch=transformer"] * (name == "fairseq-train" and "--arch" not in words)
            monkeypatch.setattr(sys, "argv", [name, *words])  # get_parser looks for --user-dir
            options.parse_args_and_arch(FAIRSEQS[name]())
        elif name == "python" and words[0].endswith("/translate.py"):
            pass  # of an exported folder: test_onnx.py runs it
        elif name in ("bash", "python"):
            assert Path(words[0]).exists()


@pytest.mark.parametrize("where", PAGES)
def test_translations_on_pages_may_be_as_long_as_ours(where: str) -> None:
    """fairseq's own limit of 200 tokens cuts documents."""
    for name, *words in commands_of(SCRIPTS[where]):
        if name in ("fairseq-generate", "fairseq-interactive"):
            limit = {option: float(words[words.index(f"--{option.replace('_', '-')}") + 1])
                     for option in LENGTH_LIMIT}  # fmt: skip
            assert limit == LENGTH_LIMIT


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for link in links(PAGES[name]):
        file, _, anchor = link.partition("#")
        target = (PAGES[name].parent / file).resolve() if file else PAGES[name]
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_page_of_commands_is_that_of_the_parsers() -> None:
    assert PAGE.read_text() == text(), "run python tests/commands_page.py"


@pytest.mark.slow
def test_python_on_pages() -> None:
    """Imports what exists; code below a line ``<!-- FILE -->`` is in the file, but for ``...``."""
    for page in PAGES.values():
        marked = r"^(?:<!-- (\S+) -->\n)?```python\n(.*?)^```$"
        for file, code in re.findall(marked, page.read_text(), re.M | re.S):
            if file:
                parts = re.split(r"^ *\.\.\.\n", code, flags=re.M)
                assert all(part.strip("\n") in (REPOSITORY / file).read_text() for part in parts)
                continue
            for node in ast.walk(ast.parse(code, page.name)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    exec(ast.unparse(node), {})
