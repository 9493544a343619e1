"""The embedded corpus: English-German sentence pairs from a lexicon and a grammar.

A sentence starts as an abstract tree (`tree`) that a construction fills from the lexicon; each
language then linearises the same tree, so that translation, English dependency tree and word
alignment agree by construction. The mapping from English to German is a function: one German word
for an English word in one reading, which shows in the arguments ("know a man": kennen, "know that
...": wissen). The simple present stands only with an adverbial of frequency or with verbs of state,
so that "they read the book" is the past.

English trees follow Universal Dependencies version 2.
"""

from data_prep.embedded.corpus import EnglishToken, Pair, generate, splits

__all__ = ["EnglishToken", "Pair", "generate", "splits"]
