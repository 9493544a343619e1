"""COMET: a trained model's estimate of a translation's quality, from a local folder alone.

Rei et al. 2020, "COMET: A neural framework for MT evaluation"; the library is unbabel-comet.  A
folder is as its authors publish models, and may hold the encoder's configuration and tokeniser:

    FOLDER/hparams.yaml              sizes, and the kind of model
    FOLDER/checkpoints/model.ckpt    weights
    FOLDER/encoder/                  config.json and the tokeniser's files (else they are taken from
                                     Hugging Face's local cache)

Nothing is downloaded, and nothing in the folder is executed: YAML and weights are read by loaders
that make plain values and tensors, or refuse.  The library's own ``load_from_checkpoint`` leaves
how weights are unpickled to Lightning, and is not used.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import yaml
from tqdm import tqdm

from collab_common.errors import UserError, first_line
from collab_common.files import sha256

HPARAMS, WEIGHTS, ENCODER = "hparams.yaml", "checkpoints/model.ckpt", "encoder"
BATCH = 16
#: Weights that a checkpoint may have or lack: they say nothing of the model.
_IDLE = ("position_ids", "token_type_ids", "loss.", "train_metrics.", "val_metrics.")
TODO = "pip install '.[comet]' in an environment of its own (docs/install.md)"


@dataclass(frozen=True)
class Comet:
    """The mean over sentences, as the model gives it, and what it is of."""

    score: float
    signature: str
    sentences: int


def comet(
    folder: Path, sources: list[str], hypotheses: list[str], references: list[str], device: str
) -> Comet:
    """Score translations, ordinary text, with the model in a folder.

    Raises:
        UserError: the library is not installed, the folder is no model that can be loaded safely
            and whole, or the texts have different numbers of sentences.
    """
    sizes = {len(sources), len(hypotheses), len(references)}
    if len(sizes) > 1 or not hypotheses:
        what = f"{len(sources)} sources, {len(hypotheses)} translations, {len(references)} "
        raise UserError(f"{what}references", todo="give as many of each, and some")
    model = load(folder).to(device).eval()
    samples = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    total = sum(_scores(model, samples, device))
    return Comet(total / len(samples), signature(folder, model), len(samples))


@torch.no_grad()
def _scores(model: Any, samples: list[dict[str, str]], device: str) -> Iterator[float]:
    """A score a sentence, in batches of like length."""
    ordered = sorted(samples, key=lambda sample: len(sample["src"]))
    for start in tqdm(range(0, len(ordered), BATCH), desc="COMET", disable=None, leave=False):
        prepared = model.prepare_sample(ordered[start : start + BATCH], stage="predict")
        parts = prepared if isinstance(prepared, tuple) else (prepared,)
        moved = tuple({k: v.to(device) for k, v in part.items()} for part in parts)
        found = model.predict_step(moved if isinstance(prepared, tuple) else moved[0])
        yield from found["scores"].double().tolist()


def signature(folder: Path, model: Any) -> str:
    """The kind of model, the hash of its files, and the library."""
    digest = hashlib.sha256()
    files = [folder / HPARAMS, folder / WEIGHTS, *sorted((folder / ENCODER).glob("*"))]
    for path in files:
        if path.is_file():
            digest.update(f"{path.relative_to(folder)} {sha256(path)}\n".encode())
    kind = type(model).__name__
    return f"comet:{kind}|model:{digest.hexdigest()}|unbabel-comet:{version('unbabel-comet')}"


def load(folder: Path) -> Any:
    """The model in a folder, which :func:`check` has looked at."""
    kinds = check(folder)
    try:
        hparams = yaml.safe_load((folder / HPARAMS).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"is not plain YAML: {first_line(error)}", folder / HPARAMS) from error
    name = hparams.get("class_identifier") if isinstance(hparams, dict) else None
    if name not in kinds:
        what = f"class_identifier is {name!r}, none of {', '.join(kinds)}"
        raise UserError(what, folder / HPARAMS)
    weights = _weights(folder / WEIGHTS)
    known = inspect.signature(kinds[name].__init__).parameters
    given = {key: value for key, value in hparams.items() if key in known}
    given["pretrained_model"] = _encoder(folder, given.get("pretrained_model"))
    given |= {"load_pretrained_weights": False, "local_files_only": True}
    try:
        model = kinds[name](**given)
    except (OSError, TypeError, ValueError) as error:
        what = f"makes no model with its encoder: {first_line(error)}"
        raise UserError(what, folder / HPARAMS) from error
    _fill(model, weights, folder / WEIGHTS)
    return model


def check(folder: Path) -> dict[str, Any]:
    """The library's kinds of models, if it is installed and the folder may hold one."""
    todo = "give a folder with hparams.yaml and checkpoints/model.ckpt"
    for name in (HPARAMS, WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(f"there is no {name}", folder, todo)
    return _library()


def _encoder(folder: Path, name: Any) -> str:
    """Where the encoder's configuration and tokeniser are: in the folder, or in the local cache."""
    if (folder / ENCODER).is_dir():
        return str(folder / ENCODER)
    # Here, since only the library brings it along.
    from huggingface_hub import try_to_load_from_cache

    if not isinstance(try_to_load_from_cache(str(name), "config.json"), str):
        todo = f"put its config.json and tokeniser into {folder / ENCODER}"
        raise UserError(f"its encoder {name!r} is not on this machine", folder, todo)
    return str(name)


def _weights(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        what = f"cannot be loaded without executing what is in it: {first_line(error)}"
        raise UserError(what, path, "save its state_dict alone") from error
    except (RuntimeError, EOFError) as error:
        raise UserError(f"is damaged: {first_line(error)}", path) from error
    weights = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(weights, dict):
        raise UserError("has no state_dict", path, "give a checkpoint of unbabel-comet")
    return weights


def _fill(model: Any, weights: dict[str, Any], path: Path) -> None:
    """Copy weights, all of them: what is missing would be random."""
    try:
        result = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise UserError(f"does not fit its hparams.yaml: {lines[-1].strip()}", path) from error
    for names, what in (
        (result.missing_keys, "lacks"),
        (result.unexpected_keys, "has, unlike the model,"),
    ):
        wrong = [name for name in names if not any(idle in name for idle in _IDLE)]
        if wrong:
            raise UserError(f"{what} {wrong[0]} and {len(wrong) - 1} more weights", path)


def _library() -> dict[str, Any]:
    # Before the library is imported, which reads them then.
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        # Here: it takes seconds, and only COMET needs it.
        from comet.models import str2model
    except ModuleNotFoundError as error:
        raise UserError(f"COMET needs unbabel-comet: {error}", todo=TODO) from error
    found: dict[str, Any] = str2model
    return found


def summary(found: Comet) -> str:
    """One line."""
    return f"COMET {found.score:.4f}  ({found.sentences} sentences)  {found.signature}"
