"""``fairseq-interactive`` with the options of docs/trained_models.md: text in, text out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli.conftest import MODEL, SHORT
from commands import REPOSITORY, USER_DIR, succeed, write_copy_task

pytestmark = pytest.mark.slow

DOCS = (REPOSITORY / "docs" / "trained_models.md").read_text().replace("\\\n", " ")
#: The command, and in its comment the options of the other subwords.
((COMMAND, OTHER),) = re.findall(
    r"^echo .* \| (fairseq-interactive .*?) +# subword_nmt: (.*)$", DOCS, re.M
)


@pytest.mark.parametrize("subwords", ["sentencepiece", "subword_nmt"])
def test_a_line_is_segmented_and_joined(subwords: str, tmp_path: Path) -> None:
    text, data, model = (tmp_path / name for name in ("text", "data", "model"))
    write_copy_task(text, words=12, train=300)
    for side in text.glob("*.de"):  # equal sides are rejected
        side.write_text(side.read_text().replace("w", "v"))
    prepare = ["fairseq-collab", "data", "prepare", "--text", text, "--out", data]
    languages = ["--source-lang=en", "--target-lang=de"]
    succeed(*prepare, *languages, "--subwords", subwords, "--vocab-size=20")
    succeed("fairseq-train", data, *USER_DIR, *MODEL, *SHORT, "--save-dir", model)
    command = shlex.split(COMMAND)
    if subwords == "subword_nmt":
        command[command.index("--bpe") :] = shlex.split(OTHER)
    folder = command[1]
    command = [word.replace(folder, str(data)) for word in command]
    command[command.index("model.pt")] = str(model / "checkpoint_last.pt")
    command[command.index("fairseq_collab")] = str(USER_DIR[1])
    said = succeed(*command, "--cpu", "--max-len-b=5", stdin="w1 w10 w3\n")
    pieces, (found,) = (re.findall(rf"^{line}-0\t.*\t(.*)$", said, re.M) for line in "HD")
    source = re.findall(r"^S-0\t(.*)$", said, re.M)[0]
    assert len(source.split()) > 3, "segmented"
    joined = pieces[0].replace(" ", "").replace("\u2581", " ").strip()
    assert found == (joined if subwords == "sentencepiece" else re.sub("@@( |$)", "", pieces[0]))
