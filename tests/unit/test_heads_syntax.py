"""Trees, their words in the subwords, and scores of attention that is right or wrong by design."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from fairseq.data import Dictionary
from refusals import refusing
from torch import Tensor

from collab_lab.cli.heads import planned
from collab_lab.heads import trees
from collab_lab.heads.attention_weights import AttentionBatch
from collab_lab.heads.syntax import DIRECTIONS, SyntaxScores, as_sample, tree_batches
from collab_lab.heads.trees import GoldSentence, GoldWord, Subword, Tree, align, segmenter
from collab_lab.trained.checkpoint import open_model
from data_prep.subwords import learn_merges

# ---- CoNLL-U -------------------------------------------------------------------------------------


def row(number: str, form: str, head: str = "_", relation: str = "_", misc: str = "_") -> str:
    return "\t".join([number, form, form, "X", "_", "_", head, relation, "_", misc])


SENTENCE = [
    "# sent_id = 1",
    row("1-2", "Don't", misc="SpaceAfter=No|Gloss=x"),
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
    path.write_bytes(gzip.compress(("\r\n".join(SENTENCE) + "\r\n\r\n\r\n").encode() * 2))
    found, other = trees.read(path)
    assert found == other
    # The first token is made of its words, the second is not; the empty node is left out.
    assert found.text == "Don'tsay du pain"
    spans = [(word.start, word.end) for word in found.words]
    assert spans == [(0, 2), (2, 5), (5, 8), (9, 11), (9, 11), (12, 16)]
    assert [word.head for word in found.words] == [2, 2, None, 5, 5, 2]
    assert found.words[0].relation == "aux"


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")  # an open file
@pytest.mark.parametrize(
    "lines",
    [
        ["1\towls"],
        [row("2", "owls", "0")],
        [row("1-2", "du"), row("1", "de", "0")],
        [row("1", "owl", "1")],
        [row("1", "owl", "0").replace("owl", "\udcff")],
    ],
)
def test_faults_are_of_a_sentence(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.conllu"
    text = "\n".join([*SENTENCE, "", *lines])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with refusing("t.conllu: sentence "):
        trees.read(path)


# ---- subwords ------------------------------------------------------------------------------------


class Given:
    """Segments one text as told, ``_`` marking spaces, and its beginnings letter by letter."""

    def __init__(self, pieces: str):
        self.pieces = pieces.split()

    def __call__(self, text: str) -> list[Subword]:
        whole = [Subword(piece, len(piece.replace("_", ""))) for piece in self.pieces]
        letters = len(text.replace(" ", ""))
        is_whole = letters == sum(subword.num_characters for subword in whole)
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


def test_text_is_segmented_as_that_of_the_folder(tmp_path: Path) -> None:
    """Moses' tokens are not the words; they are lower-cased as the manifest says."""
    texts = (tmp_path / "text.en", tmp_path / "text.de")
    texts[0].write_text("the grey owls don &apos;t sleep , do they ?\n" * 9)
    texts[1].touch()
    with refusing(str(tmp_path), "--subwords"):
        segmenter(tmp_path, "en")
    learn_merges(texts, 20, tmp_path / "code")
    form = {"moses": True, "lowercased": True, "hyphens": None}
    (tmp_path / "manifest.json").write_text(json.dumps({"form": form}))
    words = [("The", 1, "det"), ("owl", 3, "nsubj"), ("…", 3, "punct"), ("don't", None, "root")]
    tree = align(sentence(*words), segmenter(tmp_path, "en"))
    units = [""] * (max(tree.units) + 1)
    for symbol, unit in zip(tree.symbols, tree.units, strict=True):
        units[unit] += symbol.replace("@@", "")
    assert units == ["the", "owl", "…", "don&apos;t"]
    (tmp_path / "manifest.json").write_text(json.dumps({"form": {**form, "hyphens": "@-@"}}))
    with refusing("hyphens"):  # these words are in pieces
        segmenter(tmp_path, "en")


# ---- scores --------------------------------------------------------------------------------------

PAD, EOS = 1, 2
#: Four words of which the second has two subwords; and three words.
TREES = [
    Tree(list("abbcd"), [0, 1, 1, 2, 3], [("amod", 0, 1), ("nsubj", 1, 2), ("obj", 3, 2)]),
    Tree(list("abc"), [0, 1, 2], [("nsubj:pass", 2, 1), ("obj", 0, 1)]),
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
    four = [Tree(list(letters), [], []) for letters in ("abc", "a", "ax", "b")]
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


def test_a_file_of_trees_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = f"\ufeff# text = Owls\n{row('1', 'Owls', '0', 'root')}\n\n"
    (tmp_path / "t.conllu").write_text(text, encoding="utf-8")
    [sentence] = trees.read(tmp_path / "t.conllu")
    assert sentence.text == "Owls"


def test_the_first_of_several_folders_has_the_subwords(tmp_path: Path) -> None:
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    (data / "manifest.json").unlink()  # of an older form
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    (tmp_path / "t.conllu").write_text(f"# text = w1\n{row('1', 'w1', '0', 'root')}\n\n")
    args = Namespace(
        data=Path(f"{data}:{toy_checkpoints.COPY}"), subset="valid", subwords=None,
        relevance_sentences=0, conllu=tmp_path / "t.conllu",
    )  # fmt: skip
    assert len(planned(args, model)) == 4
