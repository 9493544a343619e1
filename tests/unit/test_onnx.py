"""Folders for ONNX Runtime: exported graphs, the program that translates, and bad input."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import toy_checkpoints
from omegaconf import OmegaConf
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo
from parity.test_onnx_parity import (
    BEAM,
    LONGEST,
    by_fairseq,
    check_equal,
    opened,
    program,
    sources,
)
from refusals import refusing

from collab_common.encodings import ABBREVIATIONS, ATTACHED
from collab_lab import open_model
from collab_lab.cli import export as command
from collab_lab.export import onnx as exporter
from collab_lab.export import translate as exported_program
from collab_lab.export.onnx_check import bits_of_folder, compare
from collab_lab.export.onnx_int8 import LARGEST, to_int8
from collab_lab.export.translate import FORM, Hypothesis, InputError, Translator
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.attention.rounding import BITS, encode

SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
#: What a folder needs; torch and fairseq are not among it.
PACKAGES = ("numpy", "numpy.libs", "onnxruntime", "sentencepiece", "subword_nmt")


def folder_of(trained: Trained, folder: Path, int8: bool = False, graphs: Any = None) -> Translator:
    folder.mkdir()
    exporter.write(trained, folder, int8, graphs)
    return Translator(folder, 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Path]:
    """A stock model of words that are ordinary text, and its folder, written by the command."""
    home = tmp_path_factory.mktemp("onnx")
    data = toy_checkpoints.words_as_text(home / "data")
    path = toy_checkpoints.write(home / "c.pt", "transformer", share_all_embeddings=True, **SHALLOW)
    given = [path, data, "--format=onnx", "--out", home / "out", "--check", 5]
    assert command.main([*map(str, given)]) == 0
    return open_model(path, data), home / "out"


@pytest.fixture
def damaged(whole: tuple[Trained, Path], tmp_path: Path) -> Path:
    """A copy of the folder."""
    return Path(shutil.copytree(whole[1], tmp_path / "copy"))


def run(folder: Path, *options: str, text: bytes = b"", **more: Any) -> Any:
    """The folder's program, with the packages of this environment."""
    line = [sys.executable, str(folder / "translate.py"), "--threads=1", *options]
    return subprocess.run(line, input=text, capture_output=True, check=False, **more)


# ---- graphs --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_graphs_translate_as_fairseq_does(whole: tuple[Trained, Path]) -> None:
    """In batches of every size, with any beam: dimensions are not those of the export."""
    trained, folder = whole
    found = Translator(folder, 1)
    for beam, number in ((BEAM, 9), (1, 1), (6, 2)):
        ours = found.search(sources(number), beam, max_len_a=0, max_len_b=LONGEST)
        check_equal(ours, by_fairseq(trained, sources(number), beam))


@pytest.mark.slow
def test_rounded_caches_are_exported(tmp_path: Path) -> None:
    """Bytes and half floats, of 4 and of 8 bits, with operators that onnxruntime has."""
    options = {"latent_dim": 6, "shared_latent_in_cross": 5}
    options |= {"cache_bits": "4", "cache_bits_in_cross": "8"}
    trained = opened(tmp_path, "transformer_latent", **SHALLOW, **options)
    found = folder_of(trained, tmp_path / "out")
    ours = found.search(sources(), BEAM, max_len_a=0, max_len_b=LONGEST)
    check_equal(ours, by_fairseq(trained, sources()), within=1e-4)
    assert {dtype for *_, dtype in found.config["own"].values()} == {"uint8", "float16"}
    # 6 numbers of 4 bits, a scale and an offset of 16
    assert exporter.cache_bytes(exporter.prepared(trained))["target"] == 3 + 2 + 2


class Codes(torch.nn.Module):
    """The rounding of a cache, to export."""

    def __init__(self, bits: int):
        super().__init__()
        self.bits = bits

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return encode(x, self.bits)


@pytest.mark.slow
@pytest.mark.parametrize("bits", BITS)
def test_exported_rounding_gives_equal_codes(bits: int) -> None:
    """Equal numbers get equal scales and codes, also halfway between two codes."""
    x = torch.randn(20_000, 70, generator=torch.Generator().manual_seed(1))
    halves = torch.arange(70) % (2**bits - 1) + 0.5
    halves[::35], halves[1::35] = 0, 2**bits - 1  # of each group: the scale is 1
    x = torch.cat([x, halves[None]])
    shapes = ({0: "tokens"},)
    graph = exporter.exported(Codes(bits), (x[:3],), ["x"], ["scales", "codes"], shapes)
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    scales, codes = encode(x, bits)
    assert torch.equal(scales[-1, ::2], torch.ones(2).half())
    found = session.run(None, {"x": x.numpy()})
    assert [y.tobytes() for y in found] == [y.numpy().tobytes() for y in (scales, codes)]


@pytest.mark.slow
def test_a_language_model_is_exported(tmp_path: Path) -> None:
    """By the command, which checks that it continues lines as fairseq does."""
    options = {"decoder_layers": 1, "adaptive_softmax_cutoff": "8,13"}
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_lm_headsize_n", **options)
    data, out = toy_checkpoints.blocks(tmp_path / "data"), tmp_path / "out"
    given = [path, data, "--format=onnx", "--out", out, "--check", 5]
    assert command.main([*map(str, given)]) == 0
    assert not (out / "encoder.onnx").exists()
    assert Translator(out, 1).translate(["w1 w2"], BEAM)[0][0].text.startswith("w1 w2")


@pytest.mark.slow
def test_the_folder_has_names_for_dimensions_and_no_path_of_this_machine(
    whole: tuple[Trained, Path],
) -> None:
    for name in ("encoder.onnx", "step.onnx"):
        content = (whole[1] / name).read_bytes()
        assert str(Path.cwd()).encode() not in content
        assert b"site-packages" not in content
        inputs = onnx.load_from_string(content).graph.input
        dims = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim}
        assert "sentences" in dims
        assert all(not name or name.isidentifier() for name in dims)


# ---- integers ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_integers_have_seven_bits_and_stand_once(
    whole: tuple[Trained, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words' table of both graphs is the output layer, too: one place on the disk."""
    trained, folder = whole
    graphs = {name: onnx.load(folder / name) for name in ("encoder.onnx", "step.onnx")}
    for model in graphs.values():
        to_int8(model)
        weights = {tensor.name for tensor in model.graph.initializer}
        products = [node for node in model.graph.node if node.op_type == "MatMul"]
        assert not [node for node in products if {*node.input} & weights]
        assert "MatMulInteger" in {node.op_type for node in model.graph.node}
    table = trained.model.encoder.embed_tokens.weight.detach().numpy()
    scales = abs(table).max(1, keepdims=True) / LARGEST
    monkeypatch.setattr(exporter, "SMALL", 1)
    exporter.write_graphs(graphs, tmp_path)
    places = []
    for name in graphs:
        for tensor in onnx.load(tmp_path / name, load_external_data=False).graph.initializer:
            if tensor.data_type == onnx.TensorProto.INT8:
                values = numpy_helper.to_array(tensor, str(tmp_path)).astype(int)
                assert abs(values).max() <= LARGEST
                if np.array_equal(values, np.rint(table / scales)):
                    places.append(ExternalDataInfo(tensor).offset)
    assert len(places) == 2
    assert places[0] == places[1]


@pytest.mark.slow
def test_integers_change_the_bits_little(whole: tuple[Trained, Path], tmp_path: Path) -> None:
    trained, folder = whole
    targets = [line[:-1] for line in sources()]
    exact = bits_of_folder(Translator(folder, 1), sources(), targets)
    rounded = bits_of_folder(folder_of(trained, tmp_path / "out", int8=True), sources(), targets)
    assert 0 < abs(rounded - exact) < 0.1 * exact
    for number in (0, 2):  # first targets that were not learnt
        cfg = copy.deepcopy(trained.cfg)
        cfg.criterion = OmegaConf.create({"ignore_prefix_size": number})
        of_tags = replace(trained, state={**trained.state, "cfg": cfg})
        said = compare(of_tags, tmp_path / "out", 3)[0][-1]
        assert "bits per target token" in said
        assert ("first 2 of each" in said) == bool(number)


# ---- the program ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_needs_neither_torch_nor_fairseq(
    whole: tuple[Trained, Path], tmp_path: Path
) -> None:
    """With a path of these packages only, it prints what the function returns."""
    home = Path(str(find_spec("numpy").origin)).parents[1]  # type: ignore[union-attr]
    for name in PACKAGES:
        if (home / name).exists():
            (tmp_path / name).symlink_to(home / name)
    lines = ["w1 w2 w3", "w4", "w5 unheard-of w1 w1"]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    check = "import importlib.util as u; assert not any(map(u.find_spec, ['torch', 'fairseq']))"
    subprocess.run([sys.executable, "-S", "-c", check], env=environment, check=True)
    program = [sys.executable, "-S", str(whole[1] / "translate.py")]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(program, input=text, capture_output=True, text=True, env=environment)
    expected = [h[0].text for h in Translator(whole[1]).translate(lines)]
    assert (done.returncode, done.stderr.count("\n")) == (0, 2)  # an unknown word, and no end
    assert done.stdout.splitlines() == expected


@pytest.mark.slow
def test_layer_norms_stay_as_fast_as_they_are(
    whole: tuple[Trained, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime would put a sum and its norm into one operator that takes longer."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "run.onnx")
    monkeypatch.setattr(onnxruntime, "SessionOptions", lambda: options)
    Translator(whole[1], 1)
    graph = onnx.load(tmp_path / "run.onnx", load_external_data=False).graph
    kinds = {node.op_type for node in graph.node}
    assert "LayerNormalization" in kinds
    assert "SkipLayerNormalization" not in kinds


@pytest.mark.slow
def test_bad_lines_are_left_out_and_the_others_keep_their_places(
    whole: tuple[Trained, Path],
) -> None:
    longest = Translator(whole[1], 1).config["source_positions"]
    text = b"w1 w2\n\n\xff\xfe\n" + b"w3 " * longest + b"\nw4 w5\r\n"
    done = run(whole[1], text=text)
    expected = [h[0].text for h in Translator(whole[1], 1).translate(["w1 w2", "w4 w5"])]
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == [expected[0], "", "", "", expected[1]]
    said = done.stderr.decode().splitlines()
    assert [line.split(" is ")[0].split(" has ")[0] for line in said] == [
        *(f"translate: line {number}" for number in (2, 3, 4)),
        "translate: warning: 2 of 2 translations end at the limit of their length "
        "(--max-len-a, --max-len-b, the model's positions), and may be cut",
    ]
    with pytest.raises(InputError, match="line 2 is empty"):
        Translator(whole[1], 1).translate(["w1", " "])


@pytest.mark.slow
def test_text_is_cut_into_pieces_as_the_training_text_was(damaged: Path) -> None:
    """Any white space is a blank, and breaks between the sentences of documents stay whole."""
    found = Translator(damaged, 1)
    assert found.encode("w1\u00a0w2\tw3\u3000w4") == found.encode("w1 w2 w3 w4")
    symbols, config = (damaged / name for name in ("source.txt", "config.json"))
    words = symbols.read_text("utf-8").split("\n")
    symbols.write_text("\n".join([*words[:-2], "<break>", ""]), "utf-8")
    content = json.loads(config.read_text())
    content["files"]["source.txt"] = symbols.stat().st_size
    config.write_text(json.dumps(content))
    for line in ("w1 <break> w2", "w1<break>w2", "w1<break> w2"):
        assert Translator(damaged, 1).pieces(line) == ["w1", "<break>", "w2"]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"moses": True, "lowercased": True, "hyphens": "##AT##"}, ("Moses", "lower", "##AT##")),
        ({"moses": True, "lowercased": False, "hyphens": None}, ("Moses",)),
        ({"moses": False}, ()),
        (None, ()),
    ],
)
def test_export_says_that_lines_are_tokens(
    form: Any,
    said: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Much of ordinary text would be unknown to the model."""
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    (data / "manifest.json").write_text(json.dumps({} if form is None else {"form": form}))
    trained = open_model(toy_checkpoints.write(tmp_path / "c.pt", "transformer"), str(data))
    monkeypatch.setattr(exporter, "write", lambda *_: {})

    def printed() -> str:
        exporter.export(trained, tmp_path)
        return capsys.readouterr().out

    line = printed()
    assert tuple(word for word in ("Moses", "lower", "##AT##") if word in line) == said
    assert "detokenise" in line
    (data / "code").unlink()
    assert "symbols of the dictionary" in printed()
    (data / "spm.model").touch()  # of ordinary text
    assert "takes" not in printed()


@pytest.mark.slow
def test_translations_at_their_limit_are_said(whole: tuple[Trained, Path]) -> None:
    """The toy has not learnt to end."""
    found = Translator(whole[1], 1)
    [[cut]], [[ends]] = (
        found.search([found.encode("w1")], 1, prefixes=[prefix], max_len_a=0, max_len_b=2)
        for prefix in ([], [found.index["w1"], found.config["eos"]])
    )
    assert (len(cut.tokens), cut.at_limit, ends.at_limit) == (2, True, False)
    done = run(whole[1], "--max-len-a=0", "--max-len-b=2", text=b"w1 w2\n\nw3\n")
    assert "2 of 2 translations end at the limit" in done.stderr.decode()
    lines, are_equal = compare(*whole, 2)
    assert are_equal
    assert any("2 of 2 translations end at or near the limit" in line for line in lines)


def test_prefixes_that_cannot_be(tmp_path: Path) -> None:
    """Those of one line end no other one."""
    found = program(opened(tmp_path, "transformer", **SHALLOW), tmp_path)
    told = list[tuple[int, str]]()
    lines, given = ["w1", "w2"], ["w4 </s> w5", "w4"]
    bad, good = found.translate(
        lines, 2, prefixes=given, report=lambda *line: told.append(line), max_len_a=0, max_len_b=3
    )
    assert (bad, [number for number, _ in told]) == ([], [1])
    assert all(one.tokens[0] == found.index["w4"] for one in good)
    with pytest.raises(exported_program.InputError, match="1 prefixes for 2 lines"):
        found.translate(lines, prefixes=["w4"])


@pytest.mark.slow
def test_the_penalty_of_a_forced_unknown_word(whole: tuple[Trained, Path]) -> None:
    """As in fairseq."""
    found = Translator(whole[1], 1)
    unknown = found.config["unk"]
    [[free]], [[less]] = (
        found.search([found.encode("w1")], 1, prefixes=[[unknown]], max_len_a=0, max_len_b=1,
                     unkpen=penalty, lenpen=0)
        for penalty in (0, 5)
    )  # fmt: skip
    assert less.score == pytest.approx(free.score - 5, abs=1e-4)


@pytest.mark.slow
def test_integers_of_two_products_in_a_row(tmp_path: Path) -> None:
    """The output of the first is the input of the second."""
    path = toy_checkpoints.write(
        tmp_path / "c.pt", "transformer_headsize_n", decoder_output_dim=20, **SHALLOW
    )
    trained = open_model(path, toy_checkpoints.COPY)
    graphs = exporter.graphs_of(trained)
    exact, integers = (
        folder_of(trained, tmp_path / str(int8), int8, graphs) for int8 in (False, True)
    )
    targets = [line[:-1] for line in sources()]
    expected = bits_of_folder(exact, sources(), targets)
    assert bits_of_folder(integers, sources(), targets) == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
def test_options_of_the_command(whole: tuple[Trained, Path], tmp_path: Path) -> None:
    (tmp_path / "starts").write_text("w2\n\n")
    options = ["--nbest=2", "--scores", "--beam=3", "--min-len=2", f"--prefixes={tmp_path}/starts"]
    done = run(whole[1], *options, text=b"w1 w2\nw4 w5\n")
    expected = Translator(whole[1], 1).translate(
        ["w1 w2", "w4 w5"], 3, prefixes=["w2", ""], min_len=2
    )
    lines = [f"{h.score:.4f}\t{h.text}" for of in expected for h in of[:2]]
    assert done.stdout.decode().splitlines() == lines
    assert lines[0].split("\t")[1].startswith("w2")
    assert run(whole[1], "--nbest=9", text=b"w1\n").returncode == 2
    # Another number of prefixes would belong to other lines; an editor of Windows wrote these.
    (tmp_path / "starts").write_bytes(b"\xef\xbb\xbfw2\r\n\r\nw3\r\n")
    assert (
        "has 3 lines, but the text has 2"
        in run(whole[1], *options, text=b"w1\nw4\n").stderr.decode()
    )
    done = run(whole[1], *options, text=b"w1 w2\nw4 w5\n\n")
    assert done.stdout.decode().splitlines() == [*lines, "", ""]  # as many for an empty line


@pytest.mark.slow
def test_subwords_that_the_dictionary_lacks_are_said(whole: tuple[Trained, Path]) -> None:
    said = "1 of 2 lines have subwords that the dictionary lacks"
    for line, is_said in (("w1 \u0416\nw2\n", True), ("w1\nw2\n", False)):
        assert (said in run(whole[1], text=line.encode()).stderr.decode()) == is_said


def test_the_function_takes_any_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A generator is read once; the letters of one text are not its lines."""
    model = object.__new__(Translator)
    model.config, model.sources, model.split = {"subwords": None}, {"w1": 0}, str.split
    monkeypatch.setattr(
        model, "translate", lambda lines, *_: [[Hypothesis(0.0, [], line)] for line in lines]
    )
    monkeypatch.setattr(exported_program, "_HERE", [model])
    assert exported_program.translate(line for line in ("w1", "w2")) == ["w1", "w2"]  # type: ignore[arg-type]
    assert "1 of 2 lines have subwords" in capsys.readouterr().err
    with pytest.raises(InputError, match="list"):
        exported_program.translate("w1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "target.txt"])
def test_a_missing_or_foreign_file_is_named(name: str, damaged: Path) -> None:
    for change in (lambda path: path.write_bytes(b"{}"), lambda path: path.unlink()):
        change(damaged / name)
        done = run(damaged, text=b"w1\n")
        assert done.returncode == 1
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith(f"translate: error: {damaged / name}: ")


@pytest.mark.slow
def test_other_forms_and_operators_are_named(damaged: Path) -> None:
    config = json.loads((damaged / "config.json").read_text())
    graph = onnx.load(damaged / "step.onnx", load_external_data=False)
    graph.graph.node[-1].op_type = "Unheard"
    content = graph.SerializeToString()
    (damaged / "step.onnx").write_bytes(content)
    config["files"]["step.onnx"] = len(content)
    (damaged / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"step.onnx: onnxruntime cannot load it .*Unheard"):
        Translator(damaged, 1)
    (damaged / "config.json").write_text(json.dumps({**config, "form": FORM + 1}))
    with pytest.raises(InputError, match=f"format {FORM + 1}"):
        Translator(damaged, 1)


@pytest.mark.slow
def test_a_beam_wider_than_the_vocabulary_is_refused(whole: tuple[Trained, Path]) -> None:
    with pytest.raises(InputError, match="beam"):
        Translator(whole[1], 1).search(sources(1), len(np.arange(40)))


def test_pieces_are_sentencepieces(tmp_path: Path) -> None:
    from unit.test_export import subwords_in

    pieces = subwords_in(tmp_path / "data")
    trained = opened(tmp_path, "transformer_headsize_n")
    trained.cfg.task.data = str(tmp_path / "data")
    for side in ("source", "target"):
        symbols = getattr(trained.task, f"{side}_dictionary")
        for i in range(3, pieces.get_piece_size()):
            symbols.add_symbol(pieces.id_to_piece(i))
    (tmp_path / "out").mkdir()
    found = program(trained, tmp_path / "out")
    tokens = found.encode("w1 A dog runs.")
    assert found.symbols[tokens[-1]] == "</s>"
    assert found.decode(tokens[:-1]) == "w1 A dog runs."


# ---- what cannot be exported ---------------------------------------------------------------------


def test_all_reasons_are_said_at_once(tmp_path: Path) -> None:
    """Before anything is written."""
    options = {"adaptive_input": True, "adaptive_input_cutoff": "8", "adaptive_softmax_cutoff": "8"}
    trained = opened(tmp_path, "transformer_lm_headsize_n", **options)
    trained.cfg.task._name = "denoising"
    (tmp_path / "out").mkdir()
    with refusing("c.pt", "AdaptiveInput", "'denoising'"):
        exporter.export(trained, tmp_path / "out")
    assert not [*(tmp_path / "out").iterdir()]


def test_words_that_are_bytes_are_refused(
    whole: tuple[Trained, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be printed as they are: <0xD0><0xB6>."""
    monkeypatch.setattr(whole[0].task.target_dictionary, "symbols", ["<s>", "<0xD0>"])
    with refusing("<0xD0>", "c.pt"):
        exporter.export(whole[0], tmp_path)


def test_heads_with_a_forward_of_their_own_are_refused(tmp_path: Path) -> None:
    trained = opened(tmp_path, "transformer_collab", key_dim=6)
    module = trained.attentions["cross"][1].module
    module.__class__ = type("Other", (type(module),), {"forward": lambda self: None})
    with refusing("cross 1", "Other", "forward"):
        exporter.export(trained, tmp_path)


def test_ordinary_text_for_a_model_of_tokens_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The exported program's own rule is that of ``translate``."""
    assert exported_program.ATTACHED.pattern == ATTACHED.pattern
    assert exported_program.ABBREVIATIONS == ABBREVIATIONS
    words = {word: i for i, word in enumerate(["a", "dog", ".", "Mr.", *map(str, range(99))])}
    for kind, vocabulary, lines, is_said in (
        ("subword_nmt", words, ["a dog.", None, "dog!", "a ."], False),
        ("subword_nmt", words, ["a dog.", "dog!", "a ."], True),
        ("subword_nmt", {**words, "dog.": 0, "dogs!": 0, "on.": 0}, ["a dog.", "dog!"], False),
        ("sentencepiece", words, ["a dog.", "dog!"], False),
    ):
        of_tokens = Namespace(config={"subwords": kind}, sources=vocabulary)
        Translator.say_if_untokenised(of_tokens, lines)  # type: ignore[arg-type]
        assert ("trained on tokens" in capsys.readouterr().err) == is_said


def test_a_byte_order_mark_is_no_word() -> None:
    """Editors of Windows begin a file with it; elsewhere in a file it is text, as in fairseq."""
    rows = [b"\xef\xbb\xbfa dog\r\n", b"\xff\n", b"\xef\xbb\xbfcats"]
    assert [*exported_program.read_lines(rows)] == ["a dog", None, "\ufeffcats"]


def test_prefixes_belong_to_lines(tmp_path: Path) -> None:
    (path := tmp_path / "starts").write_bytes(b"\xef\xbb\xbfa\r\n\r\nb")
    assert exported_program.read_prefixes(path, 3) == ["a", "", "b"]
    for number in (2, 4):
        with pytest.raises(InputError, match=f"3 lines.* {number}"):
            exported_program.read_prefixes(path, number)
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        exported_program.read_prefixes(path, 2)


def test_output_is_utf_8_like_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on Windows would have the encoding of its language."""
    found = [[exported_program.Hypothesis(0, [], "é", False)]]
    nothing = dict.fromkeys(("say_if_untokenised", "say_if_unknown"), lambda _: None)
    model = Namespace(translate=lambda *_, **__: found, **nothing)
    monkeypatch.setattr(exported_program, "Translator", lambda *_: model)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"e\n")))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written := io.BytesIO(), "cp1252"))
    assert exported_program.main([]) == 0
    sys.stdout.flush()
    assert written.getvalue().decode("utf-8").strip() == "é"
