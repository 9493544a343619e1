"""A sweep over presets through ``fairseq-hydra-train``, without the configurations of ours."""

from __future__ import annotations

import re
from pathlib import Path

import toy
from commands import REPOSITORY, succeed
from fairseq.models import MODEL_DATACLASS_REGISTRY

PARAMETERS = re.compile(r"model: \w+, ([\d,]+) parameters")
WORDS = 12
ARCHS = ("transformer_collab_multi30k", "transformer_collab_iwslt_de_en")


def expected_parameters(arch: str, **options: object) -> int:
    defaults = MODEL_DATACLASS_REGISTRY[arch]()
    sizes = {key: getattr(defaults, key) for key in toy.SIZES}
    return toy.num_parameters(toy.model(arch, toy.task(WORDS), **{**sizes, **options}))


def test_presets_have_their_sizes(data: Path, tmp_path: Path) -> None:
    """fairseq applies a preset given as a function on the command line only; ours holds here."""
    log = succeed(
        "fairseq-hydra-train", "-m", f"common.user_dir={REPOSITORY / 'fairseq_collab'}",
        "common.cpu=true", "task=translation", f"task.data={data}", "task.source_lang=en",
        "task.target_lang=de", "criterion=label_smoothed_cross_entropy", "optimizer=adam",
        "lr_scheduler=inverse_sqrt", "optimization.lr=[0.001]", "optimization.max_update=2",
        "dataset.max_tokens=200", "dataset.num_workers=0", "dataset.disable_validation=true",
        "checkpoint.no_save=true", f"+model._name={','.join(ARCHS)}", "+model.key_dim=32",
        "+model.share_all_embeddings=true",
        cwd=tmp_path,
    )  # fmt: skip
    found = [int(number.replace(",", "")) for number in PARAMETERS.findall(log)]
    options = {"key_dim": 32, "share_all_embeddings": True}
    assert found == [expected_parameters(arch, **options) for arch in ARCHS]
