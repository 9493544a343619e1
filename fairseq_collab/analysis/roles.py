"""Which roles a head has: positional, syntactic, rare tokens.

Voita et al. 2019 (arXiv 1905.09418), section 5:

- *positional*: the largest weight is on one relative position at least 90 % of the time;
- *syntactic*: the accuracy of a relation is at least 10 % higher than the baseline's.  We read it
  as 10 % of the baseline (0.495 for 0.45).  Relations with fewer than 100 pairs give no role: their
  standard error alone may be 0.05;
- *rare tokens*: the paper names no threshold.  Its heads point to one of the two rarest tokens in
  more than half of the sentences.  We ask for that, and for more than twice the share by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fairseq_collab.analysis.weights import Heads
from fairseq_collab.models.layers import SITES, Site

POSITIONAL_SHARE = 0.9
SYNTACTIC_GAIN, SYNTACTIC_PAIRS = 1.1, 100
RARE_SHARE, RARE_GAIN = 0.5, 2.0

#: Site, layer, head.
Place = tuple[Site, int, int]


def roles(content: Mapping[str, Any], heads: Heads) -> dict[Site, list[list[list[str]]]]:
    """The names of each head's roles, from the other parts of ``heads.json``."""
    measures, relations = content["measures"], (content.get("syntax") or {}).get("relations", {})

    def of(place: Place) -> list[str]:
        return [
            *positional(content["offsets"], place),
            *syntactic(relations, place),
            *rare(measures["rare"], content["rare"]["chance"], place),
        ]

    return {
        site: [
            [of((site, layer, head)) for head in range(number)]
            for layer, number in enumerate(heads[site])
        ]
        for site in SITES
    }


def positional(offsets: Mapping[str, Any], place: Place) -> Iterator[str]:
    """``positional -1``, or another offset."""
    for offset, share in zip(offsets["offsets"], _at(offsets, place) or (), strict=False):
        if (share or 0) >= POSITIONAL_SHARE:
            yield f"positional {offset:+d}" if offset else "positional 0"


def syntactic(relations: Mapping[str, Any], place: Place) -> Iterator[str]:
    """``syntactic nsubj dependent->head``, or another relation and direction."""
    for relation, directions in relations.items():
        for direction, found in directions.items():
            accuracy = _at(found, place)
            if accuracy is None or found["pairs"] < SYNTACTIC_PAIRS:
                continue
            if accuracy >= SYNTACTIC_GAIN * found["baseline"]["accuracy"]:
                yield f"syntactic {relation} {direction}"


def rare(shares: Mapping[str, Any], chance: float | None, place: Place) -> Iterator[str]:
    """``rare tokens``."""
    share = _at(shares, place)
    if share and chance is not None and share > max(RARE_SHARE, RARE_GAIN * chance):
        yield "rare tokens"


def _at(measured: Mapping[str, Any], place: Place) -> Any:
    """The measure of a head, or None."""
    site, layer, head = place
    layers = measured.get(site)
    return None if layers is None else layers[layer][head]
