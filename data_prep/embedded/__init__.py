"""The embedded corpus: English-German sentence pairs from a hand-written lexicon and grammar."""

from data_prep.embedded.corpus import GrammarExhausted, generate, splits
from data_prep.embedded.pairs import EnglishToken, Pair

__all__ = ["EnglishToken", "GrammarExhausted", "Pair", "generate", "splits"]
