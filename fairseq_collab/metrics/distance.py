"""How far apart what must agree stands in a German target, told from its words alone.

LingEval97 has distances from parses; the pairs of DistilLingEval come without.  So these stand in:

    noun-phrase agreement     words from the changed article to the next word with a capital letter,
                              which in German is its noun, or a noun in front of it
    subject-verb agreement    words from the beginning of the clause (behind the last punctuation
                              mark) to the changed verb: as far as a subject before it can be

They order pairs by difficulty; they are not the paper's distances.
"""

from __future__ import annotations

from itertools import zip_longest

#: Upper ends of the bins; what is beyond is one more.
BINS = (("0", 0), ("1", 1), ("2", 2), ("3", 3), ("4-6", 6), ("7-10", 10))
BEYOND = ">10"
NAMES = (*dict(BINS), BEYOND)
_OPENING = '"\u201e('
_MARKS = tuple(',;:.!?()"\u201e\u201c\u201d\u2013')


def distance(phenomenon: str, correct: str, incorrect: str) -> int | None:
    """Words between what agrees; None where nothing is known of the phenomenon, or none is found.

    Args:
        phenomenon: its name, which begins with ``np_agreement`` or ``subj_verb_agreement``.
        correct, incorrect: the two targets, ordinary text.
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
