"""Pages of results: the data, the programs that write them, and what makes pages of them.

``NAME.json`` has the data of a page, and README.md the command of the program that writes it.
:mod:`.tables`, :mod:`.figures` and :mod:`.sentences` read them; :mod:`.pages` puts tables and
figures into pages, and checks the numbers of sentences.  It needs the clone, and is in no wheel.
"""
