"""The second command of `data_prep.measure`: memory of learning subwords."""

from __future__ import annotations

import sys

from data_prep.measure import memory_main as main

if __name__ == "__main__":
    sys.exit(main())
