"""The embedded corpus: English-German sentence pairs from a hand-written lexicon and grammar.

A sentence starts as an abstract tree (`syntax.nodes`) that a construction (`grammar`) fills from
the lexicon; each language then linearises the same tree, so that translation, English dependency
tree and word alignment agree by construction. The mapping from English to German is a function:

* one German word for an English word in one reading; the reading shows in the arguments
  ("know a man": kennen, "know that ...": wissen)
* "you" is du; professors and professions bear the gender of their entry
* progressive and simple present: Präsens; simple past: Präteritum; present perfect: Perfekt; past
  perfect: Plusquamperfekt; "will": Futur I. Questions in the simple past with do take the Perfekt,
  as is idiomatic; the copula, haben, modal and some stative verbs keep the Präteritum
* "must not" is nicht dürfen, "not have to" is nicht müssen; negation fuses with an indefinite
  object to kein; "like to" is the adverb gern
* "when" is als for one event in the past, wenn for what recurs; "whether" is ob, "if" is wenn
* sentences that English leaves open are not generated: "they read" (present or past?), pronouns
  without a clear antecedent, reflexives, polite forms

German word order follows the topological fields (`syntax.german`), English trees follow Universal
Dependencies version 2.
"""

from data_prep.embedded.corpus import GrammarExhausted, generate, splits
from data_prep.embedded.pairs import EnglishToken, Pair

__all__ = ["EnglishToken", "GrammarExhausted", "Pair", "generate", "splits"]
