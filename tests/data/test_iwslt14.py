"""IWSLT14: what each variant makes of the published layout."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from corpus_archives import ENGLISH, TEST, TRAIN, data_of, filled, lines, small_iwslt14, text_of
from refusals import refusing
from text_tools import error_line, manifest, run

from collab_common.moses import ordinary_text
from data_prep.iwslt14 import corpus, talk_lines
from data_prep.parallel_text import segments


def made(out: Path, source: Path, variant: str, pair: tuple[str, str] = ("de", "en")) -> Path:
    return text_of(corpus(variant, pair), out, source)


def test_as_fairseqs_script(source: Path, tmp_path: Path) -> None:
    text = made(tmp_path / "out", source, "fairseq")
    kept = [i for i in range(1, 101) if i % 20]  # 3 tokens are too few for the 5 of the other side
    valid = [i for at, i in enumerate(kept, 1) if at % 23 == 0]
    train = [i for at, i in enumerate(kept, 1) if at % 23]
    assert lines(text / "train.en") == [f"sentence {i} is well-known ." for i in train]
    assert lines(text / "train.de") == [f"satz {i} kennt man ." for i in train]
    assert lines(text / "valid.en") == [f"sentence {i} is well-known ." for i in valid]
    # nothing is unescaped, the typographic apostrophe is replaced, and all is escaped once more
    assert lines(text / "test.en") == ["that &apos;s bear &apos;s e-mail &amp; amp ; more ."] * 5
    assert lines(text / "raw" / "test.en") == [TEST["en"].lower()] * 5
    assert lines(text / "raw" / "test.cased.en") == [TEST["en"]] * 5
    told = manifest(text)
    assert told["steps"]["cleaned"]["ratio"] == 5
    assert told["steps"]["carved"] == {"read": 95, "carved": 4}
    assert corpus("fairseq", ("de", "en")).form == {
        "subwords": "subword_nmt",
        "moses": True,
        "lowercased": True,
        "hyphens": None,
    }


def test_paper3_splits_hyphens_everywhere(source: Path, tmp_path: Path) -> None:
    text = made(tmp_path / "out", source, "paper3")
    assert lines(text / "train.en")[0] == "sentence 1 is well ##at##-##at## known ."
    assert lines(text / "valid.en")[0].endswith("is well ##at##-##at## known .")
    assert "e ##at##-##at## mail" in lines(text / "test.en")[0]
    assert "comparable with arXiv 2305.14380 only" in manifest(text)["options"]["note"]


def test_split_hyphens_are_joined_before_scoring() -> None:
    form = corpus("paper3", ("de", "en")).form
    hypotheses = ["it &apos;s well ##at##-##at## known , they say ."]
    assert ordinary_text(hypotheses, form, "en") == ["it's well-known, they say."]


@pytest.mark.parametrize("pair", [("en", "it"), ("it", "en"), ("en", "fr"), ("en", "de")])
def test_other_pairs(pair: tuple[str, str], tmp_path: Path) -> None:
    """Each has its own archive; Italian has another of the five test sets."""
    train = {pair[0]: ENGLISH, pair[1]: [sentence.title() for sentence in ENGLISH]}
    name = "de-en" if "de" in pair else "-".join(pair)  # the only one that is served
    content = small_iwslt14(train, dict.fromkeys(pair, "One."), name)
    source = filled(tmp_path / "from", {f"{name}.tgz": content})
    text = made(tmp_path / "out", source, "fairseq", pair)
    assert len(lines(text / f"test.{pair[1]}")) == 5


def test_french_archive_without_a_set(tmp_path: Path) -> None:
    """Two public listings lack TEDX.dev2012: it is taken where it is there."""
    train = {"en": ENGLISH, "fr": [sentence.title() for sentence in ENGLISH]}
    content = small_iwslt14(train, {"en": "One.", "fr": "Un."}, "en-fr", without=("TEDX.dev2012",))
    source = filled(tmp_path / "from", {"en-fr.tgz": content})
    text = made(tmp_path / "out", source, "fairseq", ("en", "fr"))
    assert len(lines(text / "test.fr")) == 4


def test_what_is_made_again(source: Path, tmp_path: Path, no_fairseq: None) -> None:
    """Nothing the second time; a missing folder; not what was made from something else."""
    out = tmp_path / "out"
    made_of = partial(data_of, out=out, source=source)
    de_en = corpus("fairseq", ("de", "en"))
    made_of(de_en)
    before = manifest(tmp_path / "out-text"), manifest(out)
    made_of(de_en, jobs=2)
    assert (manifest(tmp_path / "out-text"), manifest(out)) == before
    shutil.rmtree(out)
    made_of(de_en)
    assert (manifest(tmp_path / "out-text"), manifest(out)["outputs"]) == (
        before[0], before[1]["outputs"],
    )  # fmt: skip
    with refusing("out-text: made from something else", "variant: 'fairseq' there, 'paper3'"):
        made_of(corpus("paper3", ("de", "en")))
    filled(source, {"de-en.tgz": small_iwslt14(TRAIN, {"de": "Neu.", "en": "New."})})
    with refusing("out-text: made from something else (inputs.de-en.tgz: changed)"):
        made_of(de_en)


def test_unequal_lengths(tmp_path: Path) -> None:
    train = TRAIN | {"en": [*ENGLISH, "One more."]}
    source = filled(tmp_path / "from", {"de-en.tgz": small_iwslt14(train, TEST)})
    with refusing("train.tags.de has 100 lines of text, ", "train.tags.en has 101;"):
        made(tmp_path / "out", source, "fairseq")
    assert not (tmp_path / "out-text").exists()


def test_no_archive(tmp_path: Path) -> None:
    done = run("iwslt14", "--out", tmp_path / "out", "--from", tmp_path / "absent")
    assert "absent/de-en.tgz: file not found" in error_line(done, "iwslt14")


def test_what_talks_and_segments_are(tmp_path: Path) -> None:
    tags = tmp_path / "tags"
    tags.write_text(
        "<url>u</url>\n<speaker>S</speaker>\n<talkid>1</talkid>\n<keywords>k</keywords>\n"
        "<title>T</title>\n<description>D</description>\n A  line \n\n"
    )
    kept = ["<speaker>S</speaker>", "T", "D", " A  line ", ""]
    assert list(talk_lines(tags)) == kept, "speakers stay in, as in fairseq's script"
    xml = tmp_path / "xml"
    xml.write_text('<doc>\n  <seg id="1"> A &lt; b. </seg>\n<seg id="12">C</seg>\n</doc>\n')
    assert list(segments(xml)) == ["A &lt; b.", "C"]
