"""Speed compared with stock fairseq: translation, training, and decoding by length.

Models have random weights.  Stock fairseq gets exact copies of our models
(:mod:`collab_lab.export`), and timing starts only after both have produced the same translations or
the same loss.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import options, utils
from fairseq.data import LanguagePairDataset
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY, build_model
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from torch import Tensor

from collab_common.errors import UserError, did_you_mean
from collab_common.progress import say
from collab_lab.clock.turns import Record, clock, take_turns
from collab_lab.export.plain import plain
from collab_lab.export.translate import Translator
from collab_lab.export.vocabulary import Vocabulary
from collab_lab.metrics.generate import BEAM, words_of
from collab_lab.shrinking.engine import ENGINES
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.from_options import placeholder
from collab_lab.trained.sentences import to_device
from fairseq_collab.attention.cache import Cache, beam_history, has_beam_history
from fairseq_collab.decoding.fixed_steps import FIXED_STEPS_ENV, is_requested
from fairseq_collab.models.families import TRANSLATION
from fairseq_collab.models.options import PRESET_SIZES

#: Architectures, by their names in tables.
ARCHITECTURES = {
    "standard heads": "transformer_headsize_n",
    "shared keys, d/4": "transformer_collab",
}
#: Kinds that every model is timed next to, by length.
STANDARD = ("stock fairseq", "standard heads")
CTRANSLATE2 = {"CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}  # and its formats
ONNX = {"ONNX Runtime float32": False, "ONNX Runtime int8": True}  # and whether of integers
LENGTH = 30  # tokens of each translation
BEAMS, SENTENCES = (1, 5), 64  # of decoding against length
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


def check_arch(arch: str) -> None:
    """Raise UserError unless this is a registered architecture of translation models with heads."""
    known = [name for name, kind in MODEL_REGISTRY.items() if issubclass(kind, TRANSLATION.model)]
    if arch not in known:
        todo = did_you_mean(arch, known) or "give --user-dir with the plug-in that defines it"
        raise UserError("must be a translation model of this project", f"--arch {arch}", todo)


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


def time_translation(
    arch: str, preset: str, device: torch.device, threads: int
) -> Iterator[Record]:
    """One record per engine: fairseq's model, ours; CTranslate2 and ONNX Runtime on a CPU."""
    size = PRESETS[preset].batch
    task = random_task(preset, size)
    ours = random_model(arch, preset, task)
    stock = plain(ours)
    (batch,) = batches(task, device, max_sentences=size)
    others = dict[str, Any]()
    if device.type == "cpu":
        others = ctranslate2(stock, batch, threads) | onnx_runtime(ours, batch, threads)
    models = {"fairseq": stock.model, "ours": ours.model}
    engines = {name: translator(x.to(device), task, length=LENGTH) for name, x in models.items()}
    count_ties(*(engine(batch) for engine in engines.values()))  # also the warm-up
    for engine in others.values():
        engine(batch)
    for record in take_turns(engines | others, [batch]):
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


def time_training(arch: str, preset: str, device: torch.device) -> Iterator[Record]:
    """One record per engine: updates (forward, backward, norm, Adam) by fairseq's ``Trainer``."""
    tokens = PRESETS[preset].train_tokens
    task = random_task(preset, 4 * tokens // int(PRESETS[preset].length[0]))
    data = batches(task, device, max_tokens=tokens)
    ours = random_model(arch, preset, task)
    models = {"fairseq": plain(ours).model, "ours": ours.model}
    trainers = {name: trainer(model, task, device) for name, model in models.items()}
    check_equal("the loss", *(loss(one, data[0]) for one in trainers.values()))
    for one in trainers.values():  # the first update creates the optimiser's state
        one.train_step([data[0]])
    programs = {name: one.train_step for name, one in trainers.items()}
    work = int(np.median([batch["ntokens"] for batch in data]))
    case = f"batches of at most {tokens} tokens"
    for record in take_turns(programs, [[batch] for batch in data], pause=0):
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


def kinds(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The architecture and the options of each kind of heads, for models of size ``d``."""
    latent = {"latent_dim": d // 2, "latent_dim_in_encoder": d}
    own = {"key_dim": d // 4, "query_mixing": "own"}
    return {
        "stock fairseq": ("transformer_headsize_n", {}),
        "standard heads": ("transformer_headsize_n", {}),
        "standard heads, 4 bits": ("transformer_headsize_n", {"cache_bits": "4"}),
        "shared key d/4, own queries": ("transformer_collab", own),
        "latent, a quarter": ("transformer_latent", latent),
        "latent, a quarter, 4 bits": ("transformer_latent", latent | {"cache_bits": "4"}),
        "latent, an eighth": ("transformer_latent", latent | {"latent_dim": d // 4}),
        "latents, one for all cross-attentions": (
            "transformer_latent",
            latent | {"latent_dim": d, "shared_latent_in_cross": d},
        ),
        "grouped query, 2 heads": ("transformer_grouped_query", {"key_value_heads": 2}),
        "multi-query": ("transformer_grouped_query", {"key_value_heads": 1}),
    }


def time_lengths(
    preset: str,
    lengths: Sequence[int],
    device: torch.device,
    arch: str | None = None,
    user_dir: str | None = None,
) -> Iterator[Record]:
    """Time decoding: one record per beam, kind of heads and length, stock fairseq first.

    Each model decodes in a new process, so that its peak memory is its own.

    Args:
        arch: a registered architecture to time instead of this project's narrower kinds.
        user_dir: folder of the plug-in that registers it.
    """
    if is_requested():  # a graph has no hooks that look at the clock on the way
        raise UserError("must not be set with --lengths", FIXED_STEPS_ENV, "unset it")
    if arch is not None:
        check_arch(arch)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once
    some = [*kinds(512)] if arch is None else [*STANDARD, arch]
    for beam, kind in product(BEAMS, some):
        with context.Pool(1, prepare, [torch.get_num_threads(), user_dir]) as pool:
            yield from pool.apply(decode, (kind, preset, sorted(lengths), beam, device))


def prepare(threads: int, user_dir: str | None) -> None:
    """Set up a new process: its threads, and the kinds of heads of a plug-in."""
    torch.set_num_threads(threads)
    utils.import_user_module(Namespace(user_dir=user_dir))


def decode(kind: str, preset: str, lengths: list[int], beam: int, device: Any) -> list[Record]:
    """The records of one kind of heads with random weights: see :func:`watch`."""
    before = peak_memory(device)
    known = kinds(PRESETS[preset].options.get("decoder_embed_dim", 512))
    arch, more = known.get(kind, (kind, {}))
    task = random_task(preset, SENTENCES)
    (batch,) = batches(task, device, max_sentences=SENTENCES)
    ours = random_model(arch, preset, task, **more, max_target_positions=lengths[-1] + 2)
    model = (plain(ours) if kind == "stock fairseq" else ours).model.to(device)
    del ours
    found = watch(model, task, batch, beam, lengths, device, before)
    return [{"kind": kind, **record} for record in found]


def watch(
    model: Any, task: Any, batch: Any, beam: int, lengths: list[int], device: Any, before: int
) -> list[Record]:
    """Decode up to the last of the lengths, and record time and memory at each length.

    ``memory`` is the peak memory that the model and its decoding add, on the GPU or in this
    process; ``cache`` is the size of the incremental state, and ``all_slots`` its size if no slot
    of a beam were dropped.  All are in MiB.

    Args:
        before: peak memory before the model was built, in bytes.
    """
    translator(model, task, beam, length=min(8, lengths[-1]))(batch)  # the first steps allocate
    translate = translator(model, task, beam, length=lengths[-1])
    records, numbers = list[Record](), count()

    def look(_: Any, arguments: Any, options: Any) -> None:
        """Before a step: ``steps`` tokens of each hypothesis are known."""
        if (steps := next(numbers)) in lengths:
            (state,) = (x for x in (*arguments, *options.values()) if isinstance(x, dict))
            record: Record = {"beam": beam, "length": steps}
            record |= {"seconds": (clock() - start) / steps, "cache": cache_bytes(state) / 2**20}
            record["all_slots"] = record["cache"] + dropped_bytes(state) / 2**20
            records.append(record | {"memory": (peak_memory(device) - before) / 2**20})

    model.decoder.layers[0].register_forward_pre_hook(look, with_kwargs=True)
    start = clock()
    translate(batch)
    return records


def peak_memory(device: torch.device) -> int:
    """Peak memory so far in bytes: allocated on the GPU, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def dropped_bytes(state: Any) -> float:
    """Bytes of the slots that caches dropped because no beam needs them; 0 for stock fairseq."""
    if not has_beam_history(state):
        return 0
    history = beam_history(state)
    slots = history.mask.size(3)
    dropped = history.steps * history.beam - slots
    caches = [entry["cache"] for entry in state.values() if isinstance(entry.get("cache"), Cache)]
    kept = {part for one in caches if not one.is_source for part in (one.keys, one.values)}
    return sum(part.filled.nbytes for part in kept) * dropped / max(1, slots)


def cache_bytes(state: Any) -> int:
    """Bytes of all tensors inside ``state``; each storage counts once."""

    def storages(value: Any) -> Iterator[torch.UntypedStorage]:
        parts = getattr(value, "__dict__", value)
        for part in parts.values() if isinstance(parts, dict) else parts:
            if isinstance(part, Tensor):
                yield part.untyped_storage()
            elif isinstance(part, dict | list | tuple) or hasattr(part, "__dict__"):
                yield from storages(part)

    return sum({x.data_ptr(): x.nbytes() for x in storages(state)}.values())
