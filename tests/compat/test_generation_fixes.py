"""Generation: repeated n-grams, lines and options that stock fairseq stops at, torch's warnings."""

from __future__ import annotations

import copy
import math
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
import toy_checkpoints
from commands import refuse, succeed
from fairseq import utils
from fairseq.data import data_utils
from fairseq.modules import MultiheadAttention, multihead_attention
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import LexicallyConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator
from refusals import refusing
from toy_checkpoints import COPY

PAD, EOS = 1, 2

# ---- --no-repeat-ngram-size ----------------------------------------------------------------------


def forbidden(words: list[int], n: int) -> set[int]:
    """Words that would end an n-gram of ``words`` again, by trying each."""
    ngrams = {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
    return {word for word in range(9) if (*words, word)[-n:] in ngrams and len(words) >= n - 1}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_words_that_would_repeat_an_ngram(n: int, scripted: bool) -> None:
    """The buffer is longer than the hypotheses, as fairseq's is."""
    chance, block = random.Random(n), NGramRepeatBlock(n)
    block = torch.jit.script(block) if scripted else block
    for step in range(12):
        rows = [chance.choices((4, 5, 6), k=step) for _ in range(4)]
        tokens = torch.tensor([[EOS, *row, *[PAD] * (14 - step)] for row in rows])
        log_probs = torch.randn(4, 9)
        found = block(tokens, log_probs.clone(), 2, 2, step)
        for row, before, after in zip(rows, log_probs, found, strict=True):
            before[[*forbidden(row, n)]] = -math.inf
            assert after.tolist() == before.tolist()


def test_a_word_without_alternative_is_allowed() -> None:
    """Of a prefix, or the end at the greatest length: else the whole hypothesis would be lost."""
    tokens = torch.tensor([[EOS, 4, 5, 4, PAD, PAD]])
    log_probs = torch.full((1, 9), -math.inf)
    log_probs[0, 5] = -1
    assert NGramRepeatBlock(2)(tokens, log_probs.clone(), 1, 1, 3).equal(log_probs)


def translations(**options: Any) -> list[list[int]]:
    torch.manual_seed(1)
    symbols = toy.task()
    model = toy.randomised(toy.model("transformer", symbols).eval(), 0.3)
    generator = SequenceGenerator([model], symbols.target_dictionary, 4, max_len_b=30, **options)
    found = generator.generate([model], {"net_input": toy.batch(symbols)})
    return [hypothesis["tokens"].tolist() for beams in found for hypothesis in beams]


def repeats(words: list[int], n: int) -> bool:
    ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(ngrams) > len({*ngrams})


def test_no_translation_repeats_an_ngram() -> None:
    plain = translations()
    for n in (1, 2, 3):
        assert any(repeats(words, n) for words in plain)
        assert not any(repeats(words, n) for words in translations(no_repeat_ngram_size=n))
    assert translations(no_repeat_ngram_size=40) == plain


# ---- masks ---------------------------------------------------------------------------------------


def attend(**given: Any) -> torch.Tensor:
    torch.manual_seed(1)
    attention, x = MultiheadAttention(8, 2, self_attention=True), torch.randn(3, 2, 8)
    return attention(x, x, x, **given)[0]


def test_masks_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a warning, and with stock's numbers."""
    padding = torch.tensor([[False, False, True], [False, False, False]])
    future = utils.fill_with_neg_inf(torch.zeros(3, 3)).triu(1)
    given = {"key_padding_mask": padding, "attn_mask": future}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = attend(**given), attend(key_padding_mask=padding), attend()
    monkeypatch.setattr(multihead_attention, "F", torch.nn.functional)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask"):
        assert found[0].equal(attend(**given))
    assert found[1].equal(attend(key_padding_mask=padding))
    assert found[2].equal(attend())


def test_layers_without_heads_are_made_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Initializing zero-element")
        model = toy.model("transformer_headsize_n", heads_in_encoder="0,2", head_size=3)
    assert copy.deepcopy(model).eval()(**toy.batch())[0].isfinite().all()


# ---- options and lines that stock stops at -------------------------------------------------------

TASK = ["--source-lang=en", "--target-lang=de", "--cpu"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of at most six words a line, ``</s>`` included."""
    path = tmp_path_factory.mktemp("model") / "model.pt"
    return toy_checkpoints.write(path, max_source_positions=6)


def generator_of(search: Any = None) -> tuple[Any, dict[str, Any]]:
    symbols = toy.task()
    model, words = toy.model("transformer", symbols), symbols.target_dictionary
    strategy = search(words) if search else None
    generator = SequenceGenerator([model], words, max_len_b=5, search_strategy=strategy)
    return generator, {"net_input": toy.batch(symbols)}


def test_constraints_without_a_search_for_them_and_the_reverse() -> None:
    generator, sample = generator_of()
    with refusing("constraints"):
        generator.generate([], sample, constraints=torch.ones(3, 4).long())
    generator, sample = generator_of(lambda words: LexicallyConstrainedBeamSearch(words, "ordered"))
    with refusing("constraints"):
        generator.generate([], sample)


def test_a_least_length_above_the_limit() -> None:
    generator, sample = generator_of()
    generator.min_len, generator.max_len_a, generator.max_len_b = 4, 0, 3
    with refusing("min_len", "3"):
        generator.generate([], sample)


def test_sentences_above_max_tokens() -> None:
    sizes = {"num_tokens_vec": np.array([3, 9, 2]), "max_tokens": 4}
    with refusing("--max-tokens"):
        data_utils.batch_by_size(np.arange(3), None, **sizes)
    batches = data_utils.batch_by_size(np.arange(3), None, **{**sizes, "max_tokens": 18})
    assert [batch.tolist() for batch in map(np.asarray, batches)] == [[0, 1], [2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options", "word"),
    [
        ("fairseq-generate", "--constraints", "fairseq-interactive"),
        ("fairseq-generate", "--sampling --beam=2", "--nbest"),
        ("fairseq-generate", "--gen-subset=nope", "nope"),
        ("fairseq-interactive", "--print-alignment=soft", "hard"),
        ("fairseq-interactive", "--prefix-size=2", "no references"),
        ("fairseq-interactive", "--score-reference", "no references"),
        ("fairseq-generate", "--scoring=wer --skip-invalid-size-inputs-valid-test", "editdistance"),
        ("fairseq-generate", "--beam=2", "(=(7, 7))"),
    ],
)
def test_one_line_for_options(command: str, options: str, word: str, checkpoint: Path) -> None:
    line = refuse(command, COPY, "--path", checkpoint, *TASK, *options.split())
    assert line.startswith(f"{command}: error: ")
    assert word in line


@pytest.mark.slow
def test_one_line_for_a_package_that_trains(tmp_path: Path) -> None:
    options = ["--arch=transformer", "--ddp-backend=fully_sharded", "--optimizer=adam"]
    options += ["--max-tokens=99", "--max-update=1", f"--save-dir={tmp_path}"]
    assert "fairscale" in refuse("fairseq-train", COPY, *TASK, *options)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "--buffer-size=9 --max-tokens=20", "--max-tokens=4"])
def test_overlong_lines_are_named_and_others_translated(options: str, checkpoint: Path) -> None:
    short, too_long = "w1 w2", " ".join(["w3"] * 6)
    text = "\n".join([short, too_long, short, too_long, ""])
    words = ["fairseq-interactive", COPY, "--path", checkpoint, *TASK, *options.split()]
    words += ["--max-len-b=9"]  # else hundreds of words: it has not learnt to end
    printed = succeed(*words, stdin=text)
    translated = [line for line in printed.splitlines() if line.startswith("H-")]
    assert [line.split("\t")[0] for line in translated] == ["H-0", "H-2"]
    assert translated[0].split("\t")[1:] == translated[1].split("\t")[1:]
    skipped = [line for line in printed.splitlines() if "is not translated" in line]
    assert ["line 2 " in skipped[0], "line 4 " in skipped[1], len(skipped)] == [True, True, 2]
    alone = succeed(*words, stdin=f"{short}\n")
    assert translated[0] in alone
