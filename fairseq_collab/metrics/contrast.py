"""Does a model give the correct translation a higher probability than one with an error in it?

Sennrich 2017, "How grammatical is character-level neural machine translation? Assessing MT quality
with contrastive translation pairs" (LingEval97); pairs built from machine translations: Vamvas and
Sennrich 2021, "On the limits of minimal pairs in contrastive evaluation" (DistilLingEval).

    accuracy = share of pairs with  score(x, y) > score(x, y')
    score(x, y) = sum_t log p(y_t | x, y_<t)

for a source x, its correct translation y and the contrastive y', end of sentence included.  That is
LingEval97's definition (its evaluate.py, too, counts a tie as wrong).  The code of DistilLingEval
divides scores by the number of tokens; ``normalised`` is the accuracy with that.

Intervals are Wilson's (1927) for a share of pairs: of k correct ones of n, with p = k/n, z = 1.96,

    (p + z^2/2n -+ z sqrt(p(1 - p)/n + z^2/4n^2)) / (1 + z^2/n)

They take pairs as independent, though several may be made of one sentence.  Two models are compared
by sentence instead (``compare --seeds``), with what :class:`BySentence` keeps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab_common.command import check_folder
from collab_common.errors import UserError
from data_prep.parallel_text import lines_of
from fairseq_collab.metrics.rouge import Interval

if TYPE_CHECKING:
    from fairseq_collab.metrics.forced import Scores

Z = 1.959963984540054  # the normal distribution has 95 % within -z and z
SIDES = ("src", "tgt.correct", "tgt.incorrect")
#: Upper ends of the bins of distances; what is beyond is one more.
BINS = (("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4-6", 6), ("7-10", 10))
BEYOND = ">10"
BIN_NAMES = (*dict(BINS), BEYOND)
_OPENING = '"\u201e('
_MARKS = tuple(',;:.!?()"\u201e\u201c\u201d\u2013')


@dataclass(frozen=True)
class Accuracy(Interval):
    """Correct pairs of 100, with Wilson's 95 % interval."""

    pairs: int


@dataclass(frozen=True)
class Contrast:
    """What a model makes of one phenomenon.

    Attributes:
        normalised: with scores divided by the number of tokens.
        by_distance: by :func:`distance`; empty for phenomena without one.
    """

    accuracy: Accuracy
    normalised: Accuracy
    by_distance: dict[str, Accuracy]


@dataclass(frozen=True)
class BySentence:
    """What a model makes of the pairs of each sentence: ``contrast.json`` of a run.

    Attributes:
        signature: of the pairs (:func:`signature`).
        counts: of each phenomenon, ``[right pairs, pairs]`` of every distinct source, in their
            order.
    """

    signature: str
    counts: dict[str, list[list[int]]]

    def __post_init__(self) -> None:
        for phenomenon, rows in self.counts.items():
            if any(len(row) != 2 for row in rows):
                raise UserError(f"counts of {phenomenon} are not all of right pairs and of pairs")


@dataclass(frozen=True)
class Pairs:
    """Contrastive pairs of one phenomenon: ordinary text, a line each."""

    name: str
    sources: list[str]
    correct: list[str]
    incorrect: list[str]

    def some(self, number: int | None) -> Pairs:
        """So many of them at most, evenly spread."""
        size = len(self.sources)
        if number is None or number >= size:
            return self
        chosen = [i * size // number for i in range(number)]
        sides = (self.sources, self.correct, self.incorrect)
        return Pairs(self.name, *([side[i] for i in chosen] for side in sides))


def read_pairs(folder: Path, languages: tuple[str, str], number: int | None = None) -> list[Pairs]:
    """The phenomena in a folder: a subfolder each, with src.L, tgt.correct.M, tgt.incorrect.M.

    Files may be gzipped.  A phenomenon is called as its folder, with "-" for ".".

    Args:
        languages: source and target of the model, L and M.
        number: of pairs of each phenomenon, at most.
    """
    todo = "give a folder of contrastive pairs: PHENOMENON/src.en, tgt.correct.de, tgt.incorrect.de"
    check_folder(folder, todo)
    names = dict(zip(SIDES, (languages[0], languages[1], languages[1]), strict=True))
    homes = [one for one in (folder, *sorted(folder.iterdir())) if any(one.glob("src.*"))]
    if not homes:
        raise UserError("holds no contrastive pairs", folder, todo)
    found = []
    for home in homes:
        sides = [_lines(home, side, language) for side, language in names.items()]
        sizes = [len(lines) for lines in sides]
        if len(set(sizes)) > 1 or not sizes[0]:
            what = f"has {', '.join(map(str, sizes))} lines in {', '.join(SIDES)}"
            raise UserError(what, home, "give as many of each, and some")
        found.append(Pairs(home.resolve().name.replace(".", "-"), *sides).some(number))
    return found


def _lines(home: Path, side: str, language: str) -> list[str]:
    for path in (home / f"{side}.{language}", home / f"{side}.{language}.gz"):
        if path.is_file():
            return list(lines_of(path))
    there = ", ".join(sorted(path.name for path in home.glob(f"{side}.*"))) or "none"
    todo = "give pairs in the model's languages, or a model for the pairs'"
    raise UserError(f"there is no {side}.{language} (there: {there})", home, todo)


def signature(phenomena: Iterable[Pairs]) -> str:
    """What the accuracies are of, and how they are counted."""
    digest = hashlib.sha256()
    for pairs in phenomena:
        for side in (pairs.sources, pairs.correct, pairs.incorrect):
            digest.update("\n".join([pairs.name, *side, ""]).encode())
    return f"pairs:{digest.hexdigest()[:16]}|score:sum|ties:wrong|interval:wilson"


def contrast(
    model: Any,
    task: Any,
    phenomena: Sequence[Pairs],
    segment: Mapping[str, Callable[[list[str]], list[str]]],
) -> tuple[dict[str, Contrast], BySentence]:
    """Score all pairs, each distinct source and target once: accuracies, and what they are of.

    Args:
        segment: text into subwords, by language.
    """
    from fairseq_collab.metrics.forced import score  # here: a table of accuracies needs no torch

    into_source, into_target = segment[task.cfg.source_lang], segment[task.cfg.target_lang]
    sides = []
    for pairs in phenomena:
        sources = into_source(pairs.sources)
        for targets in (pairs.correct, pairs.incorrect):
            sides.append(list(zip(sources, into_target(targets), strict=True)))
    distinct = list(dict.fromkeys(pair for side in sides for pair in side))
    scores = dict(zip(distinct, score(model, task, distinct), strict=True))
    found, counts = {}, {}
    for pairs, correct, incorrect in zip(phenomena, sides[::2], sides[1::2], strict=True):
        ours, theirs = ([scores[pair] for pair in side] for side in (correct, incorrect))
        found[pairs.name], counts[pairs.name] = judged(pairs, ours, theirs)
    return found, BySentence(signature(phenomena), counts)


def judged(
    pairs: Pairs, correct: Sequence[Scores], incorrect: Sequence[Scores]
) -> tuple[Contrast, list[list[int]]]:
    """Accuracies from the scores of a phenomenon's correct and incorrect targets; by sentence."""
    both = list(zip(correct, incorrect, strict=True))
    right = [a.total > b.total for a, b in both]
    bins: dict[str, list[bool]] = {}
    for one, good, bad in zip(right, pairs.correct, pairs.incorrect, strict=True):
        number = distance(pairs.name, good, bad)
        if number is not None:
            bins.setdefault(binned(number), []).append(one)
    judgement = Contrast(
        accuracy=accuracy(right),
        normalised=accuracy([a.mean > b.mean for a, b in both]),
        by_distance={name: accuracy(bins[name]) for name in BIN_NAMES if name in bins},
    )
    return judgement, by_sentence(pairs.sources, right)


def distance(phenomenon: str, correct: str, incorrect: str) -> int | None:
    """Words between what agrees, told from a German target's words alone.

    LingEval97 has distances from parses; the pairs of DistilLingEval come without.  So these stand
    in, which order pairs by difficulty; None for other phenomena, and where no change is found:

        noun-phrase agreement     from the changed article to the next word with a capital letter,
                                  which in German is its noun, or a noun in front of it
        subject-verb agreement    from the beginning of the clause (behind the last punctuation
                                  mark) to the changed verb: as far as a subject before it can be
    """
    words = correct.split()
    both = zip_longest(words, incorrect.split())
    changed = next((place for place, (a, b) in enumerate(both) if a != b), None)
    if changed is None or changed >= len(words):
        return None
    if phenomenon.startswith("np_agreement"):
        after = (word.lstrip(_OPENING) for word in words[changed + 1 :])
        return next((i for i, word in enumerate(after, 1) if word[:1].isupper()), None)
    if phenomenon.startswith("subj_verb_agreement"):
        start = next((i + 1 for i in reversed(range(changed)) if words[i].endswith(_MARKS)), 0)
        return changed - start
    return None


def binned(number: int) -> str:
    """The bin of a distance."""
    return next((name for name, end in BINS if number <= end), BEYOND)


def by_sentence(sources: Sequence[str], right: Sequence[bool]) -> list[list[int]]:
    """Right pairs and all pairs of each distinct source, in their order."""
    counts: dict[str, list[int]] = {}
    for source, one in zip(sources, right, strict=True):
        count = counts.setdefault(source, [0, 0])
        count[0] += one
        count[1] += 1
    return list(counts.values())


def share_right(totals: Any) -> float:
    """Right pairs of 100, of an array ``[right pairs, pairs]``."""
    return float(100 * totals[0] / totals[1])


def accuracy(right: Sequence[bool]) -> Accuracy:
    """The share of true ones, with Wilson's interval."""
    k, n = sum(right), len(right)
    p, z2 = k / n, Z**2
    middle, half = p + z2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n**2))
    low, high = ((middle + sign * half) / (1 + z2 / n) for sign in (-1, 1))
    return Accuracy(100 * p, 100 * max(low, 0.0), 100 * min(high, 1.0), n)


def summary(found: Mapping[str, Contrast]) -> str:
    """A line a phenomenon, and one a distance."""
    lines = []
    for name, one in found.items():
        lines.append(
            f"{name}: {one.accuracy} of {one.accuracy.pairs} pairs; "
            f"by scores a token {one.normalised.mean:.2f}"
        )
        lines += [
            f"    distance {words}: {part} of {part.pairs}"
            for words, part in one.by_distance.items()
        ]
    return "\n".join(lines)
