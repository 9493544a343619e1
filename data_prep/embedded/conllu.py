"""CoNLL-U and alignment text of pairs."""

from __future__ import annotations

from data_prep.embedded.pairs import Pair


def conllu(pair: Pair, sentence_id: str) -> str:
    """One sentence block: ten columns a word, closed by an empty line."""
    lines = [f"# sent_id = {sentence_id}", f"# text = {pair.english}"]
    for i, t in enumerate(pair.english_tokens, start=1):
        misc = "_" if t.space_after else "SpaceAfter=No"
        row = (str(i), t.form, t.lemma, t.upos, "_", "_", str(t.head), t.relation, "_", misc)
        lines.append("\t".join(row))
    return "\n".join(lines) + "\n\n"


def pharaoh(pair: Pair) -> str:
    """0-based ``english-german`` token positions."""
    return " ".join(f"{i}-{j}" for i, j in pair.alignment)
