"""A task of somebody else's plug-in, which is registered once however tests import each other."""

from __future__ import annotations

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

NAME = "translation_of_a_plug_in"


@register_task(NAME, dataclass=TranslationConfig)
class OwnTask(TranslationTask):
    """A task that is not fairseq's; it may translate in a way of its own."""
