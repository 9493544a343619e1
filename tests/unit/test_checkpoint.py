"""A checkpoint is opened with the checks that every command makes first, and saved again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_checkpoints
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.hub_utils import from_pretrained
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks import setup_task
from omegaconf import OmegaConf
from refusals import refusing

from collab_lab.heads.importance import importance
from collab_lab.metrics.cost import load_architecture
from collab_lab.trained import checkpoint, checks, sentences
from collab_lab.trained.from_options import build_from_options, dictionary_sizes
from fairseq_compat import checkpoints

#: Four heads of size 8, eight key dimensions: see tests/stored/README.md.
STORED = Path(__file__).parent.parent / "stored" / "transformer_collab_1"


def edited(path: Path, edit: Callable[[dict[str, Any]], object] = lambda state: None) -> Path:
    """A copy of the stored checkpoint, whose languages are said, with changes."""
    state = checkpoints.read(STORED / "checkpoint.pt")
    state["cfg"]["task"] |= {"source_lang": "en", "target_lang": "de", "data": str(STORED)}
    edit(state)
    torch.save(state, path)
    return path


def test_a_checkpoint_is_saved_as_it_was_opened(tmp_path: Path) -> None:
    trained = checkpoint.open_model(edited(tmp_path / "c.pt"))
    assert (trained.arch, trained.heads["cross"]) == ("transformer_collab", [4])
    trained.save(tmp_path / "again.pt")
    old, new = (checkpoints.read(tmp_path / name) for name in ("c.pt", "again.pt"))
    assert "last_optimizer_state" not in new
    assert new["cfg"]["task"] == old["cfg"]["task"]
    assert new["cfg"]["model"]["key_dim"] == old["cfg"]["model"]["key_dim"]
    assert new["model"].keys() == old["model"].keys()
    assert all(torch.equal(new["model"][name], weight) for name, weight in old["model"].items())


def test_a_task_whose_plug_in_is_not_loaded(tmp_path: Path) -> None:
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["task"].update(_name="of_nobody"))
    with refusing("c.pt", "of_nobody", "--user-dir"):
        checkpoint.open_model(path)


@pytest.mark.parametrize("arch", ["cmlm_transformer", "levenshtein_transformer"])
def test_models_that_predict_all_words_at_once(arch: str, tmp_path: Path) -> None:
    """Before their task or their model is built, and so in every command that opens a model."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    state = torch.load(path, weights_only=False)
    state["cfg"]["model"].arch = state["cfg"]["model"]._name = arch
    torch.save(state, path)
    read_checkpoint = partial(checkpoint.read_checkpoint, data=None)
    for read in (checkpoint.open_model, read_checkpoint, load_architecture):
        with refusing("c.pt", arch, "non-autoregressive"):
            read(path)


@pytest.mark.parametrize("option", ["checkpoint_activations", "offload_activations"])
def test_gradients_of_a_model_that_saved_memory_in_training(option: str, tmp_path: Path) -> None:
    """Its layers were checkpointed, and gradients of weights do not pass through them."""
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["model"].update({option: True}))
    trained = checkpoint.open_model(path)
    source, previous = torch.tensor([[5, 6, 2]]), torch.tensor([[2, 5, 6]])
    net_input = {"src_tokens": source, "src_lengths": torch.tensor([3])}
    sample = {"net_input": {**net_input, "prev_output_tokens": previous}, "target": source}
    of_heads = importance(trained.model, [sample])
    assert all(of_heads["encoder"][0]), "gradients did not come through"
    assert checkpoint.open_model(path).options[option]


def opened(way: str, path: Path, **overrides: Any) -> Any:
    """A model with options of one's own: in Python, in the hub, or as fairseq-generate opens it."""
    if way == "open_model":
        return checkpoint.open_model(path, toy_checkpoints.COPY, **overrides).model
    if way == "hub":
        data = str(toy_checkpoints.COPY)
        return from_pretrained(str(path.parent), path.name, data, **overrides)["models"][0]
    state = checkpoint.read_checkpoint(path, toy_checkpoints.COPY)
    task = setup_task(state["cfg"].task)
    return load_model_ensemble_and_task([str(path)], arg_overrides=overrides, task=task)[0][0]


WAYS = ("open_model", "hub", "fairseq-generate")


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Options of single attention types, as conversions write them."""
    options = {"cache_bits_in_decoder": "4", "cache_bits_in_cross": "8,4"}
    folder = tmp_path_factory.mktemp("rounded")
    return toy_checkpoints.write(folder / "c.pt", "transformer_headsize_n", **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("overrides", "decoder", "cross"),
    [
        ({"cache_bits": 0}, {0}, {0}),
        ({"cache_bits": 8, "cache_bits_in_cross": "0,4"}, {8}, {0, 4}),
        ({"cache_bits_in_decoder": "8"}, {8}, {8, 4}),
    ],
)
def test_an_override_of_the_whole_holds_in_its_parts(
    way: str, overrides: dict[str, Any], decoder: set[int], cross: set[int], rounded: Path
) -> None:
    layers = opened(way, rounded, **overrides).decoder.layers
    assert {layer.self_attn.cache_bits for layer in layers} == decoder
    assert {layer.encoder_attn.cache_bits for layer in layers} == cross


@pytest.mark.parametrize("way", WAYS)
def test_an_override_that_a_model_lacks(way: str, rounded: Path) -> None:
    assert opened(way, rounded, dropout=0.2)
    with refusing(str(rounded), "'key_dimm'"):
        opened(way, rounded, key_dimm=8)
    if way != "hub":  # batches and subwords are the caller's own
        with refusing(str(rounded), "'max_tokens'"):
            opened(way, rounded, max_tokens=8)
    else:
        assert opened(way, rounded, max_tokens=8, bpe="subword_nmt", bpe_codes="codes")


@pytest.mark.parametrize("option", ["dropout", "cache_bits", "left_pad_source"])
def test_an_override_of_another_type(option: str, rounded: Path) -> None:
    with refusing(str(rounded), option.replace("_bits", "")):
        opened("open_model", rounded, **{option: "many"})


def test_a_stock_model_does_not_seem_to_round_its_cache(tmp_path: Path) -> None:
    """Its options are a namespace, which takes any name; in older files, of all sections."""
    path, older = toy_checkpoints.write(tmp_path / "c.pt"), tmp_path / "older.pt"
    state = checkpoints.read(path)
    checkpoints.save({**state, "args": state["cfg"]["model"], "cfg": None}, older)
    for file, ways in ((path, WAYS), (older, WAYS[:1])):
        for way in ways:
            assert opened(way, file, activation_dropout=0.2, no_cross_attention=False)
            with refusing(str(file), "'cache_bits'"):
                opened(way, file, cache_bits=8)


def test_checkpoints_that_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    edited(path, lambda state: state["cfg"]["task"].update(data=str(tmp_path / "gone")))
    with refusing("gone", str(path)):
        checkpoint.open_model(path)
    assert checkpoint.open_model(path, STORED).cfg.task.data == str(STORED)
    with refusing(str(tmp_path / "no")):
        checkpoint.open_model(path, tmp_path / "no")
    edited(path, lambda state: state["model"]["encoder.layers.0.fc1.bias"].fill_(float("nan")))
    with refusing(str(path), "encoder.layers.0.fc1.bias"):
        checkpoint.open_model(path)


def test_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a training; where it gives no limit, the whole subset would be one batch."""
    trained = checkpoint.open_model(toy_checkpoints.write(tmp_path / "c.pt"))
    limits = {"max_tokens": 40, "max_sentences": 3}
    dataset = sentences.dataset_of(trained, "valid")
    epoch = trained.task.get_batch_iterator(dataset, **limits, seed=trained.cfg.common.seed)
    expected = [batch["id"].tolist() for batch in epoch.next_epoch_itr(shuffle=False)]
    found = sentences.batches(trained, "valid", **limits)
    assert [batch["id"].tolist() for batch in found] == expected
    trained.cfg.dataset.batch_size = trained.cfg.dataset.max_tokens = None
    for limit in (50, 1):
        monkeypatch.setattr(sentences, "MAX_TOKENS", limit)
        shapes = [x["net_input"]["src_tokens"].shape for x in sentences.batches(trained, "valid")]
        assert len(shapes) > 1
        # A sentence that is longer than a batch may be is a batch by itself.
        assert all(rows * tokens <= limit or rows == 1 for rows, tokens in shapes)
    trained.task.max_positions = lambda: (2, 2)
    for read in (sentences.batches, sentences.samples):
        with refusing("valid", "(2, 2)"):
            read(trained, "valid")


def test_sizes_of_dictionaries_are_those_of_the_embeddings() -> None:
    name = "decoder.embed_tokens.embeddings.{}.0.weight"  # of an adaptive input
    weights = {name.format(number): torch.ones(size, 2) for number, size in enumerate((5, 3))}
    assert dictionary_sizes(weights, Path("x.pt")) == (8, 8)
    with refusing("x.pt"):
        dictionary_sizes({"decoder.embed_tokens.convolutions.0.weight": None}, Path("x.pt"))


def test_a_language_model_that_is_no_transformer() -> None:
    """fairseq's LSTM asks its task for ``dictionary``, as transformers do not."""
    options = Namespace(arch="lstm_lm", criterion="")
    ARCH_CONFIG_REGISTRY["lstm_lm"](options)
    cfg, weights = OmegaConf.create({"task": {}}), {"decoder.embed_tokens.weight": torch.ones(9, 2)}
    model = build_from_options(options, cfg, weights, Path("x.pt"))
    with refusing("x.pt"):
        checks.check_transformer(model, Path("x.pt"))
