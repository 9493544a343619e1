"""What a construction asks of a clause: modals, tenses, what may be added."""

from __future__ import annotations

from dataclasses import dataclass

from data_prep.embedded.syntax.nodes import Modal

CAN = Modal("can", "können", "aux", past="could")
MUST = Modal("must", "müssen", "aux", german_negated="dürfen")
SHOULD = Modal("should", "sollte", "aux")
WANT = Modal("want", "wollen", "semi", past="wanted")
HAVE_TO = Modal("have", "müssen", "semi", past="had")
WOULD_LIKE = Modal("like", "möchte", "polite")
ALLOWED = Modal("allowed", "dürfen", "passive", past="allowed")
LIKE_TO = Modal("like", "gern", "gern")
WANTED = Modal("want", "wollen", "semi", past="wanted", tense="past")
HAD_TO = Modal("have", "müssen", "semi", past="had", tense="past")
MODALS = ((CAN, 4), (MUST, 4), (SHOULD, 2), (WANT, 4), (HAVE_TO, 2), (WOULD_LIKE, 3), (ALLOWED, 1))


@dataclass(frozen=True)
class Plan:
    """What a construction asks of a clause; None leaves the choice open."""

    tenses: tuple[str, ...] = ("progressive", "habitual", "present", "past", "perfect", "future")
    negated: bool = False
    modal: Modal | None = None
    adverbials: bool = True
    place: float = 0.3
    may_front: bool = True
    agentive: bool = False
    rich: bool = True
    time: bool = True
