"""Inflection: functions from a lexical entry and grammatical features to a word form."""
