"""Speed of translation and training compared with stock fairseq.

Models have random weights.  Stock fairseq gets exact copies of our models
(:mod:`collab_lab.export`), and timing starts only after both have produced the same translations or
the same loss.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import options
from fairseq.data import LanguagePairDataset
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from torch import Tensor

from collab_common.errors import UserError
from collab_common.progress import say
from collab_lab.clock.turns import Record, pause, take_turns
from collab_lab.export.plain import plain
from collab_lab.export.translate import Translator
from collab_lab.export.vocabulary import Vocabulary
from collab_lab.metrics.generate import BEAM, words_of
from collab_lab.shrinking.engine import ENGINES
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.from_options import placeholder
from collab_lab.trained.sentences import to_device
from fairseq_collab.models.options import PRESET_SIZES

#: Architectures, by their names in tables.
ARCHITECTURES = {
    "standard heads": "transformer_headsize_n",
    "shared keys, d/4": "transformer_collab",
}
CTRANSLATE2 = {"CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}  # and its formats
ONNX = {"ONNX Runtime float32": False, "ONNX Runtime int8": True}  # and whether of integers
LENGTH = 30  # tokens of each translation
TOLERANCE = 1e-4  # relative difference of equal losses, and of scores of equally good translations


class Preset(NamedTuple):
    """Sizes of a model and of its random sentences."""

    options: dict[str, Any]
    vocabulary: int
    length: tuple[float, float]  # mean and standard deviation, in subwords
    batch: int  # sentences that are translated together
    train_tokens: int  # in a training batch, at most


_TINY = {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4, "layers": 1}
_TINY = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in _TINY.items()}
PRESETS = {
    "multi30k": Preset(PRESET_SIZES["_multi30k"], 6000, (15, 5), 64, 2048),
    "wmt_en_de": Preset(PRESET_SIZES["_wmt_en_de"], 32768, (28, 12), 16, 1000),
    "tiny": Preset(_TINY, 50, (8, 3), 4, 100),  # for tests
}


def random_model(arch: str, preset: str, task: Any, **more: Any) -> Trained:
    """A random model of ours, in eval mode, with shared embeddings; ``more``: further options."""
    torch.manual_seed(1)
    model_options = {"encoder_embed_dim": 512, "decoder_embed_dim": 512, **PRESETS[preset].options}
    if arch.endswith("_collab"):  # as in results/speed.md
        model_options |= {
            "key_dim": model_options["decoder_embed_dim"] // 4,
            "query_mixing": "diagonal",
        }
    chosen = {**model_options, "share_all_embeddings": True, "_name": arch, **more}
    cfg = OmegaConf.merge(OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]()), chosen)
    model = build_model(cfg, task).eval()
    larger = {"q_proj": 2, "k_proj": 2, "out_proj": 4, "fc2": 4}
    with torch.no_grad():  # else beam search soon repeats a few words, whatever the sentence
        for name, weight in model.named_parameters():
            weight.mul_(larger.get(name.split(".")[-2], 1))
    state = {"cfg": OmegaConf.create({"model": cfg, "task": {"_name": "translation"}})}
    return Trained(Path(preset), state, model, task)


def random_task(preset: str, sentences: int, vocabulary: int | None = None) -> Any:
    """A task with random sentence pairs, each target as long as its source."""
    symbols = placeholder(vocabulary or PRESETS[preset].vocabulary)
    generator = np.random.default_rng(1)
    lengths = generator.normal(*PRESETS[preset].length, sentences).round().astype(int).clip(4, 100)

    def side() -> tuple[list[Tensor], Any, Any]:
        words = (generator.integers(symbols.nspecial, len(symbols), n) for n in lengths)
        return [torch.tensor([*line, symbols.eos()]) for line in words], lengths + 1, symbols

    cfg = OmegaConf.structured(TranslationConfig(source_lang="en", target_lang="de"))
    task = TranslationTask(cfg, symbols, symbols)
    task.datasets["test"] = LanguagePairDataset(*side(), *side(), shuffle=False)
    return task


def batches(task: Any, device: torch.device, **limits: int) -> list[Any]:
    """All batches, on the device; ``limits``: ``max_sentences``, ``max_tokens``."""
    # A cached iterator has batches of the first size asked for.
    iterator = task.get_batch_iterator(task.dataset("test"), disable_iterator_cache=True, **limits)
    return [to_device(batch, device) for batch in iterator.next_epoch_itr(shuffle=False)]


def check_equal(what: str, stock: float, ours: float) -> None:
    """Raise UserError unless the two equal models compute equal numbers, up to rounding."""
    if not abs(stock - ours) <= TOLERANCE * abs(stock):
        problem = f"{what} is {stock:.6f} by fairseq's model, {ours:.6f} by ours"
        todo = "nothing was timed; report this with the output of fairseq-collab doctor"
        raise UserError(problem, "the benchmark's check", todo)


def translator(model: Any, task: Any, beam: int = BEAM, *, length: int) -> Callable[[Any], Any]:
    """Translate batches as ``fairseq-generate`` does; the model is prepared in place.

    Args:
        length: number of tokens of every translation.
    """
    options = {"beam": beam, "max_len_a": 0, "max_len_b": length, "min_len": length, "lenpen": 1.0}
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.generation.beam = beam
    model.eval()
    model.prepare_for_inference_(cfg)
    generator = task.build_generator([model], Namespace(**options))
    return lambda batch: task.inference_step(generator, [model], batch)


#: fairseq's option that trains in numbers of a type.
NUMBERS = {torch.float32: [], torch.float16: ["--fp16"], torch.bfloat16: ["--bf16"]}


def time_translation(
    arch: str,
    preset: str,
    device: torch.device,
    threads: int,
    dtype: torch.dtype = torch.float32,
    least: float | None = None,
) -> Iterator[Record]:
    """One record per engine: fairseq's model, ours; on a CPU also CTranslate2 and ONNX Runtime.

    Args:
        dtype: the type of all numbers, in which only fairseq's model and ours are timed if it is
            not float32; translations are compared in float32 before.
        least: seconds of all turns; default: those of :data:`.turns.LEAST`.
    """
    size = PRESETS[preset].batch
    task = random_task(preset, size)
    ours = random_model(arch, preset, task)
    stock = plain(ours)
    (batch,) = batches(task, device, max_sentences=size)
    others = dict[str, Any]()
    if device.type == "cpu" and dtype == torch.float32:  # before the models are prepared in place
        others = ctranslate2(stock, batch, threads) | onnx_runtime(ours, batch, threads)
    models = {"fairseq": stock.model, "ours": ours.model}
    engines = {name: translator(x.to(device), task, length=LENGTH) for name, x in models.items()}
    count_ties(*(engine(batch) for engine in engines.values()))
    for model in models.values():
        model.to(dtype)
    for engine in (engines | others).values():  # the warm-up
        engine(batch)
    waits = pause() if device.type == "cpu" else 0.0
    for record in take_turns(engines | others, [batch], waits, least):
        case = f"beam {BEAM}, batch {size}, length {LENGTH}"
        yield {"task": "translation", "case": case, **record, "work": size, "unit": "sentences"}


def count_ties(stock: list[Any], ours: list[Any]) -> int:
    """The number of sentences whose best hypotheses differ; UserError unless scores are equal."""
    pairs = [(theirs, best) for (theirs, *_), (best, *_) in zip(stock, ours, strict=True)]
    ties = [(a, b) for a, b in pairs if a["tokens"].tolist() != b["tokens"].tolist()]
    for theirs, best in ties:
        check_equal("the score of a sentence", float(theirs["score"]), float(best["score"]))
    return len(ties)


def ctranslate2(stock: Trained, batch: Any, threads: int) -> dict[str, Any]:
    """CTranslate2 with the weights of fairseq's model; empty if it is not installed.

    Its translations have a word where fairseq's have the end of the sentence.
    """
    if find_spec("ctranslate2") is None:
        say("CTranslate2 is not installed and not timed; pip install ctranslate2")
        return {}
    write = import_module("collab_lab.export.ct2").write  # it imports the optional package
    source, target = stock.task.source_dictionary, stock.task.target_dictionary
    words = [words_of(source, line) for line in batch["net_input"]["src_tokens"]]
    options = dict.fromkeys(("min_decoding_length", "max_decoding_length"), LENGTH + 1)
    options |= {"beam_size": BEAM}
    load = partial(import_module("ctranslate2").Translator, intra_threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        write(stock, Vocabulary("en", "de", source, target), Path(folder))
        loaded = {name: load(folder, compute_type=kind) for name, kind in CTRANSLATE2.items()}
    return {name: lambda _, x=x: x.translate_batch(words, **options) for name, x in loaded.items()}


def onnx_runtime(ours: Trained, batch: Any, threads: int) -> dict[str, Any]:
    """ONNX Runtime with the heads of our model; empty if its packages are not installed."""
    for package in ENGINES["onnx"].packages:
        if find_spec(package) is None:
            say(f"{package} is not installed, and ONNX Runtime not timed; pip install {package}")
            return {}
    exporter = import_module("collab_lab.export.onnx")
    graphs, pad = exporter.graphs_of(ours), ours.task.source_dictionary.pad()
    sources = [row[row.ne(pad)].tolist() for row in batch["net_input"]["src_tokens"]]
    options = {"max_len_a": 0, "max_len_b": LENGTH, "min_len": LENGTH}
    loaded = {}
    for name, int8 in ONNX.items():
        with tempfile.TemporaryDirectory() as folder:
            exporter.write(ours, Path(folder), int8, graphs)
            loaded[name] = Translator(folder, threads)
    return {name: lambda _, x=x: x.search(sources, BEAM, **options) for name, x in loaded.items()}


OPTIONS = ["DATA", "--arch=transformer", "--optimizer=adam", "--adam-betas=(0.9, 0.98)"]
OPTIONS += ["--lr=5e-4", "--lr-scheduler=inverse_sqrt", "--max-tokens=4096", "--no-save"]
OPTIONS += ["--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1"]


def time_training(
    arch: str,
    preset: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = None,
    least: float | None = None,
) -> Iterator[Record]:
    """One record per engine: updates (forward, backward, norm, Adam) by fairseq's ``Trainer``.

    Args:
        dtype: the type of numbers that is trained in; losses are compared in float32 before.
        max_tokens: of a batch; default: the preset's.
        least: seconds of all turns; default: those of :data:`.turns.LEAST`.
    """
    tokens = max_tokens or PRESETS[preset].train_tokens
    task = random_task(preset, 4 * tokens // int(PRESETS[preset].length[0]))
    if (longest := int(task.dataset("test").sizes.max())) > tokens:
        problem = f"a sentence has {longest} tokens"
        raise UserError(problem, f"--max-tokens {tokens}", "give at least that number")
    data = batches(task, device, max_tokens=tokens)
    data = data[:-1] or data  # the last one has what is left
    ours = random_model(arch, preset, task)
    models = {"fairseq": plain(ours).model, "ours": ours.model}
    exact = [trainer(model, task, device) for model in models.values()]
    check_equal("the loss", *(loss(one, data[0]) for one in exact))
    form = NUMBERS[dtype]
    trainers = {name: trainer(model, task, device, *form) for name, model in models.items()}
    for one in trainers.values():
        while not one.get_num_updates():  # it creates the optimiser's state; fp16 skips some
            one.train_step([data[0]])
        for batch in data:  # each shape is new once
            one.train_step([batch])
    programs = {name: one.train_step for name, one in trainers.items()}
    work = int(np.median([batch["ntokens"] for batch in data]))
    case = f"batches of at most {tokens} tokens"
    for record in take_turns(programs, [[batch] for batch in data], pause=0, least=least):
        yield {"task": "training", "case": case, **record, "work": work, "unit": "target tokens"}


def trainer(model: Any, task: Any, device: torch.device, *more: str) -> Trainer:
    """fairseq's trainer of one model, at the start of its first epoch; ``more`` options win."""
    arguments = [*OPTIONS, *more, *(["--cpu"] if device.type == "cpu" else [])]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = convert_namespace_to_omegaconf(args)
    result = Trainer(cfg, task, model.to(device), task.build_criterion(cfg.criterion))
    result.begin_epoch(1)
    return result


@torch.no_grad()
def loss(trainer: Trainer, batch: Any) -> float:
    """The loss per token on one batch, without dropout."""
    trainer.model.eval()
    total, _, _ = trainer.criterion(trainer.model, batch)
    trainer.model.train()
    return float(total) / batch["ntokens"]
