"""Seconds of a step and memory of long translations: writes results/long_steps.json.

    python results/long_steps.py results/long_steps.json --model NAME=CHECKPOINT --documents D

The longest documents of the test set, again and again, are translated with beam 5 to a length that
is forced.  Each cache is planned and fitted as in long.py, and decodes in a new process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from collab_lab import open_model
from collab_lab.clock.bench import peak_memory, watch
from collab_lab.metrics.generate import BEAM
from collab_lab.trained.sentences import batches, dataset_of
from results.long import MADE, Text
from results.measured import File, origin

CACHES = ("float32", "8 bits", "4 bits", "latents, an eighth")
BATCHES, LENGTH = (1, 16, 64), 1000
#: Documents to plan and fit on.
CALIBRATION = 60


def steps(checkpoint: Path, documents: Path, batch: int, length: int) -> dict[str, Any]:
    """Seconds of a step, bytes of the cache and the peak of this process, of one translation."""
    model = open_model(checkpoint, documents)
    sizes = dataset_of(model, "test").src_sizes
    longest = np.argsort(-sizes, kind="stable")
    order = [int(longest[i % len(longest)]) for i in range(batch)]
    (sample,) = batches(model, "test", order, max_sentences=batch)
    cpu = torch.device("cpu")
    with torch.no_grad():
        (found,) = watch(
            model.model, model.task, sample, BEAM, [length], cpu, peak_memory(cpu)
        )  # fmt: skip
    tokens = int(sample["net_input"]["src_lengths"].max())
    return {**found, "source_tokens": tokens}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/long_steps.json")
    parser.add_argument("--model", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--documents", type=Path, required=True, help="data folder")
    parser.add_argument("--calibration", type=int, default=CALIBRATION, help="documents")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, metavar="N")
    parser.add_argument("--length", type=int, default=LENGTH, metavar="TOKENS")
    args = parser.parse_args(argv)
    name, _, checkpoint = args.model.partition("=")
    inputs = (Path(checkpoint), args.documents, args.calibration, args.length)
    file, made = File(args.file), origin("long_steps.py", argv, *inputs)
    context = multiprocessing.get_context("forkserver")  # a peak of this process would count
    context.set_forkserver_preload(["collab_lab.clock.bench"])
    with context.Pool(1):  # the server starts now
        pass
    text = Text(Path(checkpoint), args.documents, args.calibration)
    with tempfile.TemporaryDirectory() as folder:
        for cache in CACHES:
            path = Path(checkpoint)
            if cache != "float32":
                path = Path(folder, "changed.pt")
                MADE[cache](text).model.save(path)
            for batch in args.batches:
                keys = {"model": name, "name": cache, "batch": batch}
                if file.is_made("rows", keys, made["made_from"]):
                    continue
                with context.Pool(1, torch.set_num_threads, [torch.get_num_threads()]) as pool:
                    found = pool.apply(steps, (path, args.documents, batch, args.length))
                file.put("rows", keys, {**keys, **found, **made})
                print(f"{name}: {cache}, {batch}: {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
