"""README.md, results/ and the recipes' headers: commands parse, links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest
from command_checks import Wrong, check, options_of
from commands import REPOSITORY
from documents import (
    PAGES,
    RECIPES,
    Command,
    anchors,
    blocks,
    code_spans,
    commands_of,
    links,
    name_of,
    usage_lines,
    words_of,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of Hydra, argparse and fairseq

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language == "bash"]


def check_all(script: str, folder: Path) -> int:
    """Check every command of a script; how many there are."""
    found = commands_of(script, folder)
    wrong = []
    for command in found:
        try:
            check(command)
        except Wrong as error:
            wrong.append(f"{' '.join(command.words)}\n    {error}")
    assert not wrong, "\n".join(wrong)
    return len(found)


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.where)
def test_commands_parse(block, tmp_path: Path) -> None:
    assert check_all(block.text, tmp_path) > 0


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_usage_of_recipes(recipe: Path, tmp_path: Path) -> None:
    lines = usage_lines(recipe)
    assert check_all("\n".join(lines), tmp_path) == len(lines)
    assert lines or recipe.name in ("common.sh", "portable.sh", "stages.sh")


def test_code_in_other_languages_compiles() -> None:
    """And imports what is there."""
    excerpted = {code for page in PAGES for _, code in excerpts(page)}  # parts of files that do
    for block in BLOCKS:
        if f"{block.text}\n" in excerpted:
            continue
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text, block.where)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    exec(ast.unparse(node), {})
        else:
            assert block.language in ("bash", ""), f"{block.where}: {block.language}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_the_text(page: Path) -> None:
    """``fairseq-collab NAME --option``, where arguments may be missing; recipes; modules."""
    for span in code_spans(page):
        if span.startswith("fairseq-collab "):
            _, name, *words = words_of(span)
            if name == "data":
                name = f"data {words.pop(0)}"
            options = [word.partition("=")[0] for word in words if re.match("-+[a-z]", word)]
            if name not in ("COMMAND", "user-dir", "configs"):
                assert set(options) <= options_of(name), span
        elif span.startswith("python -m "):
            assert importlib.util.find_spec(words_of(span)[2]), span
        for recipe in re.findall(r"recipes/\w+\.sh", span):
            assert (REPOSITORY / recipe).is_file(), span


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def excerpts(page: Path) -> list[tuple[str, str]]:
    """Code that follows a line ``<!-- FILE -->``: the file, and the code."""
    marked = r"^<!-- (\S+) -->\n```\w*\n(.*?)^```$"
    return re.findall(marked, page.read_text(), re.M | re.S)


def check_excerpt(file: str, code: str) -> None:
    """The code is in the file, in this order; a line ``...`` leaves something out."""
    text = (REPOSITORY / file).read_text()
    place = 0
    for part in re.split(r"^ *\.\.\.\n", code, flags=re.M):
        place = text.find(part.strip("\n"), place)
        assert place >= 0, f"not in {file}, or not in this order:\n{part}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_excerpts_are_in_their_files(page: Path) -> None:
    for file, code in excerpts(page):
        check_excerpt(file, code)


def test_an_excerpt_that_is_not_in_its_file_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    file = "tests/examples/tied_heads/__init__.py"
    parts = ["class TiedAttention(HeadAttention):", "    def project_key(self, y"]
    code = "\n...\n".join(parts)
    page.write_text(f"Text\n\n<!-- {file} -->\n```python\n{code}\n```\n")
    assert excerpts(page) == [(file, f"{code}\n")]
    check_excerpt(file, code)
    for wrong in (code.replace("project_key", "project_kex"), "\n...\n".join(parts[::-1])):
        with pytest.raises(AssertionError, match="not in this order"):
            check_excerpt(file, wrong)


# ---- mistakes are noticed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("fairseq-collab tabel runs", "no command fairseq-collab tabel"),
        ("fairseq-collab table runs --xx key_dim", "unrecognized arguments: --xx key_dim"),
        ("fairseq-collab prune --out out.pt", "required"),
        ("fairseq-collab user-dir now", "takes no arguments"),
        ("fairseq-collab doctor --verbos", "unrecognized arguments: --verbos"),
        ("fairseq-collab sweep configs/none.yaml", "there is no configs/none.yaml"),
        ("fairseq-collab sweep configs/experiment/head_size_multi30k.yaml comon.seed=1", "comon"),
        ("fairseq-train data --user-dir fairseq_collab --arch transformer_colab", "invalid choice"),
        (
            "fairseq-train data --user-dir fairseq_collab --arch transformer_collab --key-dimm 4",
            "unrecognized arguments: --key-dimm",
        ),
        ("fairseq-train data --arch transformer --max-epoch many", "invalid"),
        ("fairseq-generate data --path m.pt --beem 5", "unrecognized arguments: --beem"),
        ("fairseq-hydra-train --config-dir configs --config-name multi31k", "multi31k"),
        ("fairseq-hydra-train --config-dir conf --config-name multi30k", "conf"),
        (
            "fairseq-hydra-train --config-dir configs --config-name multi30k model.key_dimm=64",
            "key_dimm",
        ),
        (
            "fairseq-hydra-train --config-dir configs --config-name multi30k -m model=collab,colab",
            "colab",
        ),
        (
            "fairseq-hydra-train --config-dir configs --config-name multi30k model.key_dim=32,64",
            "without -m",
        ),
        ("torchrun --standalne fairseq-train data --arch transformer", "standalne"),
        ("torchrun --standalone --no-python fairseq-trian data", "no check for"),
        ("python -m data_prep.prepare --text t --out o", "required"),
        ("python -m data_prep.none", "no module data_prep.none"),
        ("python -m venv x", "not a module of the repository"),
        ("python tests/none.py", "not a program"),
        ("bash recipes/none.sh", "there is no recipes/none.sh"),
        ("FRM=DIR bash recipes/grouped_heads.sh", "reads no FRM"),
        ("bash recipes/iwslt14.sh --variant nothing", "invalid choice: 'nothing'"),
        ("bash recipes/iwslt14.sh --method nothing", "knows no nothing"),
        ("bash recipes/iwslt14.sh --varian cased", "knows no --varian"),
        ("pip install --no-deeps fairseq", "no such option"),
        ("sacrebleu ref -i out --paired-bx", "unrecognized arguments"),
        ("source venv/bin/activate", "makes .venv/bin/activate"),
        ("OMP_NUM_THREADS=1 fairseq-collab bench --quick", "nothing is known of variables"),
        ("make install", "no check for commands of the kind 'make'"),
    ],
)
def test_a_mistake_is_noticed(script: str, complaint: str, tmp_path: Path) -> None:
    (command,) = commands_of(script, tmp_path)
    with pytest.raises(Wrong, match=re.escape(complaint)):
        check(command)


def test_what_bash_makes_of_a_script(tmp_path: Path) -> None:
    script = """
common="--seed 1
  --cpu"
for run in a b; do
  A=1 B='x y' fairseq-train $run $common \\
    --note 'two words' > $run/log  # not this
done
fairseq-train --user-dir $(fairseq-collab user-dir)
"""
    train = ["--seed", "1", "--cpu", "--note", "two words"]
    assert commands_of(script, tmp_path) == [
        Command(["fairseq-train", "a", *train], frozenset("AB")),
        Command(["fairseq-train", "b", *train], frozenset("AB")),
        Command(["fairseq-collab", "user-dir"]),
        Command(["fairseq-train", "--user-dir", "fairseq_collab"]),
    ]
    with pytest.raises(AssertionError, match="syntax error"):
        commands_of("for x in", tmp_path)
