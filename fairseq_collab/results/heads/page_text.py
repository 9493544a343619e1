"""What the report says beside its figures: what is shown, how to read it, and whose idea it is."""

from __future__ import annotations

from dataclasses import dataclass

VOITA = "Voita et al. 2019 (arXiv 1905.09418)"
MICHEL = "Michel et al. 2019 (arXiv 1905.10650)"


@dataclass(frozen=True)
class About:
    """A measure: its name for people, and how to read it.

    Attributes:
        bounded: it lies between 0 and 1
        small: it may be so small that two decimals do not tell it from 0
    """

    title: str
    text: str
    bounded: bool = False
    small: bool = False


MEASURES = {
    "confidence": About(
        "Confidence",
        "Mean over words of the largest weight that the head gives to a word; the end of sentence "
        f"is left out. 1: it always looks at one word alone. {VOITA}, section 4.",
        bounded=True,
    ),
    "positional": About(
        "Positional score",
        "Share of words at which the head's largest weight lies on one and the same relative "
        "position, for the position that is best for it; words without a neighbour there do not "
        f"count. {VOITA}, section 5.1, call a head positional from 0.9 on.",
        bounded=True,
    ),
    "rare": About(
        "Rare-token score",
        "Share of sentences whose rarest token, by the frequencies of the dictionary, gets most of "
        "the head's weight, all words of the sentence together. Only sentences whose rarest token "
        f"is not among the 500 most frequent ones count. {VOITA}, section 5.3.",
        bounded=True,
    ),
    "rare_of_two": About(
        "Rare-token score, one of the two rarest",
        f"As before, but either of the two rarest tokens counts as found. {VOITA}, section 5.3.",
        bounded=True,
    ),
    "entropy": About(
        "Entropy",
        "Mean entropy of the head's weights, in nats. 0: all on one token; the logarithm of the "
        "number of tokens: evenly spread.",
    ),
    "relevance": About(
        "Relevance",
        "The head's share in the logit of the word that the model finds most likely, by layer-wise "
        "relevance propagation with the ratio rule, over all predictions. In a layer the sizes of "
        "the shares add up to 1; a head below 0 speaks against what is predicted. "
        f"{VOITA}, section 4.",
    ),
    "importance_token_normalised": About(
        "Gradient importance, per token, normalised",
        "How much the loss would change if the head faded, |Att(x) dL/dAtt(x)|, absolute values "
        "summed over tokens; each layer is divided by its Euclidean norm. This is the order in "
        f"which fairseq-collab prune --importance takes heads out. {MICHEL}, section 4.1; per "
        "token as in the paper's code.",
        bounded=True,
    ),
    "importance_token": About(
        "Gradient importance, per token",
        "As before, not normalised, in nats.",
        small=True,
    ),
    "importance_sample": About(
        "Gradient importance, per sentence",
        "Absolute values of the sums over each sentence, as the paper writes it; not normalised. "
        f"{MICHEL}, section 4.1.",
        small=True,
    ),
}

COUNTING = (
    "Layers and heads are counted from 0, as in checkpoints and in fairseq-collab prune "
    "--keep-heads. Every number comes from heads.json, beside this file."
)
ROLES = (
    f"Roles by the thresholds of {VOITA}, section 5. Positional: the largest weight lies on one "
    "relative position at 90 % of the words or more, and confidence is above 0.8. Syntactic: "
    "the head finds the other end of a relation at least 10 % more often than the best fixed "
    "relative position does, on 100 pairs or more. Rare tokens: the head points to one of the two "
    "rarest tokens in more than half of the sentences, and more than twice as often as by chance. "
    "A head may have several roles."
)
OFFSETS = (
    "The relative position on which the head's largest weight lies most often; the colour is the "
    "share of words where it does, among those that have a neighbour there. -1 is the word before, "
    "+1 the one behind, 0 the word itself."
)
SYNTAX = (
    "How often the largest weight of a word in the encoder's self-attention (the end of sentence "
    "left out) falls on the word that it is related to in the gold tree, for the best head. The "
    "baseline is the best fixed relative position, on the same pairs. "
    f"{VOITA}, section 5.2."
)
WEIGHTS_SIMILARITY = (
    "How far two heads of a layer are apart in where they look: Jensen-Shannon distance of their "
    "weights, mean over words. 0: they look at the same; 1: at nothing in common."
)
PROJECTIONS_SIMILARITY = (
    "How alike the maps are that two heads of a layer score with: cosine of Wq Wk^T. 1: the same "
    "map, up to a factor; 0: unrelated."
)
SIMILARITY = {
    "weights": ("Distance of attention weights", WEIGHTS_SIMILARITY),
    "projections": ("Similarity of query and key projections", PROJECTIONS_SIMILARITY),
}
EXAMPLES = (
    "A row is a token that attends, a column one that is attended to; numbers are per cent, and "
    "empty cells are below 0.5. The decoder is given the reference. In its self-attention a row is "
    "the token that it reads, in cross-attention the token that it predicts."
)


def about_rare(sentences: int, chance: float | None) -> str:
    """How many sentences the rare-token score counts, and what chance gives."""
    by_chance = "" if chance is None else f", where pointing anywhere would score {chance:.2f}"
    return f" Here: {sentences:,} sentences{by_chance}."
