"""Translations and models to numbers: BLEU, chrF, significance, cost.

bleu          corpus scores of translations, chrF too
significance  whether two systems differ by chance
loss          the loss of each predicted token
cost          parameters, bytes of the cache, multiply-adds
translate     translations of batches by fairseq's generator; ``sentences``: of a list of texts
limit         the longest translation, by its source
turns         how many times as fast, of programs that take turns; ``bench`` and ``clock`` use it

A new score of translations is a function here, a field of ``runs/record.py``, a line of
``runs/score.py`` and a column of ``results/table_text.py``.
"""
