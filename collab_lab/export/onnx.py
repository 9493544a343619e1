"""Export to ONNX Runtime (https://onnxruntime.ai), which supports every kind of heads.

The folder contains everything: graphs of the encoder and of a decoding step, their shared weights,
the symbols, the subword model, and a program that translates with only numpy and onnxruntime.

We use torch's exporter that is based on ``torch.export`` (``dynamo=True``).  The older one, which
traces, is deprecated, treats decisions of Python as constants, and leaves twice as many nodes.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from fairseq.data import Dictionary
from fairseq.utils import split_paths
from onnx import external_data_helper
from torch import Tensor, nn

from collab_common.files import write_json
from collab_common.folder import manifest
from collab_common.provenance import commit, today, versions
from collab_lab.export import translate as program
from collab_lab.export.onnx_graphs import EncoderGraph, StepGraph, examples
from collab_lab.export.onnx_int8 import to_int8
from collab_lab.export.vocabulary import SUBWORDS
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.metrics.marks import check_no_bytes
from collab_lab.shrinking.cuts.heads import head_problems
from collab_lab.shrinking.gates import without_gates
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.trained.attentions import attentions, by_type
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import reject
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.gates import gated_attentions, rounded
from fairseq_collab.models.base import HeadModel
from fairseq_collab.models.variants import family_of

#: The version of the operators, and the oldest onnxruntime that was tried: the first for numpy 2.
OPSET, RUNTIME = 20, "1.19"
#: Inputs of a step, before its caches.
STEP_INPUTS = ("words", "position", "mask", "asked")
#: Where the weights of both graphs are.
WEIGHTS = "weights.bin"
#: Numbers of less bytes stay in the graphs.
SMALL = 1024
ALIGNMENT = 64


def export(trained: Trained, folder: Path, int8: bool = False) -> None:
    """Write a folder, and print the bytes of the KV cache.

    Args:
        int8: whether to store weights in 8 bits and multiply integers.

    Raises:
        UserError: the model cannot be exported, with all reasons.
    """
    check(trained)
    check_no_bytes(trained.task.target_dictionary.symbols, trained.path)  # the folder prints text
    for token, number in write(trained, folder, int8).items():
        print(f"KV cache per {token} token (32-bit numbers, or rounded): {number:,} bytes")
    size = sum(path.stat().st_size for path in folder.iterdir())
    if line := form_of_lines(trained):
        print(line)
    print(f"{size / 1e6:,.1f} MB; translate: python translate.py < text, in the folder")


class Graphs(NamedTuple):
    """The exported graphs of a model.

    Attributes:
        caches: what ``config.json`` says of the caches and heads: see :func:`cache_names`.
        bytes: of the caches: see :func:`cache_bytes`.
    """

    models: dict[str, onnx.ModelProto]
    caches: dict[str, Any]
    bytes: dict[str, int]


def graphs_of(trained: Trained) -> Graphs:
    """Export the graphs of a model that :func:`check` accepts; it takes seconds for each layer."""
    model, models = prepared(trained), {}
    if not trained.is_language_model:
        models["encoder.onnx"] = encoder_graph(model)
    models["step.onnx"] = step_graph(model)
    return Graphs(models, cache_names(model)[1], cache_bytes(model))


def write(
    trained: Trained, folder: Path, int8: bool = False, graphs: Graphs | None = None
) -> dict[str, int]:
    """Write the folder of a model that :func:`check` accepts; return the bytes of its caches.

    Args:
        int8: whether to store weights in 8 bits.
        graphs: graphs of this model, if they exist already.
    """
    graphs = graphs or graphs_of(trained)
    models = copy.deepcopy(graphs.models)
    for model in models.values():
        if int8:
            to_int8(model)
    write_graphs(models, folder)
    write_text(trained, folder)
    shutil.copy(program.__file__, folder / "translate.py")
    write_json(folder / "config.json", configuration(trained, graphs.caches, folder, int8))
    return graphs.bytes


# ---- the model -----------------------------------------------------------------------------------

#: Methods of an attention that a step relies on.
CONTRACT = ("forward", "keep", "_attend", "_context", "_cache", "_get_input_buffer")
#: Tasks whose text a line can be, without further symbols.
TASKS = ("translation", "language_modeling")


def check(trained: Trained) -> None:
    """Raise UserError with all reasons if a model cannot be exported."""
    reject(trained, "cannot be exported to onnx", problems(trained))


def problems(trained: Trained) -> Iterator[str]:
    """Reasons why a model cannot be exported."""
    model, foreign = trained.model, trained.foreign
    family = family_of(type(model))
    if family is None or foreign is not None:
        name = f"{foreign or type(model).__name__} ({trained.arch})"
        yield f"{name} is no transformer of fairseq or of this project, so its graph is not known"
        return
    if type(model) in family.stock:  # becomes one of this project's
        yield from head_problems(trained)
    for attention in attentions(model):
        module = attention.module
        if isinstance(module, HeadAttention):
            for name in CONTRACT:
                if getattr(type(module), name) is not getattr(HeadAttention, name):
                    yield f"{attention}: {type(module).__name__} has its own {name}"
    task = trained.cfg.task
    if task._name not in TASKS:
        yield f"its task is {task._name!r}, not one of {', '.join(TASKS)}"
    if getattr(task, "prepend_bos_src", None) is not None:
        yield "--prepend-bos-src adds a symbol to sources"
    for stack in ("encoder", "decoder"):
        words = getattr(getattr(model, stack, None), "embed_tokens", None)
        if words is not None and not isinstance(words, nn.Embedding):
            yield f"the words of the {stack} have a {type(words).__name__}, not one table"
    if not trained.is_language_model and not any(trained.heads["cross"]):
        yield "it has no cross-attention"
    for side in ("source", "target"):
        symbols = getattr(trained.task, f"{side}_dictionary").symbols
        if twice := [word for word, number in Counter(symbols).items() if number > 1]:
            yield f"the {side} dictionary has the symbol {twice[0]!r} twice"
        if broken := [word for word in symbols if "\n" in word]:
            yield f"the {side} dictionary has the symbol {broken[0]!r}"


def prepared(trained: Trained) -> Any:
    """A copy of the model to export, with this project's heads, no closed gates, no fused paths."""
    heads = all_heads(trained)
    if gated_attentions(trained.model):
        for type_, layers in trained.attentions.items():
            for kept, attention in zip(heads[type_], layers, strict=True):
                gates = rounded(attention.module.log_alpha).tolist()
                kept[:] = [head for head in kept if gates[head]]
        trained = pruned(without_gates(trained), heads)
    elif not isinstance(trained.model, HeadModel):
        trained = pruned(trained, heads)
    # A copy has linear maps of torch's own class.
    model = copy.deepcopy(trained.model).cpu().float().eval().requires_grad_(False)
    for attention in attentions(model):
        attention.module.may_fuse = False
    return model


# ---- graphs --------------------------------------------------------------------------------------


def encoder_graph(model: Any) -> onnx.ModelProto:
    """Export :class:`.EncoderGraph`."""
    tokens = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 1, 1]])
    names = [f"cross_{i}" for i, _ in enumerate(examples(model, "cross", 1))]
    shapes = ({0: "sentences", 1: "source"},)
    return exported(EncoderGraph(model), (tokens,), ["tokens"], ["padding", *names], shapes)


def cache_names(model: Any) -> tuple[list[str], dict[str, Any]]:
    """The names of a step's caches, and what ``config.json`` says of them and of the heads."""
    cross, own = examples(model, "cross", 1), examples(model, "decoder", 1)
    of_cross = [f"cross_{index}" for index, _ in enumerate(cross)]
    of_own = {
        f"past_{index}": [x.size(1), x.size(3), str(x.dtype).removeprefix("torch.")]
        for index, x in enumerate(own)
    }
    padding = ["padding"] if cross else []
    heads = {
        type_: [layer.module.num_heads for layer in layers]
        for type_, layers in by_type(model).items()
        if layers
    }
    return [*padding, *of_cross, *of_own], {"heads": heads, "cross": of_cross, "own": of_own}


def cache_bytes(model: Any) -> dict[str, int]:
    """Bytes of the cached tensors per target token and per source token."""
    sides = {"target": "decoder", "source": "cross"}
    return {
        token: sum(x.nbytes // len(x) for x in examples(model, type_, 1))
        for token, type_ in sides.items()
    }


def step_graph(model: Any) -> onnx.ModelProto:
    """Export :class:`.StepGraph`."""
    sentences, beam, slots, source = 2, 3, 7, 5
    rows = {0: "sentences", 1: "beam"}
    cross, own = examples(model, "cross", source), examples(model, "decoder", slots)
    caches = [torch.zeros(sentences, 1, 1, source)] if cross else []
    shapes: list[Any] = [{0: "sentences", 3: "source"}] if cross else []
    shapes += [{0: "sentences", 2: "source"} for _ in cross]
    shapes += [{0: "sentences", 2: "slots"} for _ in own]
    inputs = (
        torch.full((sentences, beam), 7),
        torch.tensor(2),
        torch.zeros(sentences, beam, slots + beam),
        torch.zeros(sentences, beam, 2, dtype=torch.long),
        *caches, *cross, *own,
    )  # fmt: skip
    axes = (rows, None, {**rows, 2: "slots_and_beam"}, {**rows, 2: "asked"}, tuple(shapes))
    outputs = ["best", "best_words", "asked_scores", *(f"new_{i}" for i, _ in enumerate(own))]
    names = [*STEP_INPUTS, *cache_names(model)[0]]
    return exported(StepGraph(model), inputs, names, outputs, axes)


def exported(
    module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], outputs: list[str], axes: Any
) -> onnx.ModelProto:
    """Export a module with torch's exporter."""
    with warnings.catch_warnings(), silenced(), torch.no_grad():
        warnings.simplefilter("ignore")
        found = torch.onnx.export(
            module.eval(), inputs, input_names=names, output_names=outputs, dynamic_shapes=axes,
            opset_version=OPSET, dynamo=True, verbose=False,
        )  # fmt: skip
    assert found is not None
    model: onnx.ModelProto = found.model_proto
    graph = model.graph
    values = (*graph.value_info, *graph.input, *graph.output, *graph.initializer)
    for part in (model, graph, *graph.node, *values):  # where in files of this machine it was
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model


@contextmanager
def silenced() -> Iterator[None]:
    """Context in which torch's exporter logs only errors."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def write_graphs(graphs: dict[str, onnx.ModelProto], folder: Path) -> None:
    """Write the graphs; large tensors go to the file :data:`WEIGHTS`, equal ones only once."""
    places: dict[bytes, tuple[int, int]] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for name, model in graphs.items():
            for tensor in model.graph.initializer:
                content = tensor.raw_data
                if len(content) < SMALL:
                    continue
                key = hashlib.sha256(content).digest()
                if key not in places:
                    file.write(bytes(-file.tell() % ALIGNMENT))
                    places[key] = file.tell(), len(content)
                    file.write(content)
                offset, length = places[key]
                external_data_helper.set_external_data(tensor, WEIGHTS, offset, length)
                tensor.ClearField("raw_data")
            (folder / name).write_bytes(model.SerializeToString(deterministic=True))
    for name in graphs:
        onnx.checker.check_model(str(folder / name))


# ---- text and configuration ----------------------------------------------------------------------


def write_text(trained: Trained, folder: Path) -> None:
    """Write the symbols of both languages, and copy the subword model of the data folder."""
    task = trained.task
    sides = {"source": task.source_dictionary, "target": task.target_dictionary}
    for side, words in sides.items():
        if side == "target" or not trained.is_language_model:
            (folder / f"{side}.txt").write_text("".join(f"{w}\n" for w in words.symbols), "utf-8")
    _, path = subwords(trained)
    if path is not None:
        shutil.copy(path, folder / path.name)


def subwords(trained: Trained) -> tuple[str | None, Path | None]:
    """How lines are split into pieces, and the file of the subword model that does so."""
    folder = getattr(trained.cfg.task, "data", None)  # a model of random weights has none
    if folder is None:
        return None, None
    data = Path(split_paths(folder)[0])
    for kind, name in (("sentencepiece", SUBWORDS), ("subword_nmt", "code")):
        if (data / name).is_file():
            return kind, data / name
    return None, None


def form_of_lines(trained: Trained) -> str | None:
    """A line that says what ``translate.py`` takes and prints, unless it is ordinary text."""
    kind, path = subwords(trained)
    if path is None:
        return "translate.py takes and prints symbols of the dictionary: the data have no subwords"
    if kind == "sentencepiece":
        return None
    form = manifest(path.parent).get("form", {})
    tokens = "Moses' tokens" if form.get("moses") else "tokens"
    tokens += ", lower-cased" if form.get("lowercased") else ""
    if hyphen := form.get("hyphens"):
        tokens += f", with {hyphen} for hyphens"
    return (
        f"translate.py takes and prints {tokens}: "
        "tokenise its input as the training text was, and detokenise its output"
    )


def configuration(
    trained: Trained, caches: dict[str, Any], folder: Path, int8: bool = False
) -> dict[str, Any]:
    """The content of ``config.json``."""
    words: Dictionary = trained.task.target_dictionary
    model, lm = trained.model, trained.is_language_model
    task = trained.cfg.task
    start = words.bos() if lm and getattr(task, "add_bos_token", False) else words.eos()
    return {
        "form": program.FORM,
        "architecture": trained.arch,
        "plan": trained.state.get("extra_state", {}).get("plan"),
        "languages": [getattr(task, f"{side}_lang", None) for side in ("source", "target")],
        "weights": "int8" if int8 else "float32",
        "exported": {**versions("torch", "fairseq-collab"), "commit": commit(), "date": today()},
        "onnxruntime": RUNTIME,
        "pad": words.pad(), "eos": words.eos(), "unk": words.unk(), "start": start,
        "source_positions": int((model.decoder if lm else model.encoder).max_positions()),
        "target_positions": int(model.decoder.max_positions()),
        "subwords": subwords(trained)[0],
        **caches, **LENGTH_LIMIT,
        "files": {path.name: path.stat().st_size for path in sorted(folder.iterdir())},
    }  # fmt: skip
