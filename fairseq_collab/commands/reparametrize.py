"""``fairseq-collab reparametrize``: a trained model becomes one with collaborative heads.

Every attention's score maps are factorised (:mod:`.factorise`), with the inputs that it has on
calibration sentences (:mod:`.calibrate`); everything else is copied (:mod:`.convert`).
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from fairseq import utils
from tqdm import tqdm

from collab_common.command import check_folder_of
from collab_common.progress import bar
from fairseq_collab.checkpoints.opener import checkpoint_of, plain_config
from fairseq_collab.checkpoints.reparametrize import source
from fairseq_collab.checkpoints.reparametrize.dims import chosen_dims, chosen_places
from fairseq_collab.checkpoints.reparametrize.distil import distil
from fairseq_collab.checkpoints.reparametrize.options import build_parser, check
from fairseq_collab.checkpoints.reparametrize.source import Place
from fairseq_collab.checkpoints.reparametrize.work import Reparametrizer
from fairseq_collab.metrics.model_bleu import check_translation
from fairseq_compat import checkpoints


def reparametrize(args: Namespace) -> dict[str, Any]:
    """Convert ``args.checkpoint`` into ``args.out``; what was done, and how well it fits.

    Raises:
        UserError: bad input; nothing is written then.
    """
    check_folder_of(args.out, "--out")
    found = source.load(args.checkpoint, args.data)
    found.model.to(args.device)
    if args.max_bleu_drop is not None:
        check_translation(found.task, "--max-bleu-drop", "give --max-logit-error")
    given = chosen_dims(args, found)
    work = Reparametrizer(found, args, list(given or chosen_places(args, found)))
    key_dims = given or searched(args, work)
    cfg, model, fits = work.model(key_dims)
    losses: list[float] = []
    if args.distil:
        pad = found.task.source_dictionary.pad()
        model.to(args.device)
        steps = partial(tqdm, desc="distillation", total=args.distil, disable=None, leave=False)
        losses = distil(
            found.model, model, work.inputs, pad, args.distil, seed=args.seed, progress=steps
        )
    checkpoints.save(checkpoint_of(found.state, plain_config(cfg), model.cpu()), args.out)
    return {
        "checkpoint": str(args.checkpoint),
        "out": str(args.out),
        "arch": found.arch,
        "method": args.method,
        "weighting": args.weighting if args.calibration else "weights",
        "calibration_sentences": args.calibration,
        "seed": args.seed,
        "attentions": [asdict(fit) for fit in fits],
        "distillation_loss": [losses[0], losses[-1]] if losses else None,
    }


def searched(args: Namespace, work: Reparametrizer) -> dict[Place, int]:
    """The key dimensions that keep within the budget of the options."""
    if args.max_bleu_drop is not None:
        return work.within_bleu(args.max_bleu_drop)
    return {place: work.within(place, args.max_logit_error) for place in bar("budget", work.places)}


def report(result: dict[str, Any]) -> str:
    """A line for each attention, and one for the whole."""
    lines = [f"{'attention':12} {'K':>5} {'start':>9} {'error':>9} {'logits':>9} {'steps':>6}"]
    for fit in result["attentions"]:
        name = f"{fit['site']} {fit['layer']}"
        lines.append(
            f"{name:12} {fit['key_dim']:5} {_number(fit['start_error'])} "
            f"{_number(fit['error'])} {_number(fit['logit_error'])} {fit['steps']:6}"
        )
    if result["distillation_loss"]:
        first, last = result["distillation_loss"]
        lines.append(f"distillation: KL {first:.4f} at first, {last:.4f} at last (nats a token)")
    lines.append(f"{result['out']}: a {result['arch']}, from {result['checkpoint']}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return " " * 9 if value is None else f"{value:9.4f}"


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status.

    Raises:
        UserError: see :func:`reparametrize`.
    """
    parser = build_parser()
    args = parser.parse_args(argv)
    check(parser, args)
    utils.import_user_module(Namespace(user_dir=args.user_dir))
    torch.manual_seed(args.seed)
    result = reparametrize(args)
    print(json.dumps(result) if args.json else report(result))
    return 0
