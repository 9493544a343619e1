"""English linearisation, with the dependency tree built on the way (Universal Dependencies v2).

Every function returns a `Phrase`: words in order and the head among them. Attaching a phrase sets
the head and relation of its head word, so the tree is complete when the root phrase is.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded import english_forms as forms
from data_prep.embedded.lexicon import PRONOUNS, Noun, Verb
from data_prep.embedded.nodes import (
    AdverbialUse,
    Argument,
    Clause,
    Key,
    Linked,
    Modifier,
    NounPhrase,
    Part,
    Word,
)


@dataclass(eq=False)
class Phrase:
    head: Word
    words: list[Word]

    def under(self, head: Word, relation: str) -> list[Word]:
        self.head.under(head, relation)
        return self.words


def word(form: str, lemma: str, upos: str, *keys: Key, glued: bool = False) -> Word:
    return Word(form, frozenset(keys), lemma, upos, glued=glued)


def _comma(head: Word, *keys: Key) -> Word:
    return word(",", ",", "PUNCT", *keys, glued=True).under(head, "punct")


# --- phrases -------------------------------------------------------------------------------------


def noun_phrase(np: NounPhrase, subject: bool = False) -> Phrase:
    if np.noun is not None:
        return _full(np, np.noun)
    form = lemma = np.role
    if not np.role:
        row = PRONOUNS[np.person, np.number, np.sex]
        form, lemma = row["subject" if subject else "object"], row["subject"]
    only = word(form, lemma, "PRON", (np, "noun"))
    return Phrase(only, [only])


def _full(np: NounPhrase, entry: Noun) -> Phrase:
    upos = "PROPN" if "b" in entry.flags else "NOUN"
    form = entry.english_plural if np.number == "pl" else entry.english
    head = word(form, entry.english, upos, (np, "noun"))
    words = [head]
    if np.modifier is not None:
        words = [*adjective_phrase(np.modifier).under(head, "amod"), head]
    words = [*_determiner(np, head, words[0].form), *words]
    if np.relative is not None:
        words += clause(np.relative, "relative").under(head, "acl:relcl")
    return Phrase(head, words)


def _determiner(np: NounPhrase, head: Word, next_form: str) -> list[Word]:
    if np.possessor is not None:
        owner = noun_phrase(np.possessor)
        # As "the teacher's car" is "das Auto des Lehrers", 's itself has no counterpart.
        mark = word("'s", "'s", "PART", glued=True).under(owner.head, "case")
        return [*owner.under(head, "nmod:poss"), mark]
    if np.determiner is None or not np.determiner.english:
        return []
    lemma, upos = np.determiner.english, np.determiner.upos
    form = forms.indefinite_article(next_form) if lemma == "a" else lemma
    relation = {"PRON": "nmod:poss", "NUM": "nummod", "ADJ": "amod"}.get(upos, "det")
    lemma = "this" if lemma == "these" else lemma
    return [word(form, lemma, upos, (np, "det")).under(head, relation)]


def adjective_phrase(modifier: Modifier) -> Phrase:
    english = modifier.adjective.english
    head = word(english, english, "ADJ", (modifier, "adj"))
    very = [word("very", "very", "ADV", (modifier, "very")).under(head, "advmod")]
    return Phrase(head, [*(very if modifier.very else []), head])


def _argument(item: Argument) -> Phrase:
    """Multiword prepositions ("in front of") hang together by fixed."""
    inner = noun_phrase(item.noun_phrase)
    preposition = [
        word(w, w, "NOUN" if w == "front" else "ADP", (item, "prep")) for w in item.english.split()
    ]
    for i, w in enumerate(preposition):
        w.under(preposition[0] if i else inner.head, "fixed" if i else "case")
    return Phrase(inner.head, [*preposition, *inner.words])


def _adverbial(use: AdverbialUse) -> Phrase:
    """A frozen phrase; its inner tree stands in the lexicon."""
    fixed = use.entry.english
    words = [word(w.form, w.lemma, w.upos, (use, str(i))) for i, w in enumerate(fixed)]
    for item, entry in zip(words, fixed, strict=True):
        if entry.head >= 0:
            item.under(words[entry.head], entry.relation)
    return Phrase(words[use.entry.head], words)


# --- the verbal complex --------------------------------------------------------------------------


def _verb_chain(node: Clause, form: str, inverted: bool) -> list[tuple[Word, str]]:
    """Words with their kind: a relation, "matrix" for a full verb above the main one, "lexical".

    Each word decides the shape of the next ("has" that of "read"); the first is finite. Negation
    and inversion put do in front of a chain that opens with a full verb.
    """
    verb = node.verb
    full = (verb.english, "lexical", "") if verb else ("be", "cop", "")
    chain: list[tuple[str, ...]] = [*node.tense.english, full]
    shape = node.tense.finite
    if form == "infinitive":
        chain, shape = [full], "to"
    elif form == "imperative" or node.tense.german == "bare":
        shape = "base"
    opens_with_full_verb = chain[0][1] in ("lexical", "matrix")
    if opens_with_full_verb and (node.negated or inverted):
        chain.insert(0, ("do", "aux", "base"))
    words: list[tuple[Word, str]] = []
    for item in chain:
        lemma, kind, following = item
        if shape == "to":
            words.append((word("to", "to", "PART", (node, "zu")), "mark"))
        upos = "VERB" if kind in ("lexical", "matrix") else "AUX"
        key = (node, "verb" if item is full else "aux")
        own = node.verb if item is full else None
        words.append((word(_verb_form(node, own, lemma, shape), lemma, upos, key), kind))
        shape = following
    if node.negated:
        # One written word in "cannot", two syntactic ones.
        glued = words[0][0].form == "can"
        words.insert(1, (word("not", "not", "PART", (node, "neg"), glued=glued), "advmod"))
    return words


def _verb_form(node: Clause, verb: Verb | None, lemma: str, shape: str) -> str:
    if shape in ("base", "to"):
        return lemma
    if shape == "ing":
        return forms.present_participle(lemma)
    if shape == "participle":
        return verb.english_participle if verb else "been" if lemma == "be" else lemma + "ed"
    past = verb.english_past if verb else lemma + "ed"
    return forms.finite(lemma, past, shape, node.subject.person, node.subject.number)


# --- clauses -------------------------------------------------------------------------------------

_MIDDLE = ("habit", "aspect")  # after the first auxiliary, before a full verb
_FINAL = ("iobj", "obj", "oblique", "dir", "manner", "place", "time")


def clause(node: Clause, form: str) -> Phrase:
    """``form``: main, question, imperative, sub (also of embedded questions), relative, infinitive,
    or shared (a conjoined verb phrase)."""
    return _ClauseBuilder(node, form).build()


class _ClauseBuilder:
    """``governor`` is the clause's head; ``lexical``, which may differ from it under a matrix verb
    ("wants to read"), governs the arguments."""

    def __init__(self, node: Clause, form: str) -> None:
        self.node = node
        self.form = form
        self.inverted = form == "question" and node.front is not node.subject
        chain = _verb_chain(node, form, self.inverted)
        self.verbs = [verb for verb, _ in chain]
        self.predicate = adjective_phrase(node.predicate) if node.predicate else None
        self.lexical = self.predicate.head if self.predicate else self.verbs[-1]
        self.governor = next((w for w, kind in chain if kind == "matrix"), self.lexical)
        for item, kind in chain:
            item.under(self.lexical if kind in ("mark", "cop") else self.governor, kind)
        self.lexical.under(self.governor, "xcomp")
        self.governor.head, self.governor.relation = None, "root"

    def build(self) -> Phrase:
        node, verbs = self.node, self.verbs
        opens_with_auxiliary = verbs[0].upos == "AUX" or verbs[0].lemma == "be"
        at = 1 + (len(verbs) > 1 and verbs[1].lemma == "not") if opens_with_auxiliary else 0
        verbs[at:at] = self._parts(_MIDDLE)
        words = [*self._parts(("please",)), *self._front()]
        if self.inverted:
            words.append(verbs.pop(0))
        words += [*self._subject(), *verbs]
        if self.predicate:
            words += self.predicate.words
        words += self._with_particle(self._parts(_FINAL))
        for item in node.linked:
            if item is not node.front:
                words += self._linked(item)
        return Phrase(self.governor, words)

    def _parts(self, kinds: tuple[str, ...]) -> list[Word]:
        rest = [p for p in self.node.parts if p is not self.node.front and p.kind in kinds]
        rest.sort(key=lambda part: kinds.index(part.kind))
        return [w for part in rest for w in self._part(part)]

    def _part(self, part: Part) -> list[Word]:
        if isinstance(part, AdverbialUse):
            relation = part.entry.english[part.entry.head].relation
            return _adverbial(part).under(self.lexical, relation)
        relation = "obl" if part.english else "iobj" if part.kind == "iobj" else "obj"
        return _argument(part).under(self.lexical, relation)

    def _subject(self) -> list[Word]:
        if self.form in ("imperative", "infinitive", "shared"):
            return []
        passive = any(relation == "aux:pass" for _, relation, _ in self.node.tense.english)
        relation = "nsubj:pass" if passive else "nsubj"
        return noun_phrase(self.node.subject, subject=True).under(self.governor, relation)

    def _front(self) -> list[Word]:
        front = self.node.front
        if isinstance(front, Linked):
            return self._linked(front)
        return [] if front is None or isinstance(front, NounPhrase) else self._part(front)

    def _with_particle(self, words: list[Word]) -> list[Word]:
        """Close to the verb, behind a pronoun: "picks up the man", "picks him up"."""
        particle = self.node.verb.particle if self.node.verb else ""
        if not particle:
            return words
        adverb = particle in ("away", "back", "forward")
        item = word(particle, particle, "ADV" if adverb else "ADP", (self.node, "verb"))
        item.under(self.lexical, "advmod" if adverb else "compound:prt")
        target = self.node.argument("obj")
        at = 1 if target is not None and target.is_pronoun and not target.role else 0
        return [*words[:at], item, *words[at:]]

    def _linked(self, item: Linked) -> list[Word]:
        """With its conjunction, and the commas on both sides."""
        form = self.node.form_of(item)
        inner = clause(item.clause, form)
        words = inner.under(self.governor, item.relation)
        if item.english and form != "infinitive":
            upos, relation = ("CCONJ", "cc") if item.relation == "conj" else ("SCONJ", "mark")
            conjunction = word(item.english, item.english, upos, (item, "mark"))
            words.insert(0, conjunction.under(inner.head, relation))
        if item is self.node.front:
            words.append(_comma(inner.head, (item, "comma")))
        elif form == "main":
            words.insert(0, _comma(inner.head, (item, "comma")))
        return words


def sentence(node: Clause, form: str, stop: str) -> list[Word]:
    """All words of the sentence, closed by its punctuation mark and capitalised."""
    phrase = clause(node, form)
    end = word(stop, stop, "PUNCT", (node, "stop"), glued=True).under(phrase.head, "punct")
    words = [*phrase.words, end]
    words[0].form = words[0].form[0].upper() + words[0].form[1:]
    return words
