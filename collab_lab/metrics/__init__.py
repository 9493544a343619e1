"""Translations and models to numbers: BLEU, chrF, significance, cost.

translation_scores  BLEU and chrF of translations, over a corpus
significance        whether two systems differ by chance
loss                the loss of each predicted token
cost                parameters, bytes of the cache, multiply-adds
generate            translations of batches by fairseq's generator; ``translate_text``: of texts
longest             the longest translation, by its source

A new score of translations is a function here, a field of ``runs/record.py``, a line of
``runs/score.py`` and a column of ``results/table_text.py``.
"""
