"""Where a corpus makes its text, and how it is segmented into joint subwords."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab_common.folder import Json
from data_prep import subword
from data_prep.apply_bpe import BpeOptions, JointBpe
from data_prep.faults import Action
from data_prep.parallel_text import Pair, pair_in

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Work:
    """Where a corpus makes its text.

    Args:
        original: folder with the members of all archives
        folder: to be filled with train, valid and test, segmented, and raw/test, untouched
        scratch: for everything on the way; removed afterwards
        jobs: processes; never to change a byte of the result
        bpe: what `segment` heeds beside subword-nmt's codes; None for sentencepiece's BPE
    """

    original: Path
    folder: Path
    scratch: Path
    languages: tuple[str, str]
    jobs: int
    bpe: BpeOptions | None = None

    def originals(self, stem: str, suffix: str = "") -> Pair:
        return pair_in(self.original, stem, self.languages, suffix)

    def scratches(self, stem: str) -> Pair:
        return pair_in(self.scratch, stem, self.languages)

    def results(self, stem: str) -> Pair:
        return pair_in(self.folder, stem, self.languages)


def _kept_whole(split: str) -> Action:
    return Action.DROP if split == "train" else Action.REFUSE


def segment(
    work: Work,
    size: int,
    splits: Sequence[str] = SPLITS,
    on_empty: Callable[[str], Action] = _kept_whole,
    where: Callable[[str], Callable[[int, int], str] | None] = lambda _: None,
) -> Json:
    """Subwords learnt on both sides of train: scratch/SPLIT becomes folder/SPLIT.

    Source first, as in fairseq's scripts: the order decides between equally frequent pairs.

    Args:
        size: merges of subword-nmt, pieces of sentencepiece
        on_empty, where: of each split, see `subword.segment`
    """
    model, train = work.folder / "spm.model", work.scratches("train")
    bpe = None
    if work.bpe is not None:
        bpe = JointBpe(work.folder, work.languages, work.bpe, work.jobs)
    print(f"learning {size} subwords ...", flush=True)
    learnt = bpe.learn(train, size) if bpe else subword.train(list(train), size, model)
    counts: Json = {"learnt": learnt}
    for split in splits:
        print(f"segmenting {split} ...", flush=True)
        texts = work.scratches(split), work.results(split)
        if bpe:
            counts[split] = bpe.apply(*texts)
        else:
            counts[split] = subword.segment(model, *texts, on_empty(split), where(split))
    return counts
