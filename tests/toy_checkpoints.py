"""Tiny untrained checkpoints, as fairseq-train writes them.

``python tests/toy_checkpoints.py`` writes ``tests/stored/checkpoints`` anew: after a change of the
format that is meant, since ``tests/compat/test_stored_checkpoints.py`` fails without it.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import toy
import toy_language_models
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import Tensor
from toy_heads import sample

from collab_lab import open_model
from collab_lab.trained.sentences import dataset_of
from data_prep.subwords import learn_merges

STORED = Path(__file__).parent / "stored"
#: A data folder, made by fairseq-preprocess.
COPY = STORED / "copy"
#: The stored checkpoint of each architecture, with its options.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer_collab": {"key_dim": 6},
    "transformer_headsize_n": {
        "heads_in_encoder": "4,2",
        "heads_in_decoder": "2,1",
        "heads_in_cross": "2,4",
        "head_size": 3,
    },
    "transformer_grouped_heads": {"head_groups": 2},
    "transformer_gated_heads": {},
    "transformer_grouped_query": {"key_value_heads": 2},
    "transformer_latent": {"latent_dim": 6},
    "transformer_lm_collab": {"key_dim": 6},
    "transformer_lm_headsize_n": {"head_size": 3},
}


def words_as_text(folder: Path) -> Path:
    """A copy of :data:`COPY` whose words are ordinary text, with codes that keep them whole."""
    shutil.copytree(COPY, folder)
    words = [line.split()[0] for line in (folder / "dict.en.txt").read_text().splitlines()]
    text = folder.with_name("text")
    text.write_text(f"{' '.join(words)}\n" * 3)
    learn_merges((text, text), 1000, folder / "code")
    (folder / "manifest.json").write_text(json.dumps({"form": {"moses": False}}))
    return folder


def blocks(folder: Path) -> Path:
    """The sources of :data:`COPY` as the data folder of a language model."""
    folder.mkdir()
    shutil.copy(COPY / "dict.en.txt", folder / "dict.txt")
    for split, kind in product(("train", "valid", "test"), ("bin", "idx")):
        shutil.copy(COPY / f"{split}.en-de.en.{kind}", folder / f"{split}.{kind}")
    return folder


def with_raw_text(folder: Path, checkpoint: Path) -> Path:
    """A data folder, with the text of its validation set as a run translates it."""
    model = open_model(checkpoint, folder)
    dataset = dataset_of(model, "valid")
    (folder / "raw").mkdir()
    for side, column in (("en", "source"), ("de", "target")):
        words = getattr(model.task, f"{column}_dictionary")
        lines = [f"{words.string(dataset[i][column])}\n" for i in range(len(dataset))]
        (folder / "raw" / f"valid.{side}").write_text("".join(lines))
    return folder


#: Checkpoints by architecture, options and precision, and the random state that each leaves behind.
_MADE: dict[tuple[Any, ...], tuple[dict[str, Any], Tensor]] = {}


def write(path: Path, arch: str = "transformer", **options: Any) -> Path:
    """An untrained tiny model, as if trained in batches of two sentences."""
    key = (arch, repr(sorted(options.items())), torch.get_default_dtype())
    if key not in _MADE:
        _MADE[key] = made(arch, **options), torch.get_rng_state()
    state, random = _MADE[key]
    torch.set_rng_state(random)
    torch.save(state, path)
    return path


def made(arch: str, **options: Any) -> dict[str, Any]:
    """The checkpoint that :func:`write` writes."""
    source, target = (Dictionary.load(str(COPY / f"dict.{side}.txt")) for side in ("en", "de"))
    symbols = Namespace(source_dictionary=source, target_dictionary=target)
    task: dict[str, Any] = {"task": "translation", "source_lang": "en", "target_lang": "de"}
    if "_lm" in arch:
        symbols.cfg = Namespace(tokens_per_sample=toy_language_models.LENGTH)
        task = {"task": "language_modeling", "use_plasma_view": False}
        options = toy_language_models.language_model_options(arch, **options)
    else:
        options = {**toy.SIZES, **options}
    torch.manual_seed(1)
    model = toy.randomised(toy.build(arch, symbols, options), 0.3)
    args = Namespace(
        arch=arch,
        data=str(COPY),
        criterion="cross_entropy",
        optimizer="adam",
        lr_scheduler="fixed",
        lr=[0.1],
        max_tokens=None,
        batch_size=2,
        **task,
        **options,
    )
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), enum_to_str=True)
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    history |= {"lr_scheduler_state": {}, "num_updates": 1}
    state = {"args": None, "cfg": cfg, "model": model.state_dict(), "optimizer_history": [history]}
    iterator = {"epoch": 1, "iterations_in_epoch": 0}
    state |= {"extra_state": {"train_iterator": iterator}, "last_optimizer_state": None}
    return state


def log_probabilities(path: Path) -> list[float]:
    """Of each word of a sentence, by the model of a checkpoint that fairseq opens."""
    (model,), _, task = load_model_ensemble_and_task([str(path)], {"data": str(COPY)})
    sentence = task.target_dictionary.encode_line("w3 w1 w4 w1 w5", add_if_not_exist=False).long()
    tokens = {"prev_output_tokens": sentence.roll(1)[None]}
    if task.source_dictionary is not task.target_dictionary:
        tokens |= {"src_tokens": sentence[None], "src_lengths": torch.tensor([len(sentence)])}
    else:
        tokens = {"src_tokens": sentence.roll(1)[None]}
    with torch.no_grad():
        output = model.eval()(**tokens)
    found = model.get_normalized_probs(output, log_probs=True)[0]
    return found.gather(1, sentence[:, None])[:, 0].tolist()


def losses(arch: str, **options: Any) -> list[float]:
    """Of updates 1, 2 and 5 of a training on one batch, in double precision."""
    torch.manual_seed(1)
    batch, make = sample(lm="_lm" in arch), toy_language_models.language_model
    model = (make if "_lm" in arch else toy.model)(arch, dropout=0.0, **options)
    optimizer = torch.optim.Adam(model.double().train().parameters(), lr=0.01)
    found = []
    for _ in range(5):
        loss = toy.criterion()(model, batch)[0] / batch["ntokens"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return [found[update - 1] for update in (1, 2, 5)]


def main() -> None:
    """Write the stored checkpoints, one layer a side, what they compute, and losses."""
    expected = {}
    for arch, options in ARCHITECTURES.items():
        sides = ("decoder",) if "_lm" in arch else ("encoder", "decoder")
        shallow = {f"{side}_layers": 1 for side in sides if "heads_in_cross" not in options}
        path = write(STORED / "checkpoints" / f"{arch}.pt", arch, **shallow, **options)
        values = {"log_probabilities": log_probabilities(path), "losses": losses(arch, **options)}
        expected[arch] = {name: [round(value, 6) for value in values[name]] for name in values}
    (STORED / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
