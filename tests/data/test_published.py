"""IWSLT14 and WMT14: what each variant makes of the published layout, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_archives import (
    ENGLISH,
    TEST,
    TRAIN,
    data_of,
    filled,
    full_test,
    google,
    lines,
    small_iwslt14,
    text,
    text_of,
    tgz,
    without_hashes,
    wmt14_en_fr,
)
from refusals import refusing
from text_tools import error_line, manifest, run

from collab_common.moses import ordinary_text
from data_prep import wmt14
from data_prep.iwslt14 import corpus


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
    assert lines(text / "raw" / "test.en") == [TEST["en"][0].lower()] * 5
    assert lines(text / "raw" / "test.cased.en") == TEST["en"] * 5
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
    assert "2305.14380" in manifest(text)["options"]["note"]


@pytest.mark.parametrize("pair", [("en", "it"), ("it", "en"), ("en", "fr"), ("en", "de")])
def test_other_pairs(pair: tuple[str, str], tmp_path: Path) -> None:
    """Each has its own archive; Italian has another of the five test sets."""
    train = {pair[0]: ENGLISH, pair[1]: [sentence.title() for sentence in ENGLISH]}
    name = "de-en" if "de" in pair else "-".join(pair)  # the only one that is served
    content = small_iwslt14(train, {lang: ["One."] for lang in pair}, name)
    source = filled(tmp_path / "from", {f"{name}.tgz": content})
    text = made(tmp_path / "out", source, "fairseq", pair)
    assert len(lines(text / f"test.{pair[1]}")) == 5


def test_french_archive_without_a_set(tmp_path: Path) -> None:
    """Two public listings lack TEDX.dev2012: it is taken where it is there."""
    train = {"en": ENGLISH, "fr": [sentence.title() for sentence in ENGLISH]}
    content = small_iwslt14(
        train, {"en": ["One."], "fr": ["Un."]}, "en-fr", without=("TEDX.dev2012",)
    )
    source = filled(tmp_path / "from", {"en-fr.tgz": content})
    text = made(tmp_path / "out", source, "fairseq", ("en", "fr"))
    assert len(lines(text / "test.fr")) == 4


def test_unequal_lengths(tmp_path: Path) -> None:
    train = TRAIN | {"en": [*ENGLISH, "One more."]}
    source = filled(tmp_path / "from", {"de-en.tgz": small_iwslt14(train, TEST)})
    with refusing("train.tags.de", "100", "train.tags.en", "101"):
        made(tmp_path / "out", source, "fairseq")
    assert not (tmp_path / "out-text").exists()


# ---- WMT14 ---------------------------------------------------------------------------------------

QUOTED = "\u201eTest\u2019s\u201c 1"  # typographic quotes and apostrophe


def wmt(out: Path, source: Path, variant: str, languages: tuple[str, str] = ("en", "de")) -> Path:
    return text_of(without_hashes(wmt14.corpus(variant, languages)), out, source)


def numbered(corpora: tuple[str, ...] = ("Europe", "Crawl", "News")) -> dict[str, bytes]:
    """Archives whose lines tell where they come from: 150 pairs of each corpus."""
    names = ("training/europarl-v7", "commoncrawl", "training/news-commentary-v9")
    archives = ("europarl-v7", "commoncrawl", "nc-v9")
    found = {
        "dev.tgz": tgz({f"dev/newstest2013.{g}": text(["„Dev“ 1"]) for g in ("en", "de")}),
        "test-full.tgz": full_test({g: [QUOTED] for g in ("en", "de")}),
    }
    for archive, name, what in zip(archives, names, corpora, strict=True):
        lines = text([f"{what} {i} well-known" for i in range(150)])
        members = {f"{name}.de-en.{lang}": lines for lang in ("en", "de")}
        found[f"training-parallel-{archive}.tgz"] = tgz(members)
    return found


def test_variant_wmt14(tmp_path: Path) -> None:
    out = wmt(tmp_path / "out", filled(tmp_path / "from", numbered()), "wmt14")
    corpora = [("Europe", i) for i in range(150)] + [("Crawl", i) for i in range(150)]
    corpora += [("News", i) for i in range(150)]
    assert lines(out / "train.en") == [f"{what} {i} well @-@ known" for what, i in corpora]
    assert lines(out / "valid.de") == ["&quot; Dev &quot; 1"], "newstest2013, normalised"
    assert lines(out / "test.de") == ["&quot; Test &apos; s &quot; 1"]
    raw = (out / "raw" / "test.de").read_text(encoding="utf-8")
    assert raw == f"{QUOTED}\n", "the reference is as published"
    form = wmt14.corpus("wmt14", ("en", "de")).form
    assert ordinary_text(lines(out / "train.en")[:1], form, "en") == ["Europe 0 well-known"]
    assert form["hyphens"] == "@-@"  # gold trees, whose words are not cut there, are refused


def test_variant_fairseq(tmp_path: Path) -> None:
    """Every 100th of all pairs together validates; the test set is not normalised."""
    out = wmt(tmp_path / "out", filled(tmp_path / "from", numbered()), "fairseq")
    assert lines(out / "valid.en") == [
        "Europe 99 well @-@ known",
        "Crawl 49 well @-@ known",
        "Crawl 149 well @-@ known",
        "News 99 well @-@ known",
    ]
    assert len(lines(out / "train.en")) == 446
    assert lines(out / "test.de") == ["„ Test &apos; s “ 1"]
    assert wmt14.corpus("fairseq").vocab_size == 40_000
    assert "dev.tgz" not in {one.name for one in wmt14.corpus("fairseq").archives}


FRENCH = ("en", "fr")


def test_english_french(tmp_path: Path) -> None:
    """Five corpora in the order of fairseq's script, the last one gzipped in a plain tar."""
    names = ("europarl", "crawl", "un", "news", "giga")
    corpora = {
        name: {g: [f"{name} {i} l\u2019eau d'or" for i in range(300)] for g in FRENCH}
        for name in names
    }
    source = filled(tmp_path / "from", wmt14_en_fr(corpora, {g: [QUOTED] for g in FRENCH}))
    out = wmt(tmp_path / "out", source, "fairseq", FRENCH)
    assert lines(out / "valid.fr") == ["giga 132 l&apos; eau d&apos; or"], "the 1333rd pair"
    assert lines(out / "valid.en") == ["giga 132 l &apos;eau d &apos;or"]
    train = lines(out / "train.fr")
    assert len(train) == 1499
    assert [line.split()[0] for line in train[::300]] == list(names)
    assert lines(out / "test.fr") == ["„ Test&apos; s “ 1"]
    assert manifest(out)["options"]["valid"] == "every 1333rd training pair"
    options = wmt14.corpus("fairseq", FRENCH).dictionaries
    assert options == [], "dictionaries are not joined"
    assert [one.name for one in wmt14.corpus("fairseq", FRENCH).archives] == list(
        wmt14_en_fr(corpora, {g: [] for g in FRENCH})
    )


def test_variant_of_english_german_alone() -> None:
    with refusing("--variant google"):
        wmt14.corpus("google", FRENCH)


def test_too_long_and_too_unequal_pairs_go(tmp_path: Path, no_fairseq: None) -> None:
    """After segmenting, so that 250 counts subwords; neither from newstest."""
    archives = numbered()
    english = [*["a b c"] * 99, "one two three four", *["a b c"] * 50]
    german = [*["a b c"] * 99, "one two", *["a b c"] * 49, "a " * 251]
    news = "training/news-commentary-v9.de-en"
    sides = {f"{news}.en": text(english), f"{news}.de": text(german)}
    archives["training-parallel-nc-v9.tgz"] = tgz(sides)
    dev = {"dev/newstest2013.en": b"a b c d e\n", "dev/newstest2013.de": b"a\n"}
    archives["dev.tgz"] = tgz(dev)
    source = filled(tmp_path / "from", archives)
    told = manifest(data_of(without_hashes(wmt14.corpus("wmt14")), tmp_path / "out", source))
    assert told["sets"]["valid"]["kept"] == 1
    assert (told["sets"]["train"]["kept"], told["sets"]["train"]["dropped"]) == (448, {})
    assert lines(tmp_path / "out-text" / "valid.en") == ["a b c d e"]


def test_variant_google(tmp_path: Path, no_fairseq: None) -> None:
    """Nothing is changed; the dictionary has 32,768 symbols; the reference is WMT's."""
    archives = google()
    source = filled(tmp_path / "from", archives)
    google_corpus = without_hashes(wmt14.corpus("google"))
    data = data_of(google_corpus, tmp_path / "out", source)
    for split, stem, size in (("train", "train.tok.clean", 300), ("test", "newstest2014.tok", 20)):
        for lang in ("en", "de"):
            found = lines(tmp_path / "out-text" / f"{split}.{lang}")
            assert found == [f"{stem} {i}" for i in range(size)]
    assert manifest(data)["sets"]["train"]["kept"] == 300
    assert not (data / "code").exists()
    assert len(lines(data / "raw" / "test.de")) == 20
    options = google_corpus.dictionaries
    assert options == ["--joined-dictionary", "--nwordssrc=32768", "--nwordstgt=32768"]
    filled(source, {"test-full.tgz": full_test({"en": ["one"], "de": ["eins"]})})
    with refusing("test.de", "2014.de.sgm"):
        wmt(tmp_path / "other", source, "google")


def test_published_hashes_are_enforced(tmp_path: Path) -> None:
    source = filled(tmp_path / "from", numbered())
    done = run("wmt14", "--out", tmp_path / "out", "--from", source)
    error = error_line(done, "wmt14")
    assert f"{source}/training-parallel-europarl-v7.tgz: " in error
    assert "sha256" in error
    ready = filled(tmp_path / "ready", google())
    done = run("wmt14", "--out", tmp_path / "o", "--variant", "google", "--from", ready)
    error = error_line(done, "wmt14")
    assert "test-full.tgz: " in error
    assert "a8cd784e006feb32ac6f3d9ec7eb389a" in error
