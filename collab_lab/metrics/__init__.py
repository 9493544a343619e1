"""Measures of models and translations: BLEU, chrF, significance, loss, cost.

translation_scores  BLEU and chrF of translations, over a corpus
significance        tests whether two systems differ by chance
loss                the loss of each predicted token
cost                parameters, bytes of the KV cache, multiply-adds
generate            translates batches by fairseq's generator; ``sentences`` translates texts
longest             the longest translation that a source may have

To add a score of translations, write a function here, a field in ``runs/record.py``, a line in
``runs/score.py`` and a column in ``results/table_text.py``.
"""
