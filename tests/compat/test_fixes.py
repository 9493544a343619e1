"""Each fix: the fault is still there without it, and gone with it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import io
import itertools
import sys
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy
import pytest
import sacrebleu
import torch
import toy
from commands import succeed
from fairseq import checkpoint_utils, models, optim, options, tasks, utils
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models.transformer import transformer_decoder, transformer_encoder
from fairseq.modules import dynamic_crf_layer, sinusoidal_positional_embedding
from fairseq_cli import train
from hydra._internal import utils as hydra_utils
from interpreters import PYTHON
from omegaconf import OmegaConf
from refusals import refusing
from toy_checkpoints import COPY

from fairseq_compat import fairseq_fixes, fix_table, option_fixes


def unfixed(function):
    """Return what fixes have wrapped."""
    return inspect.unwrap(function)


# Mistyped options and names


PARSERS = {
    "training": (options.get_training_parser, "data --arch transformer_tiny --lr 1,2 --cpu"),
    "generation": (options.get_generation_parser, "data --path a.pt --remove-bpe --beam 3"),
    "validation": (options.get_validation_parser, "data --path a.pt --task translation"),
    "preprocessing": (options.get_preprocessing_parser, "-s en -t de --trainpref a"),
}


@pytest.mark.parametrize("command", PARSERS)
def test_parsers_are_fairseqs_own_but_for_their_errors(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal help and equal values."""
    make, words = PARSERS[command]
    ours = make()
    monkeypatch.setattr(options, "argparse", argparse)
    stock = make()
    assert type(stock) is argparse.ArgumentParser
    assert ours.format_help() == stock.format_help()
    if command == "preprocessing":  # which has no architectures
        assert ours.parse_args(words.split()) == stock.parse_args(words.split())
    else:
        parse = unfixed(options.parse_args_and_arch)
        assert parse(ours, words.split()) == parse(stock, words.split())


MISTYPED = {
    "data --arch transformer_tiny --optimzer adam": "--optimizer",
    "data --arch transformer_wmt_en_df": "transformer_wmt_en_de",
    "data --criterion cross_entropie": "cross_entropy",
    "data --optimizer adan": "adam",
    "data --lr-scheduler inverse_squirt": "inverse_sqrt",
    "data --task translatoin": "translation",
    "data --arch transformer_collab_n": "--user-dir",
    "data --optimizer zzz": "nag",  # a short list is printed
}


@pytest.mark.parametrize("words", MISTYPED)
def test_a_mistyped_option_gets_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options.parse_args_and_arch(options.get_training_parser(), words.split())
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert MISTYPED[words] in said


def test_stock_answers_a_mistyped_option_with_its_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "argparse", argparse)
    words = ["data", "--arch", "transformer_tiny", "--optimzer", "adam"]
    parser = options.get_training_parser()
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(parser, words)
    assert capsys.readouterr().err.count("\n") > 100


def test_a_training_without_an_architecture_or_an_optimizer() -> None:
    parser = options.get_training_parser()
    with refusing("--arch"):
        options.parse_args_and_arch(parser, ["data", "--optimizer=adam"])
    with pytest.raises(RuntimeError):
        unfixed(options.parse_args_and_arch)(parser, ["data", "--optimizer=adam"])
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch=transformer_tiny"])
    with refusing("--optimizer", "adam"):
        distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)
    with pytest.raises(ValueError, match="required"):
        optim.build_optimizer(Namespace(optimizer=None), [])


@pytest.mark.parametrize("option", ["--remove-bpe", "--eval-bleu-remove-bpe"])
def test_subwords_that_are_joined_in_no_known_way(option: str) -> None:
    """Before anything is read; what stock knows is joined as by stock."""
    training = option.startswith("--eval")
    make = options.get_training_parser if training else options.get_generation_parser
    words = ["data", "--arch=transformer_tiny"] if training else ["data", "--path=a.pt"]
    with refusing(option, "did you mean sentencepiece?"):
        options.parse_args_and_arch(make(), [*words, f"{option}=sentencepiec"])
    stock = unfixed(data_utils.post_process)
    for symbol in (*option_fixes.JOINED, None):
        text = "\u2581a b_ c_EOW d@@ e | <SIL> f"
        assert data_utils.post_process(text, symbol) == stock(text, symbol)
    with refusing("sentencepiec"):
        data_utils.post_process("a", "sentencepiec")
    with pytest.raises(NotImplementedError):
        stock("a", "sentencepiec")


# The table of fixes


def test_all_fixes_are_active():
    assert {*itertools.chain(*fix_table.FIXES.values())} == fix_table.applied


def test_every_fault_has_a_line_of_its_own():
    """doctor prints the table, one line for each function of these modules that fixes a fault."""
    fixes = [*itertools.chain(*fix_table.FIXES.values())]
    for module in {inspect.getmodule(fix) for fix in fixes}:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            signature = inspect.signature(function)
            is_fix = not signature.parameters and signature.return_annotation == "None"
            if is_fix and function.__module__ == module.__name__ and name[0] != "_":
                assert function in fixes, name
    faults = [str(fix.__doc__).splitlines()[0] for fix in fixes]
    assert all(fault.endswith(".") for fault in faults)
    assert len({*faults}) == len(fixes)
    for word in ("code", "from scratch", "file", "--min-len", "another type", "16 bits"):
        assert any(word in fault for fault in faults), word


def test_fixes_are_applied_once(monkeypatch):
    calls = []
    monkeypatch.setattr(fix_table, "FIXES", {"fairseq": [lambda: calls.append("a")]})
    monkeypatch.setattr(fix_table, "applied", set())
    fix_table.apply_fixes("before")
    assert calls == []
    fix_table.apply_fixes("fairseq")
    fix_table.apply_fixes("fairseq")
    assert calls == ["a"]


def test_a_fix_that_does_not_fit_names_itself_and_the_versions(monkeypatch):
    def misfit():
        raise AttributeError("no attribute 'load_to_BT'")

    monkeypatch.setattr(fix_table, "FIXES", {"fairseq": [misfit]})
    with pytest.raises(fix_table.FixFailed, match=r"'misfit'.*fairseq 0"):
        fix_table.apply_fixes("fairseq")


# Configuration dataclasses


@pytest.mark.slow
def test_fairseq_cannot_be_imported_without_the_fixes():
    done = PYTHON.run("-c", "import fairseq", FAIRSEQ_COMPAT_OFF="1")
    assert done.returncode == 1
    assert "mutable default" in done.stderr


def defaults_to(inner):
    """Define a dataclass one of whose fields has an instance as its default."""
    return dataclasses.make_dataclass("Outer", [("inner", inner, inner())])


def config_class(module: str) -> Any:
    """Define a dataclass as `module` would."""
    body = {"__module__": module, "__annotations__": {"size": int}, "size": 1}
    return dataclasses.dataclass(type("Config", (), body))


@pytest.mark.parametrize("module", ["fairseq.dataclass.configs", "hydra.conf"])
def test_config_classes_are_hashable_but_no_others(module):
    inner = config_class(module)
    assert defaults_to(inner)().inner == inner()
    with pytest.raises(ValueError, match="mutable default"):
        defaults_to(config_class("elsewhere"))


def test_no_warnings_but_hydras_are_hidden() -> None:
    modules = ("hydra.main", "sys", "fairseq_cli.hydra_train", "fairseq.trainer", "hydraulics")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fairseq_fixes.hide_hydras_warnings()
        for module in modules:
            warnings.warn_explicit(module, UserWarning, "file.py", 1, module=module)
        warnings.warn_explicit("soon gone", DeprecationWarning, "file.py", 1, module="hydra.main")
    assert [str(one.message) for one in found] == [*modules[3:], "soon gone"]


def test_results_and_other_errors_of_hydras_jobs_are_hydras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As stock Hydra prints them, in one of fairseq's commands; a UserError is one line."""
    monkeypatch.setattr(sys, "argv", ["fairseq-hydra-train"])
    fixed, said = hydra_utils.run_and_report, []
    for function in (fixed, unfixed(fixed)):
        assert function(lambda: 5) == 5
        with pytest.raises(SystemExit) as end:
            function(lambda: {}["a key"])
        assert end.value.code == 1
        said.append([line for line in capsys.readouterr().err.splitlines() if line[:1] != " "])
    assert said[0] == said[1]
    assert "KeyError: 'a key'" in said[0]
    with pytest.raises(SystemExit):
        fixed(lambda: option_fixes.check_joined("@", "--remove-bpe"))
    assert capsys.readouterr().err.count("\n") == 1


# Attention


@pytest.mark.parametrize("fixed", [True, False])
def test_an_encoder_calls_its_attention_on_a_padded_batch(fixed):
    """Stock, in evaluation, loaded from a state dict; without the fix it by-passes attention."""
    encoder, calls = toy.model("transformer").encoder, []
    encoder.load_state_dict(encoder.state_dict())
    for layer in encoder.layers:
        assert layer.load_to_BT, "this encoder would not take the fast path anyway"
        layer.can_use_fastpath |= not fixed
        layer.self_attn.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        encoder.eval()(torch.tensor([[4, 5, 6, 7, 2], [4, 5, 2, 1, 1]]), src_lengths=None)
    assert len(calls) == (len(encoder.layers) if fixed else 0)


@pytest.mark.parametrize("fixed", [True, False])
def test_what_nothing_reads_is_zero(fixed, monkeypatch):
    """In a new model, and in a checkpoint: fairseq writes it anew into every model it loads."""
    # memory as it may be
    monkeypatch.setattr(torch, "FloatTensor", lambda n: torch.full((n,), float("nan")))
    if not fixed:
        for module in (sinusoidal_positional_embedding, transformer_encoder, transformer_decoder):
            monkeypatch.setattr(module, "torch", torch)
    model, key = toy.model("transformer"), "embed_positions._float_tensor"
    for side, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        state = {f"{side}.{name}": value for name, value in part.state_dict().items()}
        part.upgrade_state_dict_named(state, side)
        for number in (part.state_dict()[key], state[f"{side}.{key}"]):
            assert number.isnan().all() if not fixed else number.tolist() == [0]


def test_a_new_trainer_forgets_the_previous_job():
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer
    from fairseq_cli import train

    checkpoint_utils.save_checkpoint.best = train.should_stop_early.best = 1.5
    train.should_stop_early.num_runs = 3
    with contextlib.suppress(AttributeError):  # None is no configuration: it stops right after
        Trainer(None, None, None, None)
    left = vars(checkpoint_utils.save_checkpoint).keys() | vars(train.should_stop_early).keys()
    assert not left & {"best", "num_runs"}


def test_averages_of_integers_are_copies():
    from fairseq.dataclass.configs import EMAConfig
    from fairseq.models.ema.ema import EMA

    model = torch.nn.Linear(2, 2)
    model.register_buffer("signature", torch.tensor([1, 2]))
    averages = EMA(model, EMAConfig(ema_decay=0.5))
    averages.step(model)
    assert averages.get_model().signature.tolist() == [1, 2]


@pytest.mark.parametrize("given", [["--bf16"], ["--memory-efficient-bf16"], ["--bf16", "--tpu"]])
def test_a_number_format_is_no_device(given, tmp_path):
    from fairseq import options

    words = [str(tmp_path), "--arch=transformer_tiny", *given]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert args.bf16
    assert args.tpu is ("--tpu" in given)
    assert unfixed(options.parse_args_and_arch)(options.get_training_parser(), words).tpu


# Checkpoints


def test_an_architecture_that_is_not_registered() -> None:
    with refusing("mine", "--user-dir"):
        models.build_model(Namespace(_name="mine", arch="mine"), toy.task())


@pytest.mark.parametrize("given", [None, "en"])
def test_inferred_languages_are_saved(given: str | None) -> None:
    kind = tasks.TASK_DATACLASS_REGISTRY["translation"]
    cfg = OmegaConf.structured(kind("translation", data=str(COPY), source_lang=given))
    tasks.setup_task(cfg)
    assert (cfg.source_lang, cfg.target_lang) == ("en", "de")


@pytest.mark.parametrize("fixed", [True, False])
def test_an_option_that_the_checkpoint_is_older_than_is_overridden(fixed: bool) -> None:
    overwrite = checkpoint_utils.overwrite_args_by_name
    model = {"_name": "transformer_headsize_n", "head_size": 3}
    cfg = OmegaConf.create({"model": model, "task": {"_name": "translation"}})
    overrides = {"cache_bits": 4, "head_size": 5, "data": "elsewhere"}
    (overwrite if fixed else unfixed(overwrite))(cfg, overrides)
    assert cfg.model == {**model, "head_size": 5, **({"cache_bits": 4} if fixed else {})}


def test_names_that_numpy_has_removed() -> None:
    assert not hasattr(numpy, "float")
    for module in (data_utils, token_block_dataset, dynamic_crf_layer):
        assert (module.np.int, module.np.float, module.np.compat.long) == (int, float, int)
    assert language_pair_dataset.np.percentile([1, 3], 50, interpolation="linear") == 2


def score_of_files() -> float:
    text = "a b c d e\n"
    return round(sacrebleu.corpus_bleu(io.StringIO(text), [io.StringIO(text)]).score)


def test_scores_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert score_of_files() == 100
    monkeypatch.setattr(sacrebleu, "corpus_bleu", unfixed(sacrebleu.corpus_bleu))
    with pytest.raises((AttributeError, TypeError)):
        score_of_files()


# ---- --user-dir ----------------------------------------------------------------------------------


def import_plug_in(function) -> None:
    function(argparse.Namespace(user_dir="a_plug_in"))


def make_package(folder: Path) -> Path:
    package = folder / "a_plug_in"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return package


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The folder of an importable package; the current folder is another one."""
    package = make_package(tmp_path / "site")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    yield package
    sys.modules.pop("a_plug_in", None)


def test_an_installed_package_is_found(installed: Path) -> None:
    with pytest.raises(FileNotFoundError):
        import_plug_in(utils.import_user_module.__wrapped__)
    import_plug_in(utils.import_user_module)
    assert sys.modules["a_plug_in"].__file__ == str(installed / "__init__.py")


def test_a_folder_comes_first(installed: Path, tmp_path: Path) -> None:
    here = make_package(tmp_path / "elsewhere")
    import_plug_in(utils.import_user_module)
    assert sys.modules["a_plug_in"].__file__ == str(here / "__init__.py")


def test_a_file_that_the_package_lacks(installed: Path) -> None:
    (installed / "__init__.py").write_text("open('no_file')")
    with pytest.raises(FileNotFoundError, match="no_file"):
        import_plug_in(utils.import_user_module)


def test_what_does_not_exist(installed: Path) -> None:
    for name in ("no_plug_in", "no/plug_in"):
        with refusing(f"--user-dir {name}"):
            utils.import_user_module(argparse.Namespace(user_dir=name))


# ---- threads that load batches -------------------------------------------------------------------

SCRIPT = """
import atexit, itertools, sys
atexit.register(lambda: print("alive" if batches._consumer.is_alive() else "ended"))
from fairseq.data.iterators import BufferedIterator

class Endless:
    def __len__(self):
        return 10**9
    def __iter__(self):
        return itertools.count()

batches = BufferedIterator(2, Endless())
assert [next(batches), next(batches)] == [0, 1]
"""


@pytest.mark.slow
def test_the_thread_ends_before_the_interpreter() -> None:
    assert succeed("python", "-c", SCRIPT).splitlines()[0] == "ended"
