"""Checks that translations belong to their references: a wrong reference would also give a score.

Lines are compared by the sequences of letters that they share, whatever their tokens and case.  A
line of a trained model shares more with its reference than with other lines.  A line of a model
that always says the same shares as much with any line, so this case is not an error.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collab_common.errors import UserError
from collab_common.progress import say
from collab_lab.metrics.marks import UNKNOWN
from collab_lab.metrics.translation_scores import tokenizer

Values = np.ndarray[tuple[int], np.dtype[np.float64]]  # one of each line, or each window of lines

#: Length of the runs of letters, and in scripts without spaces, whose words are shorter.
RUN, SHORT_RUN = 5, 2
#: The fewest lines that are judged, and the lines of the shortest window.
LEAST, WINDOW = 20, 50
#: Offsets at which translations are compared with references.
SHIFTS = tuple(shift for shift in range(-10, 11) if shift)
#: Probability of a false alarm, if neither of two pairings is better.
CHANCE = 1e-3
#: A mean within NEAR standard errors is chance; a block beyond FAR has another mean.
NEAR, FAR = 3, 5
#: Share of the runs of translations that references also have; in another language, 4 to 9%.
KNOWN = 1 / 8
#: Lines of a block that may come from another text; in a text below two blocks, half of its lines.
BLOCK = 100
GIVE_REFERENCE = "give the --reference of the set that was translated"


def letter_runs(text: str, length: int = RUN) -> set[str]:
    """All sequences of ``length`` letters and digits, without spaces and unknown words."""
    runs = set()
    for part in UNKNOWN.split(text):
        plain = unicodedata.normalize("NFKC", html.unescape(part)).casefold()
        letters = "".join(filter(str.isalnum, plain))
        runs |= {letters[i : i + length] for i in range(len(letters) - length + 1)}
    return runs


def check_lines(
    hypotheses: Sequence[str], references: Sequence[str], translations: Path, reference: Path
) -> None:
    """Compare each translation with its reference and with the references of other lines.

    A line on standard error says if translations share no more with their own references than with
    distant ones, or hardly anything with any.

    Raises:
        UserError: in 50 lines or more (in all, if there are fewer) translations share far more with
            the lines above or below their references.
    """
    number = len(references)
    if number < LEAST:
        say(f"{translations} has few lines: whether they are of {reference} is not checked")
        return
    length = RUN if tokenizer(references) == "13a" else SHORT_RUN
    ours, theirs = (
        [letter_runs(line, length) for line in text] for text in (hypotheses, references)
    )

    def shared(shift: int) -> Values:
        """Runs that each translation shares with the reference ``shift`` lines below its own."""
        others = theirs[shift:] + theirs[:shift]
        return np.array([len(one & other) for one, other in zip(ours, others, strict=True)], float)

    distant = np.mean([shared(number // 2 + i) for i in range(-2, 3)], axis=0)
    own = shared(0) - distant
    for shift in sorted(SHIFTS, key=abs):
        if 4 * abs(shift) <= number and (window := _better(own, shared(shift) - distant)):
            first, last = window
            problem = (
                f"is shifted: lines {first + 1} to {last} of {translations} fit those {abs(shift)} "
                f"{'below' if shift > 0 else 'above'} theirs"
            )
            raise UserError(problem, reference, GIVE_REFERENCE)
    known = set().union(*theirs)
    found = [run in known for line in ours for run in line]
    if sum(found) <= KNOWN * len(found):
        say(f"warning: {translations} has hardly any words of {reference}: is it the reference?")
        return
    share = own / [len(runs) + 1 for runs in theirs]
    _say_if_unrelated(share, translations, reference)


def _better(own: Values, other: Values) -> tuple[int, int] | None:
    """The first lines, from and to, in which the other pairing is clearly better; None if none are.

    It shares twice as much, and more lines gain than lose by Hoeffding's bound: n signs of no
    preference have a sum above t with a probability of at most ``exp(-t^2 / 2n)``.

    Args:
        own, other: runs that each line shares, less those that it shares with distant lines.
    """
    number, size = len(own), min(WINDOW, len(own))
    while size <= number:
        signs = np.sign(other - own)
        gain, changed = _sums(signs, size), _sums(abs(signs), size)
        tests = len(SHIFTS) * len(gain)
        is_better = gain * abs(gain) > 2 * changed * math.log(tests / CHANCE)
        is_better &= _sums(other, size) > 2 * _sums(own, size)
        if is_better.any():
            first = int(is_better.argmax())
            return first, first + size
        size = number if size < number < 2 * size else 2 * size
    return None


def _sums(values: Values, size: int) -> Values:
    """Sums over each window of ``size`` lines."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return sums[size:] - sums[:-size]


def _say_if_unrelated(gain: Values, translations: Path, reference: Path) -> None:
    """Say where translations gain nothing by their own references: in all lines, or in a block.

    Args:
        gain: share of its reference that each translation has, less that of distant ones.
    """
    number, mean, spread = len(gain), gain.mean(), gain.std()
    size = min(BLOCK, max(LEAST, number // 2))
    error = spread / size**0.5

    def is_foreign(start: int) -> bool:
        inside = gain[start : start + size].mean()
        outside = np.delete(gain, slice(start, start + size))
        is_chance = inside <= NEAR * error
        return bool(is_chance and outside.size and outside.mean() - inside > FAR * error)

    if mean <= NEAR * spread / number**0.5:
        where = "the lines"
    elif foreign := [
        f"{start + 1} to {start + size}"
        for start in range(0, number - size + 1, size)
        if is_foreign(start)
    ]:
        where = f"lines {', '.join(foreign)}"
    else:
        return
    doubt = f"share no more with those of {reference} than with its other lines"
    say(f"warning: {where} of {translations} {doubt}: is it the reference?")
