"""Random models of ours, fairseq's transformers with equal outputs, random sentences.

fairseq's twin is exact (:mod:`collab_lab.export`) because no head needs more than the ``d/H``
dimensions of a standard head: where shared keys have width ``K > d/H``, the random diagonal mixing
``m (H, K)`` of the benchmark is zero but for ``d/H`` entries per head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset, MonolingualDataset
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf
from torch import nn

from collab_common.errors import UserError
from collab_lab.export.model import plain
from collab_lab.trained.checkpoint import Trained, to_device
from collab_lab.trained.untrained import placeholder
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.models.base import Family
from fairseq_collab.models.families import LANGUAGE_MODEL, TRANSLATION
from fairseq_collab.models.options import PRESET_SIZES
from fairseq_collab.models.variants import VARIANTS

#: The variants that are timed, by their names in tables.
TIMED = {"standard heads": "headsize_n", "shared keys, d/4": "collab"}
SHORTEST, LONGEST = 4, 100  # source lengths, in subwords
_FIRST_WORD = 4  # after fairseq's special symbols


@dataclass(frozen=True)
class Preset:
    """Sizes of a model and of its random sentences.

    Attributes:
        family: of translation, or of language models, whose sentences have one length.
        length: mean and standard deviation of source lengths, in subwords.
        batch: sentences that are translated together.
        train_tokens: largest number of tokens in a training batch.
    """

    options: dict[str, Any]
    vocabulary: int
    length: tuple[float, float]
    batch: int
    train_tokens: int
    family: Family = TRANSLATION


def _language_model(positions: int, train_tokens: int, **sizes: int) -> Preset:
    of_the_task = {"tokens_per_sample": positions + 1, "add_bos_token": False, "tpu": False}
    options = {f"decoder_{name}": size for name, size in sizes.items()}
    options |= {"max_target_positions": positions + 2, "share_decoder_input_output_embed": True}
    return Preset(options | of_the_task, 6000, (positions, 0), 2, train_tokens, LANGUAGE_MODEL)


_LONG = {"embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8, "layers": 2}
_TINY = {"embed_dim": 32, "ffn_embed_dim": 64, "attention_heads": 4, "layers": 1}
PRESETS = {
    "multi30k": Preset(PRESET_SIZES["_multi30k"], 6000, (15, 5), 64, 2048),
    "wmt_en_de": Preset(PRESET_SIZES["_wmt_en_de"], 32768, (28, 12), 16, 1000),
    "lm_512": _language_model(512, 2048, **_LONG),
    "lm_2048": _language_model(2048, 2048, **_LONG),
    # For tests of the benchmark itself.
    "tiny_lm": _language_model(12, 48, **_TINY),
    "tiny": Preset(
        {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in _TINY.items()},
        vocabulary=50, length=(8, 3), batch=4, train_tokens=100,
    ),
}  # fmt: skip


class Pair(NamedTuple):
    """fairseq's transformer and an equal model of ours."""

    stock: Any
    ours: Trained


def architectures() -> list[str]:
    """All encoder-decoder architectures of ours, without presets."""
    return [
        f"transformer_{variant.name}" for variant in VARIANTS if TRANSLATION in variant.families
    ]


def random_pair(arch: str, preset: str, task: Any, **more: Any) -> Pair:
    """A random model of ours, and its twin of fairseq's kind; raises UserError if it has none."""
    ours = random_model(arch, preset, task, **more)
    return Pair(plain(ours).model, ours)


def random_model(arch: str, preset: str, task: Any, **more: Any) -> Trained:
    """A random model of ours, in eval mode; ``more``: further options."""
    torch.manual_seed(1)
    options = OmegaConf.merge(options_of(arch, preset), more)
    model = build_model(options, task)
    amplify_attention(model)
    cfg = OmegaConf.create({"model": options, "task": None})
    return Trained(Path(f"the {preset} model"), {"cfg": cfg}, model.eval(), task)


def options_of(arch: str, preset: str) -> Any:
    """Embeddings are shared as in the papers; sizes that a preset leaves out are fairseq's."""
    options = {"decoder_embed_dim": 512, **PRESETS[preset].options, "_name": arch}
    if PRESETS[preset].family is TRANSLATION:
        sizes = {"encoder_embed_dim": 512, "encoder_attention_heads": 8}
        options = {**sizes, **options, "share_all_embeddings": True}
    if arch.endswith("_collab"):
        options["key_dim"] = options["decoder_embed_dim"] // 4
        options["query_mixing"] = "diagonal"  # as in results/speed.md
    return OmegaConf.merge(OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch]()), options)


@torch.no_grad()
def amplify_attention(model: nn.Module) -> None:
    """Let attention and feed-forward outweigh the residuals, and restrict mixing to ``d/H``.

    Then different sentences have different translations: beam search through the weights of
    fairseq's initialisation soon repeats a few words.
    """
    for name, weight in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight.mul_(2)
        elif name.endswith(("out_proj.weight", "fc2.weight")):
            weight.mul_(4)
    for module in model.modules():
        if isinstance(module, CollaborativeAttention) and module.query_mixing == "diagonal":
            heads, dims = module.mixing.shape
            chosen = torch.rand(heads, dims).topk(min(module.embed_dim // heads, dims)).indices
            mask = torch.zeros(heads, dims).scatter_(1, chosen, 1.0)
            # As large as a head's own entries are in block mixing, so that scores differ.
            module.mixing.copy_(torch.empty(heads, dims).uniform_(0.5, 1.5) * mask)


def unequal(problem: str) -> UserError:
    """The error that two models do not compute the same function."""
    todo = "nothing was timed; report this with the output of fairseq-collab doctor"
    return UserError(problem, "the benchmark's check", todo)


# ---- sentences -----------------------------------------------------------------------------------


def random_task(preset: str, sentences: int) -> Any:
    """A task of the preset's family with ``sentences`` random sentences as ``test`` and ``train``.

    Lengths for translation are normally distributed, cut at :data:`SHORTEST` and :data:`LONGEST`; a
    target is as long as its source.
    """
    sizes = PRESETS[preset]
    symbols = placeholder(sizes.vocabulary)
    generator = np.random.default_rng(1)
    lengths = generator.normal(*sizes.length, sentences).round().astype(int)

    def lines() -> list[torch.Tensor]:
        words = (generator.integers(_FIRST_WORD, len(symbols), length) for length in lengths)
        return [torch.tensor([*line, symbols.eos()]) for line in words]

    if sizes.family is LANGUAGE_MODEL:
        lengths -= 1  # with the end of the sentence, all positions
        task: Any = LanguageModelingTask(LanguageModelingConfig(), symbols)
        blocks = [(line.roll(1), line, None) for line in lines()]
        data: Any = MonolingualDataset(
            blocks, lengths + 1, symbols, symbols, False, False, targets=["future"]
        )
    else:
        cfg = OmegaConf.structured(TranslationConfig(source_lang="en", target_lang="de"))
        task = TranslationTask(cfg, symbols, symbols)
        lengths = lengths.clip(SHORTEST, LONGEST)
        sides = (lines(), lengths + 1, symbols, lines(), lengths + 1, symbols)
        data = LanguagePairDataset(*sides, shuffle=False)
    task.datasets.update(test=data, train=data)
    return task


def batches(task: Any, subset: str, device: torch.device, **limits: int) -> list[Any]:
    """All batches of a subset, on the device, from the task's own iterator.

    Args:
        limits: ``max_sentences``, ``max_tokens``.
    """
    iterator = task.get_batch_iterator(
        task.dataset(subset),
        disable_iterator_cache=True,  # a cached iterator has batches of the first size asked for
        **limits,
    )
    return [to_device(batch, device) for batch in iterator.next_epoch_itr(shuffle=False)]
