"""Measures of models and translations: BLEU, chrF, significance, loss, cost.

translation_scores  BLEU and chrF of translations, over a corpus
marks               what programs leave in text: subwords, tokens, symbols
significance        tests whether two systems differ by chance
loss                the loss of each predicted token
cost                parameters, bytes of the cache, multiply-adds
generate            translations of batches by fairseq's generator; ``translate_text``: of texts
length_limit        how long a translation may be, by its source

To add a score of translations, write a function here, a field in ``runs/record.py``, a line in
``runs/score.py`` and a column in ``results/table_text.py``.
"""
