"""The cuts of this project, one file each; importing the package imports none.

A new cut of the cache is a file here and a row of three tables: ``shrink`` chooses from
``plan.KINDS``, ``reparametrize`` from ``by_hand.CONVERSIONS``, and ``prices`` shows those of
``prices.PRICED``.  A new kind of heads has a row in ``shape.py``, too.
"""
