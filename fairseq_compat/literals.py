"""Evaluates the settings that fairseq passes to ``eval``, as data only.

fairseq evaluates strings such as ``"(0.9, 0.98)"`` or ``"[(512, 3)] * 20"``.  Some come out of
checkpoints (``adaptive_softmax_cutoff``, ``encoder_layers``, ...): a checkpoint without any unusual
pickle could still run code.  fairseq's own models need literals, ``+`` and ``*`` only.
"""

from __future__ import annotations

import ast
import operator
import sys
from typing import Any

from collab_common.errors import UserError

LONGEST = 10_000  # elements or characters of a product, which could fill the memory


class NotPlain(UserError, ValueError):
    """argparse turns a ValueError into a line that names the option."""


def evaluate(text: str) -> Any:
    """Return the value of an expression of literals, ``+`` and ``*``; NotPlain for others."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise NotPlain(f"{text!r} is not a plain value, such as 0.9 or (0.9, 0.98)") from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    if not isinstance(node, ast.BinOp):
        return ast.literal_eval(node)
    left, right = _value(node.left), _value(node.right)
    if isinstance(node.op, ast.Add):
        return operator.add(left, right)
    if not isinstance(node.op, ast.Mult):
        return ast.literal_eval(node)
    lengths = [len(side) if hasattr(side, "__len__") else side for side in (left, right)]
    if (hasattr(left, "__len__") or hasattr(right, "__len__")) and operator.mul(*lengths) > LONGEST:
        raise ValueError("too long")
    return operator.mul(left, right)


def apply() -> None:
    """Give every module of fairseq that calls ``eval`` this function under that name."""
    for name, module in list(sys.modules.items()):
        code = getattr(getattr(module, "__spec__", None), "origin", None)
        if name.partition(".")[0] == "fairseq" and code and code.endswith(".py"):
            vars(module)["eval"] = evaluate
