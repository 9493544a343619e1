"""The words of an exported model: dictionaries, the subword model, and tags of languages."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fairseq.data import Dictionary
from fairseq.tasks import setup_task
from fairseq.utils import split_paths
from omegaconf import OmegaConf
from sentencepiece import SentencePieceProcessor

from collab_common.errors import UserError
from collab_lab.export.plain import inexact
from collab_lab.trained.checkpoint import Trained
from data_prep import subwords
from fairseq_collab.models.options import plain_options

#: fairseq's task for one model of many languages.
_MULTILINGUAL = "translation_multi_simple_epoch"
#: The subword model of a data folder.
SUBWORDS = subwords.MODEL


class Vocabulary(NamedTuple):
    """The languages of a translation model and their dictionaries.

    Attributes:
        subwords: the sentencepiece model of both languages, if the data folder has one.
        source_tag, target_tag: the language symbols with which a multilingual model begins each
            source and each translation.
    """

    source_lang: str
    target_lang: str
    source: Dictionary
    target: Dictionary
    subwords: Path | None = None
    source_tag: str | None = None
    target_tag: str | None = None


def vocabulary(trained: Trained) -> Vocabulary:
    """The dictionaries of a translation model, which its task read from the data folder."""
    task, name = trained.task, trained.cfg.task._name
    if name not in ("translation", _MULTILINGUAL):
        problem = f"its task is {name!r}, not translation"
        raise inexact(trained, problem, "--format fairseq without --check works")
    folder = Path(split_paths(trained.cfg.task.data)[0])  # the first has the dictionaries
    langs = ("", "")
    if name != _MULTILINGUAL:
        langs = (task.cfg.source_lang, task.cfg.target_lang)
    sides = (task.source_dictionary, task.target_dictionary)
    for words, lang in zip(sides, langs, strict=True):
        # fairseq finds the last of equal words, engines another (``#fairseq:overwrite``).
        if twice := [word for word, number in Counter(words.symbols).items() if number > 1]:
            where = folder / f"dict.{lang}.txt" if lang else folder
            raise UserError(f"has the symbol {twice[0]!r} twice: no exact export", where)
    path = folder / SUBWORDS
    found = path if path.is_file() and all(langs) else None
    tags = language_tags(trained) if name == _MULTILINGUAL else (None, None)
    return Vocabulary(*langs, *sides, found, *tags)


def cut_tags(trained: Trained, reads_codes: bool = False) -> str | None:
    """Text about tags of the source dictionary that no segmented line has; None without any.

    Args:
        reads_codes: whether the export splits lines by BPE codes, if the data folder has them.
    """
    if trained.is_language_model or trained.cfg.task._name != "translation":
        return None
    symbols = trained.task.source_dictionary.symbols
    folder = Path(split_paths(trained.cfg.task.data)[0])
    model, codes = folder / SUBWORDS, folder / subwords.CODES
    if model.is_file():
        # Maybe with bytes, which engines can join; only read if there are tags.
        load = functools.cache(lambda: SentencePieceProcessor(model_file=str(model)))
        return subwords.cut_tags(
            symbols, lambda tag: list(load().encode(tag, out_type=str)), model.name
        )
    if reads_codes and codes.is_file():
        return subwords.cut_tags(symbols, subwords.units_of(codes), codes.name)
    return None


def language_tags(trained: Trained) -> tuple[str | None, str | None]:
    """The language symbols that begin sources and translations; None where there is none."""
    options, manager = trained.task.args, trained.task.data_manager
    if options.lang_tok_replacing_bos_eos:
        problem = "its task has --lang-tok-replacing-bos-eos"
        raise inexact(trained, problem, "--format fairseq without --check works")
    source, target = options.source_lang, options.target_lang
    if not (source and target):
        return None, None
    of_source, of_target = options.langtoks["main"]
    sources, targets = trained.task.source_dictionary, trained.task.target_dictionary
    return (
        sources[manager.get_encoder_langtok(source, target, of_source)] if of_source else None,
        targets[manager.get_decoder_langtok(target, of_target)] if of_target else None,
    )


def directions(trained: Trained) -> list[Trained]:
    """The model once for each pair of languages that it translates, with a task for the pair.

    A model with one direction is itself the only one.
    """
    pairs = getattr(trained.cfg.task, "lang_pairs", None)
    if not pairs or (trained.cfg.task.source_lang and trained.cfg.task.target_lang):
        return [trained]
    found = []
    for pair in pairs:
        options = copy.deepcopy(trained.cfg.task)
        options.source_lang, options.target_lang = pair.split("-")
        content = {**plain_options(trained.cfg), "task": options}
        cfg = OmegaConf.create(content, flags={"allow_objects": True})
        state = {**trained.state, "cfg": cfg}
        found.append(replace(trained, state=state, task=setup_task(cfg.task)))
    return found
