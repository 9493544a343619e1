"""The cuts of this project, one file each; importing the package does not import them.

To add a cut of the cache, write a file here and a row in each of three tables: ``plan.CACHE_CUTS``
(``shrink`` tries these), ``by_hand.CONVERSIONS`` (``reparametrize``) and ``price_list.PRICED``
(``prices``).  A new kind of heads also needs a row in ``shape.py``.
"""
