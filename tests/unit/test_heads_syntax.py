"""Trees, their words in the subwords, and scores of attention that is right or wrong by design."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch import Tensor

from collab_common.errors import UserError
from data_prep import bpe, spm
from fairseq_collab.analysis import trees
from fairseq_collab.analysis.subwords import (
    Subword,
    Tree,
    align,
    segmenter,
)
from fairseq_collab.analysis.syntax import (
    DIRECTIONS,
    SyntaxScores,
    as_sample,
    tree_batches,
)
from fairseq_collab.analysis.trees import GoldSentence, GoldWord
from fairseq_collab.analysis.weights import AttentionBatch

# ---- CoNLL-U -------------------------------------------------------------------------------------


def row(number: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([number, form, form, "X", "_", "_", head, relation, "_", misc])


PLAIN = [
    "# sent_id = 1",
    row("1", "Two", "2", "nummod"),
    row("2", "owls", "3", "nsubj"),
    row("3", "slept", "0", "root", "SpaceAfter=No|Gloss=x"),
    row("4", ".", "3", "punct"),
]
TOKENS = [
    row("1-2", "Don't", misc="SpaceAfter=No"),
    row("1", "Do", "3", "aux"),
    row("2", "n't", "3", "advmod"),
    row("3", "say", "0", "root"),
    row("3.1", "left", "_", "_"),
    row("4-5", "du"),
    row("4", "de", "6", "case"),
    row("5", "le", "6", "det"),
    row("6", "pain", "3", "obl"),
]


def test_words_and_text_of_trees(tmp_path: Path) -> None:
    """Gzipped, and with other ends of lines."""
    path = tmp_path / "t.conllu.gz"
    text = "\r\n\r\n".join("\r\n".join(lines) for lines in (PLAIN, TOKENS)) + "\r\n\r\n\r\n"
    path.write_bytes(gzip.compress(text.encode()))
    first, second = trees.read(path)
    assert first.text == "Two owls slept."
    assert first.words == (
        GoldWord(0, 3, 1, "nummod"),
        GoldWord(4, 8, 2, "nsubj"),
        GoldWord(9, 14, None, "root"),
        GoldWord(14, 15, 2, "punct"),
    )
    # The first token is made of its words, the second is not; the empty node is left out.
    assert second.text == "Don'tsay du pain"
    spans = [(word.start, word.end) for word in second.words]
    assert spans == [(0, 2), (2, 5), (5, 8), (9, 11), (9, 11), (12, 16)]
    assert [word.head for word in second.words] == [2, 2, None, 5, 5, 2]


@pytest.mark.parametrize(
    "lines",
    [
        [PLAIN[1].replace("\t", " ")],
        ["1\towls"],
        [row("x", "owls", "0")],
        [row("2", "owls", "0")],
        [row("1", "owls", "0"), row("3", "slept", "1")],
        [row("1-2", "du"), row("1", "de", "0")],
        [row("1-2", "du"), row("1-2", "de", "0"), row("1", "x", "0")],
        [row("1", "owl", "2")],
        [row("1", "owl", "_")],
        [row("1", "owl", "1")],
        [row("1", "owl", "0").replace("owl", "\udcff")],
    ],
)
def test_faults_are_of_a_sentence(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.conllu"
    text = "\n".join([*PLAIN, "", *lines])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"t\.conllu: sentence \d is not CoNLL-U: .*; fix the file"):
        trees.read(path)


# ---- subwords ------------------------------------------------------------------------------------


class Given:
    """Segments one text as told, ``_`` marking spaces, and its beginnings letter by letter."""

    def __init__(self, pieces: str):
        self.pieces = pieces.split()

    def __call__(self, text: str) -> list[Subword]:
        whole = [Subword(piece, len(piece.replace("_", ""))) for piece in self.pieces]
        letters = len(text.replace(" ", ""))
        is_whole = letters == sum(subword.letters for subword in whole)
        return whole if is_whole else [Subword("?", 1)] * letters


def sentence(*words: tuple[str, int | None, str]) -> GoldSentence:
    """Words as (form, head from 0, relation), with a blank after each."""
    text, found = "", []
    for form, head, relation in words:
        found.append(GoldWord(len(text), len(text) + len(form), head, relation))
        text += f"{form} "
    return GoldSentence(text.rstrip(), tuple(found))


OWLS = sentence(("grey", 1, "amod"), ("owls", 2, "nsubj"), ("slept", None, "root"))
AMOD, NSUBJ = ("amod", 0, 1), ("nsubj", 1, 2)


@pytest.mark.parametrize(
    ("pieces", "units", "pairs"),
    [
        ("_grey _owls _slept", [0, 1, 2], [AMOD, NSUBJ]),
        ("_gr ey _o w ls _slept", [0, 0, 1, 1, 1, 2], [AMOD, NSUBJ]),
        ("_ grey _owls _ sle pt", [0, 0, 1, 2, 2, 2], [AMOD, NSUBJ]),  # marks of spaces alone
        ("_gr eyow ls _slept", [0, 0, 0, 1], [("nsubj", 0, 1)]),  # two words in one piece
        ("_greyowlsslept", [0], []),
    ],
)
def test_subwords_belong_to_words(
    pieces: str, units: list[int], pairs: list[tuple[str, int, int]]
) -> None:
    tree = align(OWLS, Given(pieces))
    assert tree.symbols == pieces.split()
    assert tree.units == units
    assert tree.pairs == pairs
    assert tree.lost == 2 - len(pairs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data folders with a sentencepiece model, and with codes of lower-cased Moses tokens."""
    root = tmp_path_factory.mktemp("folders")
    text = root / "text.en"
    text.write_text("The grey owls don't sleep, do they?\nSleep well, grey owl - they can't.\n" * 9)
    for name in ("pieces", "codes", "none"):
        (root / name).mkdir(parents=True)
    empty = root / "text.de"
    empty.touch()
    spm.train((text, empty), 60, root / "pieces" / "spm.model")
    tokens = root / "tokens.en"
    tokens.write_text("the grey owls don &apos;t sleep , do they ?\n" * 9)
    bpe.learn((tokens, empty), 20, root / "codes" / "code")
    form = {"moses": True, "lowercased": True, "hyphens": None}
    (root / "codes" / "manifest.json").write_text(json.dumps({"form": form}))
    return root


def spelt(tree: Tree) -> list[str]:
    """The subwords of each unit, joined."""
    units: dict[int, str] = {}
    for symbol, unit in zip(tree.symbols, tree.units, strict=True):
        units[unit] = units.get(unit, "") + symbol
    return [units[unit] for unit in sorted(units)]


SPOKEN = GoldSentence(
    "The owl… don't ﬁsh-eat",
    (
        GoldWord(0, 3, 1, "det"), GoldWord(4, 7, 4, "nsubj"), GoldWord(7, 8, 4, "punct"),
        GoldWord(9, 11, 4, "aux"), GoldWord(11, 14, 5, "advmod"), GoldWord(15, 18, None, "root"),
        GoldWord(18, 19, 5, "punct"), GoldWord(19, 22, 5, "obj"),
    ),
)  # fmt: skip


def test_sentencepiece_may_normalise_characters(folder: Path) -> None:
    """One character becomes three, one two: the words after them stay where they are."""
    tree = align(SPOKEN, segmenter(folder / "pieces", "en"))
    mark = "\N{LOWER ONE EIGHTH BLOCK}"
    expected = ["The", "owl", "...", "do", "n't", "fish", "-", "eat"]
    found = spelt(tree)
    assert "".join(found).replace(mark, "") == "".join(expected)
    if len(found) == len(expected):
        assert [word.replace(mark, "") for word in found] == expected
    else:  # "don" is a piece of its own, of two words
        expected[3:5] = ["don't"]
        assert [word.replace(mark, "") for word in found] == expected


def test_codes_are_of_tokens_as_the_manifest_tells(folder: Path) -> None:
    """Moses' tokens are not the words: ``don 't`` is ``do n't``."""
    text = "The owls don't sleep-walk"
    words = (GoldWord(0, 3, 1, "det"), GoldWord(4, 8, 4, "nsubj"), GoldWord(9, 11, 4, "aux"),
             GoldWord(11, 14, 4, "advmod"), GoldWord(15, 20, None, "root"),
             GoldWord(20, 21, 4, "punct"), GoldWord(21, 25, 4, "dep"))  # fmt: skip
    tree = align(GoldSentence(text, words), segmenter(folder / "codes", "en"))
    assert [unit.replace("@@", "") for unit in spelt(tree)] == [
        "the", "owls", "don&apos;t", "sleep", "-", "walk",
    ]  # fmt: skip
    assert tree.lost == 0
    assert ("aux", 2, 3) in tree.pairs
    given = segmenter(folder / "none", "en", folder / "codes" / "code")
    assert given("Owls")[0].symbol[0] == "O"  # without a manifest in its own case


def test_what_text_was_segmented_with_must_be_there(folder: Path) -> None:
    with pytest.raises(UserError, match=r"none: has neither spm\.model nor code; give .*subwords"):
        segmenter(folder / "none", "en")
    with pytest.raises(UserError, match="there is no such file"):
        segmenter(folder / "pieces", "en", folder / "no.model")
    with pytest.raises(UserError, match=r"text\.en: is no sentencepiece model"):
        segmenter(folder / "pieces", "en", folder / "text.en")


# ---- scores --------------------------------------------------------------------------------------

PAD, EOS = 1, 2
#: Four words of which the second has two subwords; and three words.
TREES = [
    Tree(list("abbcd"), [0, 1, 1, 2, 3], [("amod", 0, 1), ("nsubj", 1, 2), ("obj", 3, 2)], 0),
    Tree(list("abc"), [0, 1, 2], [("nsubj:pass", 2, 1), ("obj", 0, 1)], 1),
]
TOKENS_OF_TREES = torch.tensor([[5, 6, 7, 8, 9, EOS], [5, 6, 7, EOS, PAD, PAD]])


def attention(*choices: list[list[int]]) -> AttentionBatch:
    """Each head's queries look at these subwords: ``B x S`` positions for each head."""
    weights = torch.nn.functional.one_hot(torch.tensor(choices), 6).float().transpose(0, 1)
    return batch_of(weights * 0.8 + 0.02)


def batch_of(weights: Tensor) -> AttentionBatch:
    """A layer before, whose heads look at nothing in particular, and one with these weights."""
    sample = {"net_input": {"src_tokens": TOKENS_OF_TREES}}
    layers = [torch.full_like(weights, 1 / 6), weights]
    return AttentionBatch(sample, {"encoder": layers}, PAD, EOS)


def scored(batch: AttentionBatch) -> dict[str, Any]:
    scores = SyntaxScores()
    scores.add(batch, TREES)
    return scores.result()


def test_heads_that_are_right_by_design() -> None:
    to_head = [[1, 3, 3, 0, 3, 0], [1, 0, 1, 0, 0, 0]]
    to_dependent = [[0, 0, 0, 4, 0, 0], [0, 2, 0, 0, 0, 0]]
    wrong = [[4, 0, 0, 0, 0, 0], [2, 1, 2, 2, 2, 2]]
    found = scored(attention(to_head, to_dependent, wrong))
    up, down = DIRECTIONS
    assert found["nsubj"][up]["encoder"][1] == [1, 0, 0]
    assert found["obj"][up]["encoder"][1] == [1, 0, 0]
    assert found["amod"][up]["encoder"][1] == [1, 0, 0]
    assert found["amod"][down]["encoder"][1] == [0, 1, 1]  # both subwords look at the first word
    assert found["obj"][down]["encoder"][1] == [0.5, 0.5, 0]  # in one sentence each
    assert found["nsubj"][down]["encoder"][1] == [0, 0.5, 0]
    assert found["obj"][up]["pairs"] == found["nsubj"][down]["pairs"] == 2
    assert found["amod"][up]["pairs"] == 1
    assert found["obj"][up]["baseline"]["accuracy"] == 0.5
    assert found["amod"][down]["baseline"] == {"offset": -1, "accuracy": 1}
    nothing = {"offset": None, "accuracy": None}
    assert found["advmod"][up] == {"pairs": 0, "baseline": nothing, "encoder": [[None] * 3] * 2}


def test_the_end_of_sentence_and_padding_are_no_words() -> None:
    weights = torch.full((2, 1, 6, 6), 0.01)
    weights[0, 0, :, 5] = weights[1, 0, :, 3] = 0.9
    weights[1, 0, :, 4:] = 3.0
    weights[0, 0, 0, 1] = weights[1, 0, 0, 1] = 0.02
    found = scored(batch_of(weights))
    assert found["amod"][DIRECTIONS[0]]["encoder"][1] == [1]
    assert found["obj"][DIRECTIONS[0]]["encoder"][1] == [0.5]


# ---- batches -------------------------------------------------------------------------------------


def test_trees_are_batched_by_length_and_padded_on_the_right() -> None:
    symbols = Dictionary()
    for letter in "abc":
        symbols.add_symbol(letter)
    four = [Tree(list(letters), [], [], 0) for letters in ("abc", "a", "ax", "b")]
    found = [
        as_sample(batch, symbols)["net_input"]["src_tokens"].tolist()
        for batch in tree_batches(four, max_tokens=4)
    ]
    a, b, c = map(symbols.index, "abc")
    # One that is longer than a batch may be is a batch of its own.
    assert found == [[[a, EOS], [b, EOS]], [[a, symbols.unk(), EOS]], [[a, b, c, EOS]]]
    (wide,) = tree_batches(four, max_tokens=99)
    net_input = as_sample(wide, symbols)["net_input"]
    assert net_input["src_tokens"][0].tolist() == [a, EOS, PAD, PAD]
    assert net_input["src_lengths"].tolist() == [2, 2, 3, 4]
    assert ["".join(tree.symbols) for tree in wide] == ["a", "b", "ax", "abc"]
