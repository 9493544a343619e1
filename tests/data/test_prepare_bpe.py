"""prepare --subwords subword_nmt: the program's own subwords, and what the manifest says."""

from __future__ import annotations

from pathlib import Path

import pytest
from subword_nmt.apply_bpe import BPE, read_vocabulary
from text_tools import VOCAB_SIZE, config, manifest, options

import data_prep.prepare as prepare_module
from collab_common.errors import UserError
from data_prep.apply_bpe import BpeOptions
from data_prep.prepare import prepare


@pytest.mark.usefixtures("no_fairseq")
def test_subwords_of_subword_nmt(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes of both sides; a threshold and glossaries; what scoring needs to know of it."""
    kept: dict[str, str] = {}

    def keep(folder: Path, *_: object) -> None:  # before they go
        kept.update({path.name: path.read_text() for path in folder.glob("*.de")})
        binarise(folder, *_)

    binarise = prepare_module.binarise
    monkeypatch.setattr(prepare_module, "binarise", keep)
    more = ("--vocabulary-threshold", "30", "--glossaries", "[Bb]a", "ki", "--glossaries", "zu")
    arguments = [*options(corpus, tmp_path / "bin"), "--subwords", "subword_nmt", *more]
    assert prepare_module.main([*map(str, arguments)]) == 0
    told = manifest(tmp_path / "bin")
    named = {"subwords": "subword_nmt", "vocabulary_threshold": 30}
    named |= {"glossaries": ["[Bb]a", "ki", "zu"]}
    assert {key: told["options"][key] for key in named} == named
    assert told["form"] == {"moses": False, "lowercased": False, "hyphens": None} | named
    assert told["subword"]["merges"] == VOCAB_SIZE
    assert "subword-nmt" in told["versions"]
    with (tmp_path / "bin" / "vocab.de").open() as stream:
        units = read_vocabulary(stream, 30)
    with (tmp_path / "bin" / "code").open() as codes:
        theirs = BPE(codes, vocab=units, glossaries=named["glossaries"])
    for split in ("train", "valid", "test1"):
        source = corpus / {"test1": "test.1.de"}.get(split, f"{split}.de")
        expected = [theirs.process_line(line) for line in source.read_text().splitlines()]
        assert kept[f"{split}.de"].splitlines() == expected


def test_options_of_subword_nmt_without_it(corpus: Path, tmp_path: Path) -> None:
    bpe = BpeOptions(glossaries=("USA",))
    with pytest.raises(UserError, match="--glossaries: is of subword-nmt; give --subwords subword"):
        prepare(config(corpus, tmp_path / "bin", bpe=bpe))
