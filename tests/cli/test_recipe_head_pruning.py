"""Which runs ``recipes/head_pruning.sh`` asks for, and from which checkpoints they start."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig
from recipe_recorder import Recorded, jobs, options
from toy_heads import write_configuration

from fairseq_collab.models.layers import SITES

PENALTIES = ("0", "0.01", "0.1")
BASELINE = "model-concatenated_seed-7"
#: The penalty whose run failed.
FAILED = "0.1"
#: Options of a pruned model.
PRUNED = {"encoder": "4,1", "decoder": "8,2", "cross": "7,8", "qk_head_size": 16, "v_head_size": 16}


def test_a_baseline_that_is_not_finished(tmp_path: Path) -> None:
    done = Recorded(tmp_path, "head_pruning.sh", "multi30k", BASELINE=str(tmp_path))
    assert done.status == 1
    assert f"no finished run {tmp_path}/{BASELINE}" in done.errors
    assert not done.commands


class Pruning(Recorded):
    """Everything that the recipe asks for, for one seed; all runs but one are finished."""

    def __init__(self, folder: Path):
        self.out = folder / "out"
        runs = [
            f"gated/gate_penalty-{penalty}_seed-7" for penalty in PENALTIES if penalty != FAILED
        ]
        for run in (f"trained/{BASELINE}", *runs, "tuned/a-run", "important/a-run"):
            (self.out / run).mkdir(parents=True)
            (self.out / run / "score.json").touch()
        self.made = write_configuration(folder / "pruned.pt", **PRUNED)
        super().__init__(
            folder, "head_pruning.sh", "multi30k", told_as=str(folder), MADE=str(self.made),
            PENALTIES=",".join(PENALTIES),
        )  # fmt: skip
        assert self.status == 1, self.errors  # because of the failed run

    def jobs(self, folder: str) -> dict[str, DictConfig]:
        """The configuration of every run of a folder by its name."""
        return dict(jobs(self.commands, folder, self.out))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Pruning:
    return Pruning(tmp_path_factory.mktemp("recorder"))


def test_gates_start_from_standard_heads(recorded: Pruning) -> None:
    ((name, standard),) = recorded.jobs("trained").items()
    assert (name, standard.model._name) == (BASELINE, "transformer_headsize_n")
    gated = recorded.jobs("gated")
    assert list(gated) == [f"gate_penalty-{penalty}_seed-7" for penalty in PENALTIES]
    for config, penalty in zip(gated.values(), PENALTIES, strict=True):
        assert config.criterion.gate_penalty == float(penalty)
        assert config.model._name == "transformer_gated_heads"
        start = recorded.out / "trained" / name / "average.pt"
        assert config.checkpoint.finetune_from_model == str(start)
        for option in ("encoder_attention_heads", "encoder_embed_dim", "encoder_layers"):
            assert config.model[option] == standard.model[option]


def test_every_finished_run_is_pruned(recorded: Pruning) -> None:
    """By gates; the standard model by importance, to the same number of heads."""
    pruned = recorded.out / "pruned"
    found = [(c[1], c[2:]) for c in recorded.commands if c[0] == "prune"]
    gates = [f"{pruned}/7/gates/model/gates-{penalty}.pt" for penalty in ("0", "0.01")]
    important = f"{pruned}/7/important/model/important-0.01.pt"
    heads = ["--importance", f"{pruned}/heads-7/heads.json", "--as-many-as", gates[1]]
    assert found == [
        (f"{recorded.out}/gated/gate_penalty-0_seed-7/average.pt", ["--gates", "--out", gates[0]]),
        (
            f"{recorded.out}/gated/gate_penalty-0.01_seed-7/average.pt",
            ["--gates", "--out", gates[1]],
        ),
        (f"{recorded.out}/trained/{BASELINE}/average.pt", [*heads, "--out", important]),
    ]
    (line,) = (line for line in recorded.errors.splitlines() if line.startswith("head_pruning"))
    assert f"gate_penalty-{FAILED}_seed-7 is not finished" in line


def test_pruned_models_are_tuned(recorded: Pruning) -> None:
    """For as long in all."""
    (standard,), gated = recorded.jobs("trained").values(), recorded.jobs("gated")
    tuned, important = recorded.jobs("tuned"), recorded.jobs("important")
    assert list(tuned) == ["model-gates-0.01_seed-7", "model-gates-0_seed-7"]
    assert list(important) == ["model-important-0.01_seed-7"]
    for config in (*tuned.values(), *important.values()):
        # a copy of one configuration, which names the model that it was written for
        assert config.checkpoint.finetune_from_model == str(recorded.made)
        assert config.criterion._name == "label_smoothed_cross_entropy"
        assert config.model._name == "transformer_headsize_n"
        for option, value in PRUNED.items():
            full = f"heads_in_{option}" if option in SITES else option
            assert config.model[full] == value
    updates = [gated["gate_penalty-0.01_seed-7"], tuned["model-gates-0.01_seed-7"]]
    after = sum(config.optimization.max_update for config in updates)
    (one,) = important.values()
    assert one.optimization.max_update == after == standard.optimization.max_update


def test_it_ends_with_tables(recorded: Pruning) -> None:
    tables = recorded.commands[-4:]
    folders = ["trained", "gated", "tuned", "important"]
    assert [table[:2] for table in tables] == [["table", f"{recorded.out}/{f}"] for f in folders]
    assert all("heads_by_site" in options(table)["--columns"] for table in tables)
