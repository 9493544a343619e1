"""What this project's own commands take: writes tools_time.json, one command after the other.

    python results/tools_time.py results/tools_time.json --data data/multi30k --model NAME=a.pt

Models of 6+6 layers have random weights.  Their translations have no end, so that ``export
--check`` is timed with the trained model alone.  Run again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fairseq_collab  # noqa: F401 (registers all architectures)
from collab_common.progress import say
from collab_common.provenance import circumstances
from collab_lab import open_model
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.rebuilt import options_for
from results.measured import File, digest, write

#: The commands, by their names in tables; CHECKPOINT DATA follow the first word.
COMMANDS = {
    "prices": "prices --out {out}",
    "shrink, parameters": "shrink --parameters=0.66 --out {out}.pt",
    "shrink, cache": "shrink --cache=0.125 --out {out}.pt",
    "shrink, both": "shrink --cache=0.125 --parameters=0.66 --out {out}.pt",
    "shrink, heads": "shrink --heads=0.67 --out {out}.pt",
    "export --check": "export --format ct2 --check --out {out}",
}
LAYERS, HEADS = 6, 8


def untrained(like: Trained, d: int) -> Trained:
    """A model of 6+6 layers with random weights, with the dictionaries of a trained one."""
    sizes: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_embed_dim": d, f"{side}_ffn_embed_dim": 4 * d}
        sizes |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS}
    sizes |= {"decoder_input_dim": d, "decoder_output_dim": d}
    result = like.with_model(like.model, options_for(like, "transformer_headsize_n", sizes))
    return result.with_model(like.task.build_model(result.cfg.model).eval())


def timed(command: str, checkpoint: Path, data: Path, sentences: int) -> dict[str, float]:
    """Wall-clock seconds of a command, and those of all its threads; an error ends the program."""
    with tempfile.TemporaryDirectory() as folder:
        name, *rest = shlex.split(command.format(out=Path(folder, "out")))
        more = [] if name == "export" else ["--cpu", f"--sentences={sentences}"]
        words = [sys.executable, "-m", "collab_lab.cli.main", name, str(checkpoint), str(data)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*words, *rest, *more], check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="results/tools_time.json")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--model", required=True, metavar="NAME=CHECKPOINT", help="a trained model")
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 256, 512], metavar="D")
    parser.add_argument("--sentences", type=int, default=1000)
    args = parser.parse_args(argv)
    command = f"python results/tools_time.py {shlex.join(argv)}"
    now = {"command": command, "sentences": args.sentences, **circumstances(cpu=True)}
    if not args.out.exists():
        write(args.out, {"rows": []})
    file = File(args.out)
    name, _, trained = args.model.partition("=")
    model = open_model(trained, args.data)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = {name: Path(trained)}
        for d in args.sizes:
            checkpoints[f"d = {d}"] = Path(folder, f"{d}.pt")
        inputs = (Path(trained), args.data, args.sentences)
        for of, checkpoint in checkpoints.items():
            if not checkpoint.exists():
                untrained(model, int(checkpoint.stem)).save(checkpoint)
            parameters = sum(
                p.numel() for p in open_model(checkpoint, args.data).model.parameters()
            )
            for what, words in COMMANDS.items():
                keys, made_from = {"model": of, "name": what}, digest(*inputs, of)
                is_made = file.is_made("rows", keys, made_from)
                if is_made or (what == "export --check" and of != name):
                    continue
                seconds = timed(words, checkpoint, args.data, args.sentences)
                row = {"model": of, "parameters": parameters, "name": what, **seconds}
                row |= {**now, "made_from": made_from}  # another command may make other rows
                file.put("rows", keys, row)
                say(f"{of}, {what}: {seconds}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
