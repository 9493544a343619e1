"""Contrastive pairs: scores, shares, distances, what is read, and what is refused."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from collab_common.errors import UserError
from data_prep import apply_bpe, bpe, moses, segment, subword
from data_prep.faults import Action
from fairseq_collab.commands.contrast import pairs_for
from fairseq_collab.metrics.contrast import (
    Pairs,
    accuracy,
    binned,
    contrast,
    distance,
    judged,
    read_pairs,
    signature,
)
from fairseq_collab.metrics.forced import Scores, score

TEXT = ["w1 w2 w3", "w4", "w2 w9 w9 w1 w5 w6", "w3 w3"]
TARGETS = ["w3 w1", "w4 w4 w7", "w8", "w2 w1 w1 w1 w5"]


def translation_task(longest: int = 64) -> Namespace:
    cfg = {"source_lang": "en", "target_lang": "de"}
    cfg |= {"left_pad_source": True, "left_pad_target": False}
    symbols = toy.dictionary()
    return Namespace(
        source_dictionary=symbols,
        target_dictionary=symbols,
        cfg=Namespace(**cfg),
        max_positions=lambda: (longest, longest),
    )


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(2)
    return toy.model("transformer_collab", toy.task()).eval()


def naive(model: Any, source: str, target: str) -> float:
    """One symbol after the other, each predicted from those before it."""
    symbols = toy.dictionary()
    x, y = (symbols.encode_line(s, add_if_not_exist=False).long() for s in (source, target))
    total = 0.0
    for place, word in enumerate(y.tolist()):
        before = torch.tensor([[symbols.eos(), *y[:place].tolist()]])
        logits = model(x[None], torch.tensor([len(x)]), before)[0][0, -1]
        total += logits.double().log_softmax(0)[word].item()
    return total


def test_scores_are_sums_of_log_probabilities(model: Any) -> None:
    pairs = list(zip(TEXT, TARGETS, strict=True))
    for found, (source, target) in zip(score(model, translation_task(), pairs), pairs, strict=True):
        assert found.total == pytest.approx(naive(model, source, target), abs=1e-4)
        assert found.mean == pytest.approx(found.total / (len(target.split()) + 1))


def test_a_sentence_that_is_too_long_is_named(model: Any) -> None:
    with pytest.raises(UserError, match=r"1 sentences are longer than its .* such as 'w8'"):
        score(model, translation_task(6), list(zip(TEXT, TARGETS, strict=True)))


def test_the_more_probable_one_counts(model: Any) -> None:
    """Whichever the model prefers: turned round, all that was right is wrong."""
    pairs = Pairs("polarity", TEXT, TARGETS, [f"{line} w5" for line in TARGETS])
    turned = Pairs("polarity", TEXT, pairs.incorrect, pairs.correct)
    same = {"en": list, "de": list}
    task = translation_task()
    (found, sentences), (other, _) = (contrast(model, task, [one], same) for one in (pairs, turned))
    found, other = found["polarity"], other["polarity"]
    sums = [naive(model, s, a) > naive(model, s, b) for s, a, b in
            zip(TEXT, TARGETS, pairs.incorrect, strict=True)]  # fmt: skip
    assert found.accuracy.mean == 100 * sum(sums) / 4 == 100 - other.accuracy.mean
    assert found.accuracy.pairs == 4
    assert found.by_distance == {}
    assert sentences.counts == {"polarity": [[int(one), 1] for one in sums]}
    assert sentences.signature == signature([pairs])


def test_ties_are_wrong_and_lengths_matter() -> None:
    pairs = Pairs("subj_verb_agreement-mt", ["a"] * 3, ["Er geht ."] * 3, ["Er gehe ."] * 3)
    correct = [Scores(-2.0, -1.0), Scores(-2.0, -0.5), Scores(-2.0, -1.0)]
    incorrect = [Scores(-2.0, -1.0), Scores(-3.0, -0.4), Scores(-1.0, -2.0)]
    found, _ = judged(pairs, correct, incorrect)
    assert found.accuracy.mean == pytest.approx(100 / 3)
    assert found.normalised.mean == pytest.approx(100 / 3)
    assert list(found.by_distance) == ["1"]
    several = replace(pairs, sources=["a", "b", "a"])
    assert judged(several, correct, incorrect)[1] == [[0, 2], [1, 1]]


def test_wilsons_interval() -> None:
    """8 of 10: (0.8 + z^2/20 -+ z sqrt(0.016 + z^2/400)) / (1 + z^2/10), z^2 = 3.8415."""
    found = accuracy([True] * 8 + [False] * 2)
    assert (found.mean, found.pairs) == (80, 10)
    assert (found.low, found.high) == pytest.approx((49.016, 94.331), abs=2e-3)
    assert (accuracy([True] * 5).high, accuracy([False] * 5).low) == (100, 0)
    assert accuracy([True] * 5).low == pytest.approx(100 * 5 / (5 + 3.8415), abs=2e-3)


@pytest.mark.parametrize(
    ("phenomenon", "correct", "incorrect", "expected"),
    [
        ("np_agreement-mt", "Er sah das alte Haus .", "Er sah der alte Haus .", 2),
        ("np_agreement-mt", "Er sah das", "Er sah der", None),
        ("subj_verb_agreement-mt", "Der Mann mit Hut geht .", "Der Mann mit Hut gehen .", 4),
        ("subj_verb_agreement-mt", "Er sagt, dass sie geht .", "Er sagt, dass sie gehen .", 2),
        ("subj_verb_agreement-mt", "Gehen sie ?", "Geht sie ?", 0),
        ("polarity_affix_del-human", "Er ist unklar", "Er ist klar", None),
        ("np_agreement-mt", "das Haus", "das Haus", None),
    ],
)
def test_distances(phenomenon: str, correct: str, incorrect: str, expected: int | None) -> None:
    assert distance(phenomenon, correct, incorrect) == expected


def test_bins_of_distances() -> None:
    assert [binned(n) for n in (0, 1, 3, 4, 6, 7, 10, 11, 40)] == [
        "0", "1", "3", "4-6", "4-6", "7-10", "7-10", ">10", ">10",
    ]  # fmt: skip
    names = [f"Wort {'x ' * n}geht" for n in (12, 1, 8)]
    pairs = Pairs("subj_verb_agreement", ["a"] * 3, names, [f"{name}e" for name in names])
    one = [Scores(-1.0, -1.0)] * 3
    assert list(judged(pairs, one, one)[0].by_distance) == ["2", "7-10", ">10"]


# ---- what is read --------------------------------------------------------------------------------


def write(home: Path, **sides: list[str]) -> Path:
    home.mkdir(parents=True)
    for name, lines in sides.items():
        text = "".join(f"{line}\n" for line in lines)
        (home / f"{name.replace('_', '.')}.gz").write_bytes(gzip.compress(text.encode()))
    return home


def test_phenomena_are_folders(tmp_path: Path) -> None:
    lines = [f"Satz {i}\u2028." for i in range(6)]  # a separator that is no end of a line
    for name in ("np_agreement.mt", "polarity.human"):
        write(tmp_path / name, src_en=lines, tgt_correct_de=lines, tgt_incorrect_de=lines)
    found = read_pairs(tmp_path, ("en", "de"))
    assert [(one.name, one.correct) for one in found] == [
        ("np_agreement-mt", lines), ("polarity-human", lines),
    ]  # fmt: skip
    (alone,) = read_pairs(tmp_path / "polarity.human", ("en", "de"), 3)
    assert alone.sources == lines[::2]
    assert signature([alone]) != signature(found[1:])
    assert signature(found) == signature(read_pairs(tmp_path, ("en", "de")))


def test_pairs_that_cannot_be_used(tmp_path: Path) -> None:
    def refusal(folder: Path, languages: tuple[str, str] = ("en", "de")) -> str:
        with pytest.raises(UserError) as refused:
            read_pairs(folder, languages)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "nothing: there is no such folder; give a folder of" in refusal(tmp_path / "nothing")
    assert "holds no contrastive pairs" in refusal(tmp_path)
    one = ["a"]
    home = write(tmp_path / "p", src_en=one, tgt_correct_de=one, tgt_incorrect_de=one * 2)
    assert "has 1, 1, 2 lines in src, tgt.correct, tgt.incorrect" in refusal(home)
    assert "there is no src.de (there: src.en.gz)" in refusal(tmp_path, ("de", "en"))
    (home / "src.en").write_bytes(b"\xff\n")
    assert "src.en:1: invalid UTF-8" in refusal(home)


def test_language_models_have_no_pairs() -> None:
    model = Namespace(task=Namespace(cfg=Namespace()), path=Path("lm.pt"))
    with pytest.raises(UserError, match=r"lm.pt: .* so that it has no accuracy on contrastive"):
        pairs_for(model, Namespace())


# ---- subwords ------------------------------------------------------------------------------------


def test_text_is_segmented_as_the_data_was(tmp_path: Path) -> None:
    text, pieces = (tmp_path / "text.en", tmp_path / "text.de"), (tmp_path / "a", tmp_path / "b")
    lines = ["the cat sat", "a cat, a mat", "the mat sat there"] * 3
    for path in text:
        path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match=r"there is no spm.model, .* prepare the data again"):
        segment.segmenter(tmp_path, "en")
    subword.train([*text], 30, tmp_path / "spm.model")
    subword.segment(tmp_path / "spm.model", text, pieces, Action.REFUSE)
    assert segment.segmenter(tmp_path, "en")(lines) == pieces[0].read_text().splitlines()


@pytest.mark.parametrize(
    ("corpus", "variant"), [("wmt14", "wmt14"), ("wmt14", "fairseq"), ("iwslt14", "fairseq")]
)
def test_tokens_and_subwords_of_published_corpora(
    tmp_path: Path, corpus: str, variant: str
) -> None:
    data, beside = tmp_path / "data", tmp_path / "text"
    data.mkdir()
    beside.mkdir()
    form = {"subwords": "subword_nmt", "moses": True, "lowercased": False, "hyphens": None}
    told: dict[str, Any] = {"form": form, "options": {"corpus": corpus, "variant": variant}}
    (data / "manifest.json").write_text(json.dumps(told))
    text, mapped, tokens, units = (tmp_path / name for name in ("raw", "map", "tokens", "units"))
    text.write_text("The well-known cat\u2019s \u201cmat\u201d, the cat.\n" * 3)
    steps = {"lower": corpus == "iwslt14", "aggressive_hyphens": corpus == "wmt14"}
    steps["normalise"] = clean = variant == "wmt14"
    mapped.write_text(text.read_text() if clean else text.read_text().replace("\u2019", "'"))
    moses.normalise_and_tokenise(mapped, tokens, "en", **steps)
    bpe.learn([tokens], 6, beside / "code")
    apply_bpe.apply(beside / "code", tokens, units)
    found = segment.segmenter(data, "en")(text.read_text().splitlines())
    assert found == units.read_text().splitlines()
    for other in (told | {"form": form | {"hyphens": "@-@"}}, google(told)):
        (data / "manifest.json").write_text(json.dumps(other))
        with pytest.raises(UserError, match="tokenised in a way that is not repeated here"):
            segment.segmenter(data, "en")


def google(manifest: dict[str, Any]) -> dict[str, Any]:
    """Tokenised by its publisher."""
    return manifest | {"options": {"corpus": "wmt14", "variant": "google"}}
