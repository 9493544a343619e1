"""Each fix: the fault is still there without it, and gone with it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
import toy

from fairseq_compat import registry

NEW_DATACLASSES = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 accepts fairseq's defaults"
)


@pytest.fixture(autouse=True, scope="module")
def _fairseq():
    import fairseq  # noqa: F401  (what is tested is what its import leaves behind)


def unfixed(function):
    """Return what a fix has wrapped."""
    return function.__wrapped__


# The registry


def test_all_fixes_that_apply_are_active():
    assert [fix.name for fix in registry.FIXES if registry.is_applied(fix) != fix.applies()] == []


def test_every_fix_says_why():
    names = [fix.name for fix in registry.FIXES]
    assert len(set(names)) == len(names)
    assert all(fix.why for fix in registry.FIXES)
    assert {fix.moment for fix in registry.FIXES} == {"before", "hydra", "fairseq"}


def test_fixes_are_applied_once(monkeypatch):
    calls = []
    fix = registry.Fix("a", lambda: calls.append("a"), "hydra")
    monkeypatch.setattr(registry, "FIXES", (fix,))
    monkeypatch.setattr(registry, "_applied", set())
    registry.apply_fixes("before")
    assert calls == []
    registry.apply_fixes("fairseq")  # catches up on what is due after hydra
    registry.apply_fixes("hydra")
    assert calls == ["a"]


def test_a_fix_that_does_not_fit_names_itself_and_the_versions(monkeypatch):
    def misfit():
        raise AttributeError("no attribute 'load_to_BT'")

    fix = registry.Fix("the encoder", misfit)
    monkeypatch.setattr(registry, "FIXES", (fix,))
    with pytest.raises(registry.FixFailed, match="'the encoder' does not fit fairseq 0"):
        registry.apply_fixes("fairseq")


# Configuration dataclasses


@NEW_DATACLASSES
def test_fairseq_cannot_be_imported_without_the_fixes(python):
    done = python.run("-c", "import fairseq", FAIRSEQ_COMPAT_OFF="1")
    assert done.returncode == 1
    assert "mutable default" in done.stderr


def defaults_to(inner):
    """Define a dataclass one of whose fields has an instance as its default."""
    return dataclasses.make_dataclass("Outer", [("inner", inner, inner())])


def config_class(module: str, **options: bool) -> Any:
    """Define a dataclass as `module` would."""
    body = {"__module__": module, "__annotations__": {"size": int}, "size": 1}
    return dataclasses.dataclass(**options)(type("Config", (), body))  # type: ignore[call-overload]


@NEW_DATACLASSES
@pytest.mark.parametrize("module", ["fairseq.dataclass.configs", "hydra.conf"])
def test_config_classes_are_hashable_but_no_others(module):
    inner = config_class(module)
    assert defaults_to(inner)().inner == inner()
    with pytest.raises(ValueError, match="mutable default"):
        defaults_to(config_class("elsewhere"))


@NEW_DATACLASSES
def test_a_plugins_config_derived_from_fairseqs_is_hashable():
    from fairseq.dataclass import FairseqDataclass

    @dataclasses.dataclass
    class PluginConfig(FairseqDataclass):
        size: int = 1

    assert defaults_to(PluginConfig)().inner == PluginConfig()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="dataclasses are Python's own there")
def test_what_looks_at_the_parameters_of_dataclass_finds_them():
    """torch 2.6 does, as fairseq-train imports torch.distributed."""
    plain = dataclasses.dataclass.__wrapped__
    assert "kw_only" in plain.__kwdefaults__
    assert dataclasses.dataclass.__kwdefaults__ == plain.__kwdefaults__


def test_explicit_hashes_are_kept():
    frozen = config_class("fairseq.dataclass.configs", frozen=True)
    assert hash(frozen()) == hash(frozen())


def test_hydra_converts_options_when_they_are_asked_for():
    import copy

    from hydra.core.config_store import ConfigStore
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    @dataclasses.dataclass
    class Options:
        key: int = 1
        wrong: object = print

    store = ConfigStore.instance()
    assert copy.deepcopy([store])[0] is store
    store.store("of_this_test", Options)
    try:
        with pytest.raises(OmegaConfBaseException):
            store.load("of_this_test.yaml")  # not before
        store.store("of_this_test", {"key": 1})
        loaded = store.load("of_this_test.yaml").node
        assert isinstance(loaded, DictConfig)
        loaded.key = 2
        assert store.load("of_this_test.yaml").node.key == 1, "what is loaded is a copy"
    finally:
        del store.repo["of_this_test.yaml"]


# Attention


@pytest.fixture
def encoder_and_batch():
    """A stock encoder in evaluation, loaded from a state dict, and a batch with padding."""
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase

    cfg = TransformerConfig()
    # A new object: the default one belongs to all configurations.
    cfg.encoder = dataclasses.replace(
        cfg.encoder, embed_dim=8, ffn_embed_dim=16, layers=2, attention_heads=2
    )
    symbols = Dictionary()
    for word in "abcdef":
        symbols.add_symbol(word)
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(len(symbols), 8, symbols.pad())
    encoder = TransformerEncoderBase(cfg, symbols, embedding)
    encoder.load_state_dict(encoder.state_dict())
    tokens = torch.tensor([[4, 5, 6, 7, 2], [4, 5, 2, 1, 1]])
    return encoder.eval(), tokens


def count_calls(encoder, tokens):
    calls = []
    for layer in encoder.layers:
        layer.self_attn.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        encoder(tokens, src_lengths=None)
    return len(calls)


def test_encoder_calls_its_attention_on_a_padded_batch(encoder_and_batch):
    encoder, tokens = encoder_and_batch
    assert count_calls(encoder, tokens) == len(encoder.layers)


def test_encoder_bypasses_its_attention_without_the_fix(encoder_and_batch):
    encoder, tokens = encoder_and_batch
    for layer in encoder.layers:
        assert layer.load_to_BT, "this encoder would not take the fast path anyway"
        layer.can_use_fastpath = True
    assert count_calls(encoder, tokens) == 0


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("fixed", [True, False])
def test_several_devices_train_an_encoder(encoder_and_batch, fixed, monkeypatch):
    from fairseq import models
    from fairseq.dataclass.configs import DistributedTrainingConfig
    from fairseq.models import distributed_fairseq_model
    from torch.nn.parallel import DistributedDataParallel

    def on_a_cpu(device_ids, output_device, **options):
        return DistributedDataParallel(**options)

    monkeypatch.setattr(distributed_fairseq_model, "DistributedDataParallel", on_a_cpu)
    wrapper = models.DistributedFairseqModel
    encoder, tokens = encoder_and_batch
    encoder = (wrapper if fixed else unfixed(wrapper))(
        DistributedTrainingConfig(tpu=False), encoder.train(), process_group=None, device="cpu"
    )

    def update():
        encoder(tokens, src_lengths=None)["encoder_out"][0].sum().backward()

    update()
    with contextlib.nullcontext() if fixed else pytest.raises(RuntimeError, match="not used in"):
        update()


def test_padding_does_not_change_a_sentence(encoder_and_batch):
    encoder, tokens = encoder_and_batch
    with torch.no_grad():
        together = encoder(tokens, src_lengths=None)["encoder_out"][0][:3, 1]
        alone = encoder(tokens[1:, :3], src_lengths=None)["encoder_out"][0][:, 0]
    torch.testing.assert_close(together, alone)


def test_head_weights_are_per_head():
    from fairseq.modules import MultiheadAttention

    attention = MultiheadAttention(8, 2, self_attention=True).eval()
    x = torch.randn(3, 4, 8)
    output, weights = attention(x, x, x, need_head_weights=True)
    plain_output, average = attention(x, x, x)
    assert weights.shape == (2, 4, 3, 3)
    torch.testing.assert_close(weights.mean(0), average)
    torch.testing.assert_close(output, plain_output)
    without_fix = attention.forward(x, x, x, need_head_weights=True)
    assert without_fix[1].shape == (4, 3, 3)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_layers_can_still_be_compiled_by_torchscript():
    from fairseq.models.transformer import TransformerConfig
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    layer = TransformerEncoderLayerBase(TransformerConfig()).eval()
    x = torch.randn(3, 2, 512)
    torch.testing.assert_close(torch.jit.script(layer)(x, None), layer(x, None))


# Jobs of one sweep


@pytest.fixture
def undefined(monkeypatch):
    """Memory as it may be, where fairseq does not say what is in it."""
    monkeypatch.setattr(torch, "FloatTensor", lambda n: torch.full((n,), float("nan")))


@pytest.mark.usefixtures("undefined")
@pytest.mark.parametrize(
    ("owner", "options"),
    [
        ("sinusoidal_positional_embedding.SinusoidalPositionalEmbedding", (8, 0)),
        ("adaptive_input.AdaptiveInput", (20, 0, 8, 4, 8, [10])),
        ("adaptive_softmax.TiedHeadModule", ((torch.ones(4, 8), None), 8, 2, 0, 8)),
    ],
)
def test_what_nothing_reads_is_zero(owner, options):
    module, name = owner.split(".")
    made = getattr(importlib.import_module(f"fairseq.modules.{module}"), name)(*options)
    assert made._float_tensor.tolist() == [0]
    unfixed(type(made).__init__)(made, *options)
    assert made._float_tensor.isnan().all()


@pytest.mark.usefixtures("undefined")
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_what_nothing_reads_is_zero_in_a_checkpoint(side):
    """fairseq writes it anew into every model that it loads."""
    part = getattr(toy.model("transformer"), side)
    key = f"{side}.embed_positions._float_tensor"
    state = {f"{side}.{name}": value for name, value in part.state_dict().items()}
    part.upgrade_state_dict_named(state, side)
    assert state[key].tolist() == [0]
    unfixed(type(part).upgrade_state_dict_named)(part, state, side)
    assert state[key].isnan().all()


@pytest.fixture
def leftovers():
    """What one training leaves behind in fairseq's global state."""
    from fairseq import checkpoint_utils
    from fairseq.logging import progress_bar
    from fairseq_cli import train

    closed = []
    checkpoint_utils.save_checkpoint.best = 1.5
    train.should_stop_early.best = 1.5
    train.should_stop_early.num_runs = 3
    progress_bar._tensorboard_writers["train"] = types.SimpleNamespace(
        close=lambda: closed.append("train")
    )
    yield closed
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    vars(train.should_stop_early).clear()
    progress_bar._tensorboard_writers.clear()


def remaining():
    from fairseq import checkpoint_utils
    from fairseq.logging import progress_bar
    from fairseq_cli import train

    return {
        **vars(checkpoint_utils.save_checkpoint),
        **vars(train.should_stop_early),
        **progress_bar._tensorboard_writers,
    }.keys() - {"__wrapped__"}


def test_a_new_trainer_forgets_the_previous_job(leftovers):
    from fairseq.trainer import Trainer

    with contextlib.suppress(AttributeError):  # None is no configuration: it stops right after
        unfixed(Trainer.__init__)(object.__new__(Trainer), None, None, None, None)
    assert remaining() == {"best", "num_runs", "train"}
    with contextlib.suppress(AttributeError):
        Trainer(None, None, None, None)
    assert remaining() == set()
    assert leftovers == ["train"]


# fairseq-score


@pytest.fixture
def translations(tmp_path):
    text = "the black cat sits on the small table\na man rides a bicycle through the town\n"
    (tmp_path / "hypotheses").write_text(text)
    (tmp_path / "references").write_text(text)
    return ["--sys", str(tmp_path / "hypotheses"), "--ref", str(tmp_path / "references")]


def score(monkeypatch, capsys, arguments):
    from fairseq_cli import score

    monkeypatch.setattr(sys, "argv", ["fairseq-score", *arguments])
    score.cli_main()
    return capsys.readouterr().out


def test_score_with_sacrebleu(monkeypatch, capsys, translations):
    import sacrebleu

    out = score(monkeypatch, capsys, [*translations, "--sacrebleu"])
    assert "BLEU = 100.00" in out
    monkeypatch.setattr(sacrebleu, "corpus_bleu", unfixed(sacrebleu.corpus_bleu))
    with pytest.raises(TypeError, match="sequence of strings"):
        score(monkeypatch, capsys, [*translations, "--sacrebleu"])


def test_score_by_sentence(monkeypatch, capsys, translations):
    from fairseq.scoring import bleu

    out = score(monkeypatch, capsys, [*translations, "--sentence-bleu"])
    assert out.count("BLEU4 = 100.00") == 2
    monkeypatch.setattr(bleu.Scorer, "__init__", unfixed(bleu.Scorer.__init__))
    with pytest.raises(TypeError):
        score(monkeypatch, capsys, [*translations, "--sentence-bleu"])


def test_score_without_options(monkeypatch, capsys, translations):
    assert "BLEU4 = 100.00" in score(monkeypatch, capsys, translations)


# Data


@pytest.mark.skipif(np.__version__.startswith("1."), reason="NumPy 1 has the name")
def test_a_sentence_a_line(monkeypatch):
    from fairseq.data import token_block_dataset

    lines = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    given = {"block_size": None, "pad": 1, "eos": 2, "break_mode": "eos"}
    found = token_block_dataset.TokenBlockDataset(lines, [3, 2], **given)
    assert [line.tolist() for line in found] == [[5, 6, 2], [7, 2]]
    monkeypatch.setattr(token_block_dataset, "np", np)
    with pytest.raises(AttributeError, match="compat"):
        token_block_dataset.TokenBlockDataset(lines, [3, 2], **given)


# fairseq-train


@pytest.mark.parametrize("given", [["--bf16"], ["--memory-efficient-bf16"], ["--bf16", "--tpu"]])
def test_a_number_format_is_no_device(given, tmp_path):
    from fairseq import options

    words = [str(tmp_path), "--arch=transformer_tiny", *given]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert args.bf16
    assert args.tpu is ("--tpu" in given)
    assert unfixed(options.parse_args_and_arch)(options.get_training_parser(), words).tpu


def test_a_number_format_overrides_nothing_else(tmp_path):
    """Options that a command lays over a checkpoint's are those that were given."""
    from fairseq import options

    parser = options.get_validation_parser("translation")
    words = [str(tmp_path), "--bf16"]
    given = options.parse_args_and_arch(parser, words, suppress_defaults=True)
    assert given.bf16
    assert "tpu" not in given
