"""What is no text counts in no score, and what makes a score too high or too low is said."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from refusals import refusing
from torch import Tensor

from collab_lab import open_model, translate
from collab_lab.cli.main import main
from collab_lab.metrics import translate_text
from collab_lab.metrics.generate import Translations
from collab_lab.metrics.generate import translate as of_batches
from collab_lab.metrics.translation_scores import score
from collab_lab.runs.score import score_translations
from collab_lab.runs.translations import hypotheses_in, read_lines, read_system, without_breaks
from collab_lab.runs.writing import begun_with, marks_apart, tag_of
from collab_lab.trained.sentences import samples

SENTENCES = [f"Satz {i} hat viele Wörter und ist wahr ." for i in range(40)]


def read(path: Path) -> list[str]:
    return hypotheses_in(read_lines(path), path)


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def documents(lines: list[str], between: str = " <break> ") -> list[str]:
    return [between.join(lines[i : i + 4]) for i in range(0, len(lines), 4)]


# ---- breaks of documents -------------------------------------------------------------------------


def test_breaks_are_no_words_in_any_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, a run and its folder agree with the score of the plain text."""
    wrong = [line.replace("viele Wörter", "nur Tiere") for line in SENTENCES]
    expected = score(documents(wrong, " "), documents(SENTENCES, " "))
    ours, theirs = documents(wrong), documents(SENTENCES)
    ours[0] = ours[0].replace(" <break> ", " ", 1)
    ours[1] += " <break>"
    reference = write(tmp_path / "data" / "raw" / "test.de", theirs)
    system = read_system(write(tmp_path / "out", ours), reference)
    assert score(system.hypotheses, system.references) == expected
    assert (
        "of 30 breaks between sentences, 1 are missing; 1 are too many" in capsys.readouterr().err
    )
    assert main(["score", str(tmp_path / "out"), "--reference", str(reference)]) == 0
    out = capsys.readouterr().out
    assert f"BLEU {expected.bleu:.2f}" in out
    assert f"ratio {expected.length_ratio:.3f}, 10 sentences" in out
    assert f"chrF {expected.chrf:.2f}" in out
    facts, _ = score_translations(Translations(ours, theirs), tmp_path / "data", "test", "de")
    assert (facts["bleu"], facts["chrf"]) == (expected.bleu, expected.chrf)
    assert [facts[f"breaks_{name}"] for name in ("wanted", "missing", "extra")] == [30, 1, 1]


def test_breaks_that_only_translations_have_are_no_words() -> None:
    """A model of documents may write them, whatever the reference."""
    ours, theirs, breaks = without_breaks(documents(SENTENCES), documents(SENTENCES, " "))
    assert ours == theirs == documents(SENTENCES, " ")
    assert breaks == (0, 0, 30)


def test_white_space_of_a_reference_does_not_depend_on_the_system() -> None:
    theirs = ["Es sind 5\u00a0km  dorthin."]
    _, with_breaks, _ = without_breaks(["Es <break> <break> sind 5 km."], theirs)
    _, without, _ = without_breaks(["Es sind 5 km."], theirs)
    assert with_breaks == without == theirs


def test_text_without_breaks_is_left_alone() -> None:
    assert without_breaks(["a  b"], ["a  b"]) == (["a  b"], ["a  b"], None)


# ---- tokens --------------------------------------------------------------------------------------


def test_tokens_are_scored_as_they_are(tmp_path: Path) -> None:
    """And so in a comparison: 13a would split them again."""
    theirs = ["it &apos;s 5,6 % of a-b", "so it is ."] * 5
    ours = [line.replace("of", "by") for line in theirs]
    write(tmp_path / "raw" / "test.de", theirs)
    form = {"moses": False, "hyphens": None, "lowercased": False, "subwords": "subword_nmt"}
    (tmp_path / "manifest.json").write_text(json.dumps({"form": form}))
    facts, text = score_translations(Translations(ours, theirs), tmp_path, "test", "de")
    assert text == ours
    assert "tok:none" in facts["bleu_signature"]
    assert facts["bleu"] == score(ours, theirs, of_tokens=True).bleu != score(ours, theirs).bleu


def test_files_are_scored_as_the_folder_of_their_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`score FILE` and `compare` of files agree with runs on a folder of tokens."""
    reference = write(tmp_path / "data" / "raw" / "test.de", [f"{s} 5,6 %" for s in SENTENCES])
    form = {"moses": False, "hyphens": None, "lowercased": False, "subwords": "subword_nmt"}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps({"form": form}))
    files = [write(tmp_path / name, [f"{s.replace(of, 'x')} 5,6 %" for s in SENTENCES])
             for name, of in (("a", "Satz"), ("b", "viele"))]  # fmt: skip
    assert main(["score", str(files[0]), "--reference", str(reference)]) == 0
    assert main(["compare", *map(str, files), "--reference", str(reference)]) == 0
    assert capsys.readouterr().out.count("tok:none") == 2


@pytest.mark.parametrize(
    "trace",
    ["Wört \uffedchen", "\uff5fmrk_case_modifier_C\uff60 wort", "Wört ##chen", "<0xD0><0xB6>"],
)
def test_subwords_of_other_programs_are_named(trace: str) -> None:
    with refusing("subwords"):
        score([f"{trace} {i}" for i in range(40)], SENTENCES)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ("\u0120viele", "viele", "'\u0120'"),  # GPT-2's blank
        ("~viele", "viele", "'~'"),
        ("\u0645\u06cc\u062e", "\u0645\u06cc\u200c\u062e", "'\\u200c'"),  # lost on its way
        ("viele, ja", "viele\uff0c ja", "'\uff0c'"),
        ("a source\tviele", "viele", r"'\t'"),
        ("viele\u00a0", "viele", ""),
        ("VIELE", "viele", ""),
    ],
)
def test_characters_of_one_side_are_said(
    ours: str, theirs: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks of any program, and what a normaliser took away."""
    texts = [[line.replace("viele", word) for line in SENTENCES] for word in (ours, theirs)]
    read_system(write(tmp_path / "out", texts[0]), write(tmp_path / "reference", texts[1]))
    errors = capsys.readouterr().err
    assert said in errors
    assert ("hardly ever has" in errors) == bool(said)


def test_letters_apart_from_their_accents_are_said_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apart = [line.replace("ö", "o\u0308") for line in SENTENCES]
    write(tmp_path / "raw" / "test.de", SENTENCES)
    score_translations(Translations(apart, SENTENCES), tmp_path, "test", "de")
    assert "separate from their accents" in capsys.readouterr().err


def test_text_in_true_case_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words inside a sentence and some at its start still have capital letters."""
    small = [f"{line[0].lower()}{line[1:]}" if i % 4 else line for i, line in enumerate(SENTENCES)]
    other = [line.replace("ist", "war") for line in SENTENCES]
    for ours, theirs, number in ((other, SENTENCES, 0), (small, other, 1), (other, small, 1)):
        read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", theirs))
        assert capsys.readouterr().err.count("capital letter at the start") == number


def test_words_in_pieces_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left of subwords without their marks; a few compounds apart are a translation's."""
    pieces = [line.replace("Wörter", "Wör ter") for line in SENTENCES]
    other = [line.replace("ist", "war") for line in SENTENCES]
    few = [*pieces[:4], *other[4:]]
    for ours, theirs, said in (
        (pieces, other, "out"),
        (other, pieces, "reference"),
        (few, other, ""),
    ):
        paths = write(tmp_path / "out", ours), write(tmp_path / "reference", theirs)
        read_system(*paths)
        lines = [line for line in capsys.readouterr().err.splitlines() if "Wör ter" in line]
        assert [str(tmp_path / said) in line for line in lines] == [True] * bool(said)


#: A sentence whose full stop no tokenizer of BLEU takes off, and its first word in pieces.
OTHER_SCRIPTS = {
    "Hindi": ("\u0939\u093f\u0928\u094d\u0926\u0940 {} \u0939\u0948\u0964", 4),
    "Tamil": ("\u0ba4\u0bae\u0bbf\u0bb4\u0bcd {} \u0b89\u0ba3\u0bcd\u0b9f\u0bc1.", 3),
    "Urdu": ("\u0627\u0631\u062f\u0648 {} \u06c1\u06d2\u06d4", 2),
    "Amharic": ("\u12a0\u121b\u122d\u129b {} \u1290\u12cd\u1362", 2),
}


@pytest.mark.parametrize("language", OTHER_SCRIPTS)
def test_tokens_and_pieces_of_other_scripts_are_said(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Vowel signs are parts of words, and full stops need not be ASCII's."""
    sentence, cut = OTHER_SCRIPTS[language]
    text = [sentence.format(f"word{i} other{i}") for i in range(40)]
    translation = [line.replace("other", "throe") for line in text]
    tokens = [f"{line[:-1]} {line[-1]}" for line in translation]
    pieces = [f"{line[:cut]} {line[cut:]}" for line in translation]
    for ours, said in ((translation, ""), (tokens, "before punctuation"), (pieces, "in pieces")):
        read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", text))
        errors = capsys.readouterr().err
        assert said in errors
        assert bool(errors) == bool(said)


def test_blanks_in_text_without_blanks_are_not_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words are no pieces, and no score counts the blanks."""
    theirs = [f"我们第{i}次去北京看他。" for i in range(40)]
    ours = [line.replace("北京", " 北京") for line in theirs]
    system = read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", theirs))
    assert score(system.hypotheses, system.references).bleu == pytest.approx(100)
    assert "in pieces" not in capsys.readouterr().err


@pytest.mark.parametrize("empty", ["out", "reference"])
def test_empty_lines_are_said(
    empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Translations, too: where a search has failed, or lines of a file were lost."""
    some = ["" if i % 3 == 1 else line for i, line in enumerate(SENTENCES)]
    files = [write(tmp_path / name, some if name == empty else SENTENCES)
             for name in ("out", "reference")]  # fmt: skip
    read_system(*files)
    assert f"line 2 of {tmp_path / empty} is empty (13 of 40 are)" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["WÃ¶rter", "W\ufffdrter"])
def test_letters_of_another_encoding_are_said(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a few lines of a reference or of translations."""
    ours = [line.replace("Wörter", wrong) for line in SENTENCES[:3]] + SENTENCES[3:]
    read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", SENTENCES))
    assert f"and 3 of {tmp_path / 'out'} have" in capsys.readouterr().err


# ---- what fairseq-generate was told --------------------------------------------------------------


#: References that begin with different words, and what translations share with them.
OPENINGS = [f"{chr(65 + i % 26)}{i} geht heute in das Haus Nummer {i}." for i in range(60)]
STARTS = {
    "a letter of each": (lambda line, i: f"{line[0]}x sagt das Haus Nummer {i} geht an.", True),
    "a word of each": (lambda line, i: f"{line.split()[0]} ist im Haus Nummer {i} daheim.", True),
    "unknown to the dictionary": (
        lambda line, i: f"{line[0] if i % 10 else '<unk>'}x sagt Nummer {i} an.",
        True,
    ),
    "of 9 in 10": (lambda line, i: f"{line[0] if i % 10 else '?'}x sagt Nummer {i} an.", False),
    "the ends also": (lambda line, i: line.replace("heute", "morgen"), False),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_that_was_given_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--prefix-size, in output of fairseq-generate without its log, whatever its size.

    Good translations begin and end as their references do.
    """
    change, is_said = STARTS[name]
    printed = [f"D-{i}\t-0.3\t{change(line, i)}" for i, line in enumerate(OPENINGS)]
    read_system(write(tmp_path / "out", printed[::-1]), write(tmp_path / "reference", OPENINGS))
    assert ("--prefix-size" in capsys.readouterr().err) == is_said


@pytest.mark.parametrize(("word", "is_said"), [("heute", True), ("<unk>", True), ("nie", False)])
def test_the_reference_in_place_of_translations_is_said(
    word: str, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--score-reference, in output without its log: words that the dictionary lacks differ."""
    lines = [line if i % 10 else line.replace("heute", word) for i, line in enumerate(OPENINGS)]
    printed = [f"D-{i}\t-0.3\t{line}" for i, line in enumerate(lines)]
    read_system(write(tmp_path / "out", printed), write(tmp_path / "reference", OPENINGS))
    assert ("--score-reference" in capsys.readouterr().err) == is_said


def test_a_start_that_was_given_is_said_of_text_without_blanks() -> None:
    text = [f"{'我们今天去学校'[i % 7]}想了解{i}号房间的新情况好吗" for i in range(60)]
    assert begun_with([f"{line[0]}不知道这是什么东西" for line in text], text) == 1
    assert begun_with([f"{line[:4]}任何{line[5:]}" for line in text], text) == 0


def test_a_share_of_starts_is_the_counted_one() -> None:
    """Of the first two words 19 of 20, which is enough; of fewer nothing is said."""
    theirs = [f"Wort{i} Zwei{i} folgt hier noch etwas {i}" for i in range(60)]
    for wrong, share in ((3, 0.95), (4, 0.0)):
        begun = (" ".join(line.split()[:2]) for line in theirs)
        ours = [f"{'x' if i < wrong else ''}{two} anders" for i, two in enumerate(begun)]
        assert begun_with(ours, theirs) == share


def test_references_of_blanks_begin_with_no_word() -> None:
    theirs = [f"Wort{i} Zwei{i} folgt hier noch etwas {i}" for i in range(60)]
    blank = " " * 20
    assert begun_with([*theirs, "nichts"], [*theirs, blank]) == begun_with(theirs, theirs)


def test_openings_that_many_references_have_show_nothing() -> None:
    """Captions begin with one of few words, which any model guesses."""
    words = ["Ein", "Eine", "Zwei"]
    theirs = [f"{words[i % 3]} Menschen sehen {i} Hunde im Gras" for i in range(99)]
    assert begun_with([f"{line.split()[0]} Leute" for line in theirs], theirs) == 0


@pytest.mark.parametrize(
    ("log", "option"),
    [
        ("INFO | {'beam': 5, 'prefix_size': 1, 'constraints': None}", "--prefix-size"),
        ("INFO | {'beam': 5, 'prefix_size': 0, 'constraints': 'ordered'}", "--constraints"),
        ("C-0\tSatz", "--constraints"),  # of fairseq-interactive
        ("INFO | {'beam': 5, 'prefix_size': 0, 'constraints': None}", ""),
    ],
)
def test_words_that_were_given_are_said(
    log: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the log: a start of one subword changes few lines."""
    read(write(tmp_path / "out", [log, "D-0\t-0.2\tein Satz"]))
    said = capsys.readouterr().err
    assert (option in said) if option else not said


def test_brackets_of_the_penn_treebank_are_tokens() -> None:
    theirs = [f"Satz ({number})" for number in range(30)]
    ours = [f"Satz -LRB- {number} -RRB-" for number in range(30)]
    with refusing("30 of 30 hypotheses are in tokens of the Penn Treebank"):
        score(ours, theirs)
    assert score(ours, ours).bleu > 99, "which the reference also has"


def test_a_word_that_only_translations_begin_with_is_named() -> None:
    """A tag of the language without any mark."""
    theirs = [f"{'Ein' if number % 2 else 'Zwei'} Satz {number}" for number in range(30)]
    assert tag_of([f"de {line}" for line in theirs], theirs) == "de"
    assert tag_of(theirs, theirs) is None
    assert tag_of(["Ein Satz"] * 30, theirs) is None, "references begin so"
    assert tag_of([""] * 30, theirs) is None


def test_the_best_has_the_highest_score(tmp_path: Path) -> None:
    """Wherever it stands: `sort` puts -1.5 before -0.2."""
    printed = ["D-0\t-1.5\tworse", "D-0\t-0.2\tbest", "D-1\t-2e-05\tbest", "D-1\t-inf\tworst"]
    assert read(write(tmp_path / "out", printed)) == ["best", "best"]


# ---- how long a translation may be ---------------------------------------------------------------


def test_documents_are_not_cut_at_fairseqs_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 x + 20 tokens, as in runs; what ends there is counted."""
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    asked = []

    def recording(*args: Any) -> Translations:
        asked.append(args[3])
        return of_batches(*args)._replace(at_limit=1)

    monkeypatch.setattr(translate_text, "translated", recording)
    translate(model, [model.task.source_dictionary[10]], beam=1)
    assert asked == [{"beam": 1, "max_len_a": 2, "max_len_b": 20}]
    assert "1 of 1 translations end at the limit" in capsys.readouterr().err


def test_a_break_is_no_word_of_a_model_of_sentences(tmp_path: Path) -> None:
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    with refusing("sentences[1]", "<break>"):
        translate(model, ["a", "a <break> b"])


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ((200, 200, 9), "2 translations"),
        ((200, 201), ""),  # a longer one had another limit
        ((50, 50, 50, 9), "end at 50 tokens"),  # several have a length that no other exceeds
        ((50, 50, 49, 9), ""),
        ((9, 9, 9, 9), ""),
    ],
)
def test_translations_at_fairseqs_limit_are_said(
    tokens: tuple[int, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq prints the score of each token, and of the end; its log may be in another file."""
    printed = [f"D-{i}\t-1\ta\nP-{i}\t{' '.join(['-1.0'] * (n + 1))}" for i, n in enumerate(tokens)]
    read(write(tmp_path / "out", printed))
    errors = capsys.readouterr().err
    assert said in errors if said else "limit" not in errors


@pytest.mark.parametrize(
    ("limits", "tokens", "said"),
    [
        ("'max_len_a': 0, 'max_len_b': 10", (10, 10, 9, 8), "2 translations"),
        ("'max_len_a': 0.0, 'max_len_b': 11", (10, 10, 9, 8), ""),
        ("'max_len_a': 2.0, 'max_len_b': 4", (12, 12, 13, 11), "3 translations"),
        ("'max_len_a': 2.0, 'max_len_b': 4", (12, 12, 11, 11), ""),  # as few may be right
    ],
)
def test_translations_at_other_limits_are_said(
    limits: str, tokens: tuple[int, ...], said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The log of fairseq-generate has its options; sources have three words and an end here."""
    printed = [f"INFO | {{'beam': 5, {limits}, 'min_len': 1}}"]
    for i, n in enumerate(tokens):
        printed += [f"S-{i}\ta b c", f"D-{i}\t-1\ta", f"P-{i}\t{' '.join(['-1.0'] * (n + 1))}"]
    read(write(tmp_path / "out", printed))
    errors = capsys.readouterr().err
    assert said in errors if said else "limit" not in errors


@pytest.mark.parametrize(
    "mark",
    ["< break >", "&lt;break&gt;", "<BREAK>", "[SEP]", "|||", "</s>", "__de__", "\\n", "<T>"],
)
def test_marks_of_both_texts_are_said(
    mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They count as words that every translation has right."""
    reference = [f"{line} {mark} {line}" for line in SENTENCES]
    ours = [line.replace("viele", "keine") for line in reference]
    read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", reference))
    assert "have marks such as" in capsys.readouterr().err


def test_a_text_without_blanks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    joined = [line.replace(" ", "") for line in SENTENCES]
    read_system(write(tmp_path / "out", joined), write(tmp_path / "reference", SENTENCES))
    assert "have blanks between words" in capsys.readouterr().err


def test_a_single_byte_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Characters that a model writes as bytes are rare, and no reference has such words."""
    ours = ["W<0xC3><0xB6>rter", *SENTENCES[1:]]
    read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", SENTENCES))
    assert "bytes of characters" in capsys.readouterr().err


def test_last_words_that_were_given_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by a model that writes from right to left."""
    reference = [f"{line[:-1]} mit {i * i} Enden {chr(97 + i % 26) * 3}{i}." for i, line in
                 enumerate(SENTENCES * 2)]  # fmt: skip
    ours = [f"Nur dies {' '.join(line.split()[-3:])}" for line in reference]
    read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", reference))
    assert "was the model given their last words" in capsys.readouterr().err


def test_first_words_that_were_given_are_said_of_few_sentences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Captions often begin with the same word, so that two words also count."""
    reference = [f"Ein {chr(97 + i % 26)}{i} läuft am Strand {i}" for i in range(60)]
    ours = [f"{' '.join(line.split()[:3])} in einem Park" for line in reference]
    read_system(write(tmp_path / "out", ours), write(tmp_path / "reference", reference))
    assert "was the model given their first words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "name", "is_said"),
    [
        ("Satz {} hat viele Wörter .", "test.de", True),
        ("didn 't {} ask that ?", "test.en", True),
        ("est-il {} ici ?", "test.fr", False),
        ("Satz {} hat viele Wörter.", "test.de", False),
    ],
)
def test_a_reference_of_tokens_is_said(
    line: str, name: str, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if the translations are tokens, too: their score is not that of text."""
    reference = [line.format(i) for i in range(40)]
    paths = [write(tmp_path / out, text) for out, text in (("out", reference), (name, reference))]
    read_system(*paths)
    assert ("punctuation apart from its word, as tokens" in capsys.readouterr().err) == is_said
    facts, _ = score_translations(
        Translations(reference, reference),
        write(tmp_path / "data" / "raw" / name, reference).parents[1],
        "test",
        name[-2:],
    )
    assert facts["marks_apart"] == 40 * is_said


@pytest.mark.parametrize(("name", "number"), [("t.fr.gz", 0), ("t.fr.txt", 0), ("t.de.gz", 40)])
def test_the_language_of_a_reference_with_two_endings(name: str, number: int) -> None:
    assert marks_apart([f"est-il {i} ici ?" for i in range(40)], Path(name)) == number


def test_translations_as_plain_text_and_as_fairseq_prints_them(tmp_path: Path) -> None:
    lines = ["D-1\t-0.5\tzwei", "H-0\t-0.5\teins @-@", "D-0\t-0.5\teins", "D-0\t-0.9\tein", "ok"]
    (tmp_path / "printed").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "plain").write_text("eins\nzwei\n")
    for name in ("printed", "plain"):
        assert read(tmp_path / name) == ["eins", "zwei"]
    (tmp_path / "printed").write_text("D-1\t-0.5\tzwei\n")
    with refusing("hypothesis 0", "1 of 2"):
        read(tmp_path / "printed")
    (tmp_path / "printed").write_text("".join(f"{line}\n" for line in 2 * lines))
    with refusing("sentence 1"):  # two outputs, one appended to the other
        read(tmp_path / "printed")
    (tmp_path / "printed").write_text("S-0\ta dog\n")
    with refusing(str(tmp_path / "printed")):
        read(tmp_path / "printed")


def test_translations_from_a_pipe_are_read_once(tmp_path: Path) -> None:
    """As the shell's <(...) gives them."""
    pipe, reference = tmp_path / "pipe", write(tmp_path / "reference", ["ein Satz"])
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("D-0\t-0.2\tein Satz\n",))
    writer.start()
    system = read_system(pipe, reference)
    writer.join()
    assert system.hypotheses == system.references == ["ein Satz"]


def test_two_outputs_that_were_sorted(tmp_path: Path) -> None:
    """Each sentence would have the better of its two translations."""
    printed = ["S-0\ta", "S-0\ta", "D-0\t-0.2\tx", "D-0\t-0.3\ty"]
    with refusing("two outputs of sentence 0"):
        read(write(tmp_path / "out", printed))


def test_translations_at_the_limit_are_those_without_room_for_a_word_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here 4 words: a translation of 3 words and its end has as many tokens, and is not cut."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    batches, end = samples(model, "valid", 9), model.task.target_dictionary.eos()

    def found(generator: Any, models: Any, sample: Any) -> list[list[dict[str, Tensor]]]:
        words = [3 + index % 2 for index in sample["id"].tolist()]
        worse = {"tokens": torch.tensor([11] * 9 + [end])}
        return [[{"tokens": torch.tensor([10] * number + [end])}, worse] for number in words]

    monkeypatch.setattr(model.task, "inference_step", found)
    limit = {"max_len_a": 0, "max_len_b": 4}
    ids = [index for batch in batches for index in batch["id"].tolist()]
    made = of_batches(model.model, model.task, batches, limit, None)
    assert made.at_limit == sum(index % 2 for index in ids)
    word = model.task.target_dictionary[10]
    assert made.hypotheses == [" ".join([word] * (3 + index % 2)) for index in sorted(ids)]
