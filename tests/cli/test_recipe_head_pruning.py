"""Which runs ``recipes/head_pruning.sh`` asks for, and from which checkpoints they start."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig
from recipe_recorder import Recorded, jobs, options
from toy_heads import write_configuration

from fairseq_collab.models.layers import SITES

PENALTIES = ("0", "0.01", "0.1")
#: All runs with gates, as the recipe names what is left of them, and the one that failed.
SHAPES = [*(f"all-{penalty}" for penalty in PENALTIES), "encoder-0.01", "encoder-0.1"]
FAILED = "all-0.1"
#: Those of which as many heads go otherwise.
FEWER = "all-0.01"
#: Options of a pruned model.
PRUNED = {"encoder": "4,1", "decoder": "8,2", "cross": "7,8", "qk_head_size": 16, "v_head_size": 16}


def test_gates_in_the_encoder_alone(tmp_path: Path) -> None:
    """Without a control, and without heads by importance: there is nothing to tell of."""
    for run in ("trained/model-concatenated_seed-7", "gated/encoder/gate_penalty-0.1_seed-7"):
        (tmp_path / "out" / run).mkdir(parents=True)
        (tmp_path / "out" / run / "score.json").touch()
    made = str(write_configuration(tmp_path / "pruned.pt", **PRUNED))
    done = Recorded(
        tmp_path, "head_pruning.sh", "embedded", MADE=made, SITES="encoder", PENALTIES="0,0.1"
    )
    assert done.status == 0, done.errors
    folders = [Path(options(c)["--out"]).name for c in done.commands if c[0] == "sweep"]
    assert folders == ["trained", "encoder", "tuned", "scratch"]
    assert [Path(c[1]).parts[-4:-2] for c in done.commands if c[0] == "prune"] == [
        ("gated", "encoder")
    ]


def test_a_baseline_that_is_not_finished(tmp_path: Path) -> None:
    done = Recorded(tmp_path, "head_pruning.sh", "embedded", BASELINE=str(tmp_path))
    assert done.status == 1
    assert f"no finished run {tmp_path}/model-concatenated_seed-7" in done.errors
    assert not done.commands


class Pruning(Recorded):
    """Everything that the recipe asks for, for one seed; all runs but one are finished."""

    def __init__(self, dataset: str, folder: Path):
        self.dataset, self.out = dataset, folder / "out"
        finished = [self.out / kind / "model-concatenated_seed-7" for kind in ("trained", "begun")]
        for shape in SHAPES:
            sites, penalty = shape.split("-")
            if shape != FAILED:
                finished.append(self.out / "gated" / sites / f"gate_penalty-{penalty}_seed-7")
                finished.append(self.out / "tuned" / f"model-{shape}_seed-7")
        ways = ("important", "scratch", "early", "gated/all-mean", "gated/encoder-mean")
        finished += [self.out / way / "a-run" for way in ways]
        for run in finished:
            run.mkdir(parents=True)
            (run / "score.json").touch()
        self.made = write_configuration(folder / "pruned.pt", **PRUNED)
        super().__init__(
            folder, "head_pruning.sh", dataset, told_as=str(folder),
            MADE=str(self.made), PENALTIES=",".join(PENALTIES), SITES="all,encoder",
        )  # fmt: skip
        assert self.status == 1, self.errors  # it tells of the one
        self._composed: dict[str, dict[str, DictConfig]] = {}

    def jobs(self, folder: str) -> dict[str, DictConfig]:
        """The configuration of every run of a folder by its name."""
        if folder not in self._composed:
            self._composed[folder] = dict(jobs(self.commands, folder, self.out))
        return self._composed[folder]


@pytest.fixture(scope="module", params=["embedded", "multi30k"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pruning:
    return Pruning(request.param, tmp_path_factory.mktemp("recorder"))


def test_gates_start_from_ordinary_heads(recorded: Pruning) -> None:
    ((name, ordinary),) = recorded.jobs("trained").items()
    assert (name, ordinary.model._name) == ("model-concatenated_seed-7", "transformer_headsize_n")
    assert list(recorded.jobs("gated/all")) == [
        f"gate_penalty-{penalty}_seed-7" for penalty in PENALTIES
    ]
    for sites, gated_sites, frozen, expected in (
        ("all", "encoder,decoder,cross", None, PENALTIES),
        ("encoder", "encoder", "decoder", PENALTIES[1:]),  # the control is that of all
    ):
        configs = recorded.jobs(f"gated/{sites}").values()
        assert [str(config.criterion.gate_penalty) for config in configs] == list(expected)
        for config in configs:
            assert config.model._name == "transformer_gated_heads"
            assert (config.model.gated_sites, config.model.freeze) == (gated_sites, frozen)
            assert config.checkpoint.finetune_from_model == str(
                recorded.out / "trained" / name / "average.pt"
            )
            for option in ("encoder_attention_heads", "encoder_embed_dim", "encoder_layers"):
                assert config.model[option] == ordinary.model[option]


def test_every_finished_run_is_scored_with_gates_as_they_are_too(recorded: Pruning) -> None:
    scored = [command for command in recorded.commands if command[0] == "score"]
    assert len(scored) == len(SHAPES) - 1
    for command in scored:
        checkpoint, run = Path(command[1]), Path(options(command)["--run"])
        assert run == Path(f"{checkpoint.parents[1]}-mean") / checkpoint.parent.name
        assert "common_eval.model_overrides=\"{'gate_evaluation': 'mean'}\"" in command
        (penalty,) = (word for word in command if word.startswith("gate_penalty="))
        assert f"{penalty.replace('=', '-')}_seed-7" == run.name


def test_every_finished_run_is_pruned(recorded: Pruning) -> None:
    pruned = {}
    for name, *rest in recorded.commands:
        if name == "prune" and "--gates" in rest:
            checkpoint, *options, output = rest
            assert options == ["--gates", "--out"]
            run = Path(checkpoint).relative_to(recorded.out)
            pruned[Path(output).relative_to(recorded.out)] = run
    assert pruned == {
        Path(f"pruned/7/model/{shape}.pt"): Path(
            "gated/{}/gate_penalty-{}_seed-7/average.pt".format(*shape.split("-"))
        )
        for shape in SHAPES
        if shape != FAILED
    }


def test_as_many_heads_go_by_importance(recorded: Pruning) -> None:
    """Of the ordinary model, and of one that has just begun; of the control none go."""
    found = [(c[1], options(c)) for c in recorded.commands if "--importance" in c]
    pruned = recorded.out / "pruned" / "7"
    for (model, told), run, way in zip(
        found, ("trained", "begun"), ("important", "early"), strict=True
    ):
        assert model == f"{recorded.out}/{run}/model-concatenated_seed-7/average.pt"
        assert told["--as-many-as"] == f"{pruned}/model/{FEWER}.pt"
        assert told["--out"] == f"{pruned}/{way}/model/{FEWER}.pt"
        analysis = Path(told["--importance"])
        assert ["heads", model, "--out", str(analysis.parent)] in [
            [c[0], c[1], "--out", options(c).get("--out")] for c in recorded.commands
        ]


def test_a_run_that_is_not_finished_is_told(recorded: Pruning) -> None:
    """Its name is what Hydra makes of the penalty: one that is spelt otherwise is not found."""
    (line,) = (line for line in recorded.errors.splitlines() if line.startswith("head_pruning"))
    run = recorded.out / "gated" / "all" / "gate_penalty-0.1_seed-7"
    assert line == (
        f"head_pruning: {run} is not finished (write penalties as in its name): not pruned"
    )


def test_shapes_are_tuned_and_trained_from_scratch(recorded: Pruning) -> None:
    """Each goes on from its own checkpoint, or from nothing; all are trained for as long in all."""
    ordinary, *_ = recorded.jobs("trained").values()
    gated, *_ = recorded.jobs("gated/all").values()
    (begun,) = recorded.jobs("begun").values()
    tuned, scratch = recorded.jobs("tuned"), recorded.jobs("scratch")
    important, early = recorded.jobs("important"), recorded.jobs("early")
    name = f"model-{FEWER}_seed-7"
    assert set(tuned) == {f"model-{shape}_seed-7" for shape in SHAPES if shape != FAILED}
    assert set(scratch) == set(tuned)
    assert set(important) == set(early) == {name}
    for folder, way in ((tuned, ""), (scratch, ""), (important, "important"), (early, "early")):
        for run, config in folder.items():
            shape = run.removeprefix("model-").removesuffix("_seed-7")
            start = recorded.out / "pruned" / "7" / way / "model" / f"{shape}.pt"
            # a copy of one configuration, which names the model that it was written for
            starts = None if folder is scratch else str(recorded.made)
            assert config.checkpoint.finetune_from_model == starts
            assert start.exists()
            assert config.common.seed == 7
            assert config.criterion._name == "label_smoothed_cross_entropy"
            assert config.model._name == "transformer_headsize_n"
            for option, value in PRUNED.items():
                full = f"heads_in_{option}" if option in SITES else option
                assert config.model[full] == value
    for length in ("max_epoch", "max_update"):  # one of them is 0 in all
        for parts in (
            (ordinary, gated, tuned[name]), (ordinary, important[name]), (begun, early[name]),
        ):  # fmt: skip
            assert sum(c.optimization[length] for c in parts) == scratch[name].optimization[length]
    if recorded.dataset == "multi30k":  # by the rate of the whole training
        assert begun.lr_scheduler.total_num_update == scratch[name].optimization.max_update


def test_it_ends_with_tables(recorded: Pruning) -> None:
    tables = [command for command in recorded.commands if command[0] == "table"]
    assert tables == recorded.commands[-9:]
    gated = ["gated/all", "gated/all-mean", "gated/encoder", "gated/encoder-mean"]
    folders = ["trained", *gated, "tuned", "important", "scratch", "early"]
    assert [table[1] for table in tables] == [f"{recorded.out}/{folder}" for folder in folders]
    assert all("heads_by_site" in options(table)["--columns"] for table in tables)
