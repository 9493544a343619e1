"""README, docs, results and the recipes' headers: commands parse, links lead somewhere."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import REPOSITORY
from commands_page import PAGE, text
from documents import PAGES, anchors, blocks, commands_of, links, name_of
from fairseq import options
from fairseq.dataclass.initialize import hydra_init
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from parsers import parser_of

from collab_lab.runs.sweep import combinations, complete

pytestmark = pytest.mark.filterwarnings("ignore")  # of Hydra, argparse and fairseq

#: Programs of others, whose options are not looked at.
OTHERS = ("mkdir", "pip", "pre-commit", "source", "torchrun", "export")
FAIRSEQS: dict[str, Any] = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": options.get_interactive_generation_parser,
}
BLOCKS = [block for page in PAGES for block in blocks(page)]
#: Configurations that pages show, by the file that their first line names.
SHOWN = {block.text.split()[1]: block.text for block in BLOCKS if block.language == "yaml"}
SCRIPTS = {block.where: block.text for block in BLOCKS if block.language == "bash"}
USAGE = re.compile(r"^#   ((?:[A-Z]+=\S+ )*bash recipes/.*?)(?:  .*)?$", re.M)
for recipe in (REPOSITORY / "recipes").glob("*.sh"):
    SCRIPTS[recipe.name] = "\n".join(USAGE.findall(recipe.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("where", SCRIPTS)
def test_commands_parse(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # paths in commands, and --user-dir
    for variables, (name, *words) in commands_of(SCRIPTS[where]):
        if name == "bash":
            code = Path(words[0]).read_text() + Path("recipes/common.sh").read_text()
            assert all(one in code or one.startswith("CUDA") for one in variables), variables
        elif name == "fairseq-collab" and words[0] != "configs":
            width = 2 if words[0] == "data" else 1
            found = parser_of(" ".join(words[:width]))[1](words[width:])
            if words[0] == "sweep":
                composed(found.config, found.overrides, tmp_path)
        elif name == "fairseq-hydra-train":
            overrides = [word for word in words if "=" in word]
            composed(f"configs/{words[words.index('--config-name') + 1]}.yaml", overrides, tmp_path)
        elif name in FAIRSEQS:
            words = [word for word in words if word != "..."]
            words += ["--arch=transformer"] * (name == "fairseq-train" and "--arch" not in words)
            monkeypatch.setattr(sys, "argv", [name, *words])  # get_parser looks for --user-dir
            options.parse_args_and_arch(FAIRSEQS[name]())
        elif name == "python":
            code = Path(words[0]).read_text()
            assert all(f'"{word}"' in code for word in words[1:] if word.startswith("--"))
        else:
            assert name in ("fairseq-collab", *OTHERS), name


def composed(config: str | Path, overrides: list[str], folder: Path) -> None:
    """Compose the first run of a configuration; it may be one that a page shows."""
    config = Path(config)
    if any(word.startswith("hydra.searchpath=") for word in overrides):  # a model to be made
        overrides = [word for word in overrides if not word.startswith(("hydra.", "model="))]
    if config.name in SHOWN:
        whole = yaml.safe_load(SHOWN[config.name])
        varied = whole.pop("hydra")["sweeper"]["params"]
        overrides = [*(f"{key}={values}" for key, values in varied.items()), *overrides]
        (folder / config.name).write_text(yaml.safe_dump(whole))
    hydra_init()
    GlobalHydra.instance().clear()
    varied, fixed = next(iter(combinations(overrides)))
    search = f"hydra.searchpath=['file://{REPOSITORY}/configs']"
    name = config.name if config.name in SHOWN else str(config.relative_to("configs"))
    root = folder if config.name in SHOWN else REPOSITORY / "configs"
    with initialize_config_dir(str(root), version_base="1.1", job_name="check"):
        values = [*fixed, *(f"{key}={value}" for key, value in varied.items())]
        complete(compose(name, [search, *values]))


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
