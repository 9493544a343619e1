"""Evaluates the settings that fairseq passes to `eval`, as data only.

fairseq evaluates strings such as `"(0.9, 0.98)"` or `"[(512, 3)] * 20"`. Some of them come
out of checkpoints (`adaptive_softmax_cutoff`, `encoder_layers`, ...), so that a checkpoint
without any unusual pickle could still run code. Literals and sums and products of literals
are all that the settings of fairseq's own models need.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

from collab_common.errors import UserError

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
}
LONGEST = 10_000  # elements or characters; a product must not fill the memory


class NotPlain(UserError, ValueError):
    """argparse turns a ValueError into a line that names the option."""


def evaluate(text: str) -> Any:
    """The value of an expression of literals, `+` and `*`; NotPlain for anything else."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, ValueError) as error:
        raise NotPlain(f"{text!r} is no plain value, such as 0.9 or (0.9, 0.98)") from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Mult) and _repeated(left, right) > LONGEST:
            raise ValueError(f"too long: {ast.unparse(node)}")
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.List | ast.Tuple):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"not a plain value: {ast.unparse(node)!r}") from None


def _repeated(left: Any, right: Any) -> int:
    """The length of a product in which a sequence is repeated, 0 for a product of numbers."""
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
            return len(sequence) * times
    return 0


def apply() -> None:
    """Gives every module of fairseq that calls `eval` this function under that name."""
    for name, module in list(sys.modules.items()):
        code = getattr(getattr(module, "__spec__", None), "origin", None)
        if name.partition(".")[0] == "fairseq" and code and code.endswith(".py"):
            vars(module)["eval"] = evaluate
