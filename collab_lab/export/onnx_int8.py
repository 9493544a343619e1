"""Weights of an ONNX graph in 8 bits: it multiplies integers, with one scale for each output.

    y_n = s s_n sum_m (x_m - z) w_mn,      s_n = max_m |W_mn| / 64,   w_mn = round(W_mn / s_n)

The runtime finds the scale s and the offset z of the inputs at each call (DynamicQuantizeLinear).
w is from -64 to 64 because x86-64 without VNNI adds two products of a byte and a signed byte in 16
bits, where 2 * 255 * 64 is the most that fits.  With 8 bits, sums would saturate on these
processors, which would then translate differently and worse.

An embedding table that is also the output layer becomes one table of integers, with one scale for
each word.

Shapes: W ``(in, out)``; a table ``(V, d)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: The greatest integer of a weight.
LARGEST = 64
#: Weights of less numbers stay as they are.
SMALL = 256
#: A table that stays as it is: its numbers are added to those of words.
POSITIONS = "positions"
#: Ends of the names of integers and of their scales.
INTEGERS, SCALES = ".int8", ".scales"


class Quantiser:
    """Replaces, in a graph, the products with large weights and the look-ups in large tables."""

    def __init__(self, model: onnx.ModelProto):
        self.graph = model.graph
        self.weights = {tensor.name: tensor for tensor in self.graph.initializer}
        #: What a Transpose makes of a weight, by its name.
        self.transposed: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        #: Inputs that are in bytes already, by name: bytes, scale, offset.
        self.inputs: dict[str, list[str]] = {}

    def run(self) -> None:
        """Change the graph in place."""
        for node in self.graph.node:
            if node.op_type == "Transpose" and self._is_large(node.input[0]):
                self.transposed[node.output[0]] = node.input[0]
        for node in self.graph.node:
            weight = node.input[1] if node.op_type == "MatMul" else ""
            if weight in self.transposed or self._is_large(weight):
                self._product(node)
            elif node.op_type == "Gather" and self._is_large(node.input[0], POSITIONS):
                self._look_up(node)
            else:
                self.nodes.append(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        self._drop_unused()

    def _is_large(self, name: str, but: str = "") -> bool:
        tensor = self.weights.get(name)
        return (
            tensor is not None
            and name != but
            and tensor.data_type == onnx.TensorProto.FLOAT
            and len(tensor.dims) == 2
            and int(np.prod(tensor.dims)) >= SMALL
        )

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def _product(self, node: onnx.NodeProto) -> None:
        x, weight, y = node.input[0], node.input[1], node.output[0]
        if weight in self.transposed:
            integers, scales = self._integers(self.transposed[weight], axis=1)
            right = f"{weight}{INTEGERS}"
            if not any(right in other.output for other in self.nodes):
                self._add("Transpose", [integers], right, perm=[1, 0])
        else:
            right, scales = self._integers(weight, axis=0)
        if x not in self.inputs:
            self.inputs[x] = [f"{x}.{name}" for name in ("bytes", "input_scale", "offset")]
            found = helper.make_node(
                "DynamicQuantizeLinear", [x], self.inputs[x], name=f"{x}.bytes"
            )
            self.nodes.append(found)
        left, scale, offset = self.inputs[x]
        sums = self._add("MatMulInteger", [left, right, offset], f"{y}.sums")
        sums = self._add("Cast", [sums], f"{y}.float", to=onnx.TensorProto.FLOAT)
        both = self._add("Mul", [scale, scales], f"{y}.scale")
        self._add("Mul", [sums, both], y)

    def _look_up(self, node: onnx.NodeProto) -> None:
        table, words, y = node.input[0], node.input[1], node.output[0]
        integers, scales = self._integers(table, axis=1)
        found = self._add("Gather", [integers, words], f"{y}.int8", axis=0)
        found = self._add("Cast", [found], f"{y}.float", to=onnx.TensorProto.FLOAT)
        scale = self._add("Gather", [scales, words], f"{y}.scale", axis=0)
        last = self._constant("last_axis", np.array([-1]))
        self._add("Mul", [found, self._add("Unsqueeze", [scale, last], f"{y}.scales")], y)

    def _integers(self, name: str, axis: int) -> tuple[str, str]:
        """The names of a weight's integers and scales, which the maximum over ``axis`` sets."""
        weight = numpy_helper.to_array(self.weights[name])
        scales = np.maximum(abs(weight).max(axis, keepdims=True) / LARGEST, np.float32(1e-30))
        integers = np.rint(weight / scales).astype(np.int8)
        return (
            self._constant(f"{name}{INTEGERS}", integers),
            self._constant(f"{name}{SCALES}", scales.squeeze(axis)),
        )

    def _constant(self, name: str, values: Any) -> str:
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(values, name)
            self.graph.initializer.append(self.weights[name])
        return name

    def _drop_unused(self) -> None:
        """Take out the weights, and the Transposes, that nothing reads any more."""
        outputs = {value.name for value in self.graph.output}
        while True:
            read = {name for node in self.graph.node for name in node.input} | outputs
            kept = [node for node in self.graph.node if {*node.output} & read]
            if len(kept) == len(self.graph.node):
                break
            del self.graph.node[:]
            self.graph.node.extend(kept)
        tensors = [tensor for tensor in self.graph.initializer if tensor.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend(tensors)


def to_int8(model: onnx.ModelProto) -> None:
    """Convert the large weights of a graph to 8 bits, in place."""
    Quantiser(model).run()
