"""Where a corpus makes its text, and how it is segmented into joint subwords, two ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collab_common.folder import Json
from data_prep import subword
from data_prep.apply_bpe import CODES_ALONE, BpeOptions, JointBpe
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
        bpe: what `with_bpe` heeds beside its codes
    """

    original: Path
    folder: Path
    scratch: Path
    languages: tuple[str, str]
    jobs: int
    bpe: BpeOptions = CODES_ALONE

    def originals(self, stem: str, suffix: str = "") -> Pair:
        return pair_in(self.original, stem, self.languages, suffix)

    def scratches(self, stem: str) -> Pair:
        return pair_in(self.scratch, stem, self.languages)

    def results(self, stem: str) -> Pair:
        return pair_in(self.folder, stem, self.languages)


def with_bpe(work: Work, merges: int) -> Json:
    """subword-nmt's BPE, learnt on both sides of train: scratch/SPLIT becomes folder/SPLIT.

    Source first, as in fairseq's scripts: the order decides between equally frequent pairs.
    """
    print(f"learning {merges} merges ...", flush=True)
    bpe = JointBpe(work.folder, work.languages, work.bpe, work.jobs)
    counts: Json = {"learnt": bpe.learn(work.scratches("train"), merges)}
    for split in SPLITS:
        print(f"segmenting {split} ...", flush=True)
        counts[split] = bpe.apply(work.scratches(split), work.results(split))
        for source in work.scratches(split):
            source.unlink()
    return counts


def with_sentencepiece(work: Work, vocabulary: int) -> Json:
    """sentencepiece's BPE, learnt on both sides of train: scratch/SPLIT becomes folder/SPLIT.

    Pairs of which a side comes out empty are dropped from train, and refused elsewhere.
    """
    model = work.folder / "spm.model"
    print(f"learning {vocabulary} pieces ...", flush=True)
    counts: Json = {"learnt": subword.train(list(work.scratches("train")), vocabulary, model)}
    for split in SPLITS:
        print(f"segmenting {split} ...", flush=True)
        on_empty = Action.DROP if split == "train" else Action.REFUSE
        counts[split] = subword.segment(model, work.scratches(split), work.results(split), on_empty)
    return counts
