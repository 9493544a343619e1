"""The cuts of this project, one file each; importing the package does not import them.

To add a cut of the cache, write a file here and a row in each of three tables: ``plan.CACHE_CUTS``
(``shrink`` tries these), ``by_hand.CONVERSIONS`` (``reparametrize``, which also needs the option of
its size in ``shrinking.SIZE_OPTIONS``) and ``price_list.PRICED`` (``prices``).  A new kind of heads
is also a ``Kind`` in ``shape.py``.
"""
