"""The same options through ``fairseq-hydra-train``, alone and as a sweep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import toy
from commands import REPOSITORY, succeed
from fairseq.models import MODEL_DATACLASS_REGISTRY

PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
WORDS = 12


def hydra(data: Path, *overrides: str, sweep: bool = False) -> list[str]:
    """Two updates; ``model._name`` chooses the architecture."""
    return [
        "fairseq-hydra-train",
        *(["-m"] if sweep else []),  # hydra wants the overrides in one block
        f"common.user_dir={REPOSITORY / 'fairseq_collab'}",
        "common.cpu=true",
        "common.seed=1",
        "task=translation",
        f"task.data={data}",
        "task.source_lang=en",
        "task.target_lang=de",
        "criterion=label_smoothed_cross_entropy",
        "optimizer=adam",
        "lr_scheduler=inverse_sqrt",
        "optimization.lr=[0.001]",
        "optimization.max_update=2",
        "dataset.max_tokens=200",
        "dataset.num_workers=0",
        "dataset.disable_validation=true",
        "checkpoint.no_save=true",
        *overrides,
    ]


def expected_parameters(arch: str, **options: object) -> int:
    defaults = MODEL_DATACLASS_REGISTRY[arch]()
    sizes = {key: getattr(defaults, key) for key in toy.SIZES}
    return toy.num_parameters(toy.model(arch, toy.task(WORDS), **{**sizes, **options}))


@pytest.mark.parametrize("arch", ["transformer_collab_multi30k", "transformer_collab_iwslt_de_en"])
def test_presets_have_their_sizes(arch: str, data: Path, tmp_path: Path) -> None:
    """fairseq applies a preset given as a function on the command line only; ours holds here."""
    overrides = [f"+model._name={arch}", "+model.key_dim=32", "+model.share_all_embeddings=true"]
    log = succeed(*hydra(data, *overrides), cwd=tmp_path)
    found = int(PARAMETERS.search(log)[1].replace(",", ""))
    assert found == expected_parameters(arch, key_dim=32, share_all_embeddings=True)


def test_sweep_over_key_dimensions(data: Path, tmp_path: Path) -> None:
    overrides = ["+model._name=transformer_collab_multi30k", "+model.key_dim=16,64"]
    log = succeed(*hydra(data, *overrides, sweep=True), cwd=tmp_path)
    found = [int(number.replace(",", "")) for number in PARAMETERS.findall(log)]
    arch = "transformer_collab_multi30k"
    assert found == [expected_parameters(arch, key_dim=16), expected_parameters(arch, key_dim=64)]
