"""Results of recipes of earlier versions, which were no runs, as fields of their records.

    OUT/METHOD-K/score.json, valid.log, fit.json       recipes/reparametrize.sh; trained without K

What the folders do not say is not there: these are no whole records.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.runs.fairseq_output import entries

Facts = dict[str, Any]

LOG_2 = 0.693147180559945  # to as many digits as those recipes wrote it
_FOLDER = re.compile(r"(?P<method>[a-z-]+?)(-(?P<key_dim>\d+))?")


def reparametrized(folder: Path) -> list[Facts]:
    """The models that ``recipes/reparametrize.sh`` measured, sorted by their folders.

    Raises:
        UserError: there are none, or one has no validation loss.
    """
    found = []
    for path in sorted(folder.glob("*/score.json")):
        named, losses = (
            _FOLDER.fullmatch(path.parent.name),
            entries(path.parent / "valid.log", "valid"),
        )
        if not named:
            continue
        if not losses:
            todo = "run the recipe again"
            raise UserError("no validation loss in it", path.parent / "valid.log", todo)
        score, fit = json.loads(path.read_text()), path.parent / "fit.json"
        fits = json.loads(fit.read_text())["attentions"] if fit.exists() else []
        found.append(
            {
                "method": named["method"],
                "key_dim": named["key_dim"] and int(named["key_dim"]),
                **{name: score[name] for name in ("bleu", "chrf", "bleu_signature")},
                "valid_nats": float(losses[-1]["valid_nll_loss"]) * LOG_2,
                "relative_error": statistics.fmean(x["error"] for x in fits) if fits else None,
                "seconds": sum(x["seconds"] for x in fits) if fits else None,
            }
        )
    if not found:
        raise UserError("no result in it", folder, "give the OUT of recipes/reparametrize.sh")
    return found
