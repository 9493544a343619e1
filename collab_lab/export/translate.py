"""Translate lines with the model of this folder: ``python translate.py < text > translations``.

``fairseq-collab export`` wrote it.  It needs numpy, onnxruntime, and sentencepiece or subword-nmt.

    score(y_1 .. y_t) = sum_s log p(y_s | y_1 .. y_s-1, x),        reported: score / t^lenpen

The search is the same as in fairseq.  Each step ranks the 2 beam best continuations of a sentence.
Among the best ``beam``, those that end become hypotheses; the best ``beam`` that do not end
continue.  When ``beam`` hypotheses have ended, the sentence is done and leaves the batch.

The beams of a sentence share their caches: a mask says which slots a beam descends from.  Slots
that no beam needs any more are dropped.

Shapes: B sentences, beam hypotheses of each, S source tokens, N slots, c candidates.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORM = 1  # of the folder: config.json says the same
STEPS = 8  # caches grow by the slots of at least so many steps, and by a part of what they hold
PART = 1 / 16
MOST_LIVE = 0.75  # share of slots that some beam sees, above which none are dropped
#: Fusions that make a step slower: the operator takes seven times as long as the two it stands for.
SLOWER = ["SkipLayerNormFusion"]
WINDOW = 32  # so many batches of lines are sorted by length together
BREAK = "<break>"  # between the sentences of documents, where the model has this symbol
#: Marks at ends of sentences, also those of Hindi, Urdu, Amharic and Armenian.
ENDS = ".!?\u2026\u0589\u061f\u06d4\u0964\u0965\u1362\u1367"
#: The end of a line of ordinary text: tokens have their marks apart.
ATTACHED = re.compile(rf"[^\s!-/:-@\[-`{{-~][{ENDS}\u3002\uff01\uff1f]$")
ABBREVIATIONS = 1 / 50  # share of words with such an end in the vocabulary of tokens
DTYPES = {"float32": np.float32, "float16": np.float16, "uint8": np.uint8}
Array = np.ndarray[Any, Any]


class InputError(Exception):
    """A file, an option or a line cannot be used; the message says what is wrong and what to do."""


class Hypothesis(NamedTuple):
    """A translation: its score, its tokens without ``</s>``, and its text.

    Attributes:
        at_limit: whether it is as long as the search lets it be: it may be cut.
    """

    score: float
    tokens: list[int]
    text: str
    at_limit: bool = False


class Translator:
    """The model of a folder, loaded.

    Args:
        threads: number of threads of onnxruntime; None: one per core.

    Raises:
        InputError: a file is missing or belongs to another model, or a package is missing or old.
    """

    def __init__(self, folder: str | Path, threads: int | None = None):
        self.folder = Path(folder)
        self.config = read_config(self.folder)
        self.is_language_model = "encoder.onnx" not in self.config["files"]
        self.symbols = self._symbols("target.txt")
        self.index = {word: i for i, word in enumerate(self.symbols)}
        self.sources = self.index
        if not self.is_language_model:
            self.sources = {word: i for i, word in enumerate(self._symbols("source.txt"))}
            self.encoder = self._session("encoder.onnx", threads)
        self.step = self._session("step.onnx", threads)
        self.inputs = {value.name for value in self.step.get_inputs()}
        self.split = self._subwords(self.config["subwords"])

    def _symbols(self, name: str) -> list[str]:
        return (self.folder / name).read_text("utf-8").split("\n")[:-1]

    def _session(self, name: str, threads: int | None) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise InputError("onnxruntime is not installed; pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads or 0, 3
        path, providers = str(self.folder / name), ["CPUExecutionProvider"]
        try:
            session = onnxruntime.InferenceSession
            return session(path, options, providers, disabled_optimizers=SLOWER)
        except Exception as error:  # of the runtime, which has no common class
            reason = " ".join(str(error).split())
            todo = f"install onnxruntime {self.config['onnxruntime']} or newer, or export it again"
            raise InputError(f"{path}: onnxruntime cannot load it ({reason}); {todo}") from error

    def _subwords(self, kind: str | None) -> Any:
        """From a sentence to its pieces."""
        try:
            if kind == "sentencepiece":
                from sentencepiece import SentencePieceProcessor

                model = SentencePieceProcessor(model_file=str(self.folder / "spm.model"))
                return lambda line: model.encode(line, out_type=str)
            if kind == "subword_nmt":
                from subword_nmt.apply_bpe import BPE

                with (self.folder / "code").open(encoding="utf-8") as codes:
                    bpe = BPE(codes)
                # Any white space is a blank, as in the training text.
                return lambda line: bpe.segment(" ".join(line.split())).split()
        except ImportError as error:
            name = str(kind).replace("_", "-")
            raise InputError(f"{name} is not installed; pip install {name}") from error
        return str.split

    # ---- text ------------------------------------------------------------------------------------

    def say_if_untokenised(self, lines: Sequence[str | None]) -> None:
        """Warn if a model of tokens (subword-nmt) is given ordinary text."""
        known, found = (
            sum(bool(text and ATTACHED.search(text.rstrip())) for text in texts)
            for texts in (self.sources, lines)
        )
        is_of_tokens = known <= ABBREVIATIONS * len(self.sources)
        if self.config["subwords"] == "subword_nmt" and is_of_tokens and 2 * found > len(lines):
            problem = f"{found} of {len(lines)} lines end in a word with its mark, and the model"
            todo = "was trained on tokens: tokenise the lines as its training text was"
            print(f"translate: warning: {problem} {todo}", file=sys.stderr)

    def say_if_unknown(self, lines: Sequence[str | None]) -> None:
        """Warn of pieces that the dictionary lacks."""
        firsts = (
            next((piece for piece in self.pieces(line or "") if piece not in self.sources), None)
            for line in lines
        )
        if unknown := [piece for piece in firsts if piece is not None]:
            problem = f"{len(unknown)} of {len(lines)} lines have subwords that the dictionary"
            todo = f"lacks, which the model reads as <unk>; the first is {unknown[0]!r}"
            print(f"translate: warning: {problem} {todo}", file=sys.stderr)

    def pieces(self, line: str) -> list[str]:
        """The pieces of a line; sentences of a document are split one by one, as for training."""
        sentences = line.split(BREAK) if BREAK in self.sources else [line]
        first, *others = map(self.split, sentences)
        return [*first, *(piece for sentence in others for piece in (BREAK, *sentence))]

    def encode(self, line: str) -> list[int]:
        """The indices of a source's pieces and ``</s>``; InputError if the line cannot be read."""
        unknown, end = self.config["unk"], [self.config["eos"]]
        tokens = [self.sources.get(piece, unknown) for piece in self.pieces(line)]
        longest = self.config["source_positions"]
        if not tokens:
            raise InputError("is empty")
        if len(tokens) >= longest:
            raise InputError(f"has {len(tokens) + 1} tokens, but the model reads at most {longest}")
        return tokens if self.is_language_model else tokens + end

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of a translation, from its indices."""
        words = ["<unk>" if t == self.config["unk"] else self.symbols[t] for t in tokens]
        if self.config["subwords"] == "sentencepiece":
            return "".join(words).replace("\u2581", " ").strip()
        text = " ".join(words)
        return f"{text} ".replace("@@ ", "").rstrip() if self.config["subwords"] else text

    # ---- search ----------------------------------------------------------------------------------

    def translate(
        self,
        lines: Sequence[str],
        beam: int = 5,
        batch: int = 32,
        *,
        prefixes: Sequence[str] | None = None,
        report: Any = None,
        **search: Any,
    ) -> list[list[Hypothesis]]:
        """Translate lines; return the hypotheses of each, best first, or none if it is unreadable.

        A language model continues the lines.

        Args:
            beam: number of hypotheses per line.
            batch: number of sentences to translate together.
            prefixes: text with which the translation of each line must start.
            report: called for each unreadable line with its number (from 1) and the reason.
            search: further arguments of :meth:`search`.

        Raises:
            InputError: a line or its prefix is unreadable, and ``report`` is not given; or the
                prefixes are not one for each line, or are of a language model.
        """
        if prefixes is not None and len(prefixes) != len(lines):
            raise InputError(f"there are {len(prefixes)} prefixes for {len(lines)} lines")
        if self.is_language_model and any(prefixes or []):
            raise InputError("a language model continues the lines: write the prefixes into them")
        sources: dict[int, list[int]] = {}
        starts: dict[int, list[int]] = {}
        for number, line in enumerate(lines):
            try:
                source = self.encode(line)
                start = self._prefix(prefixes[number]) if prefixes else []
                sources[number], starts[number] = source, start
            except InputError as error:
                if report is None:
                    raise InputError(f"line {number + 1} {error}") from error
                report(number + 1, str(error))
        results: list[list[Hypothesis]] = [[] for _ in lines]
        order = sorted(sources, key=lambda number: len(sources[number]))
        if self.is_language_model:
            starts = sources
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]
            given = [starts[row] for row in rows]
            found = self.search([sources[row] for row in rows], beam, prefixes=given, **search)
            for row, hypotheses in zip(rows, found, strict=True):
                results[row] = hypotheses
        return results

    def _prefix(self, text: str) -> list[int]:
        found = [self.index.get(piece, self.config["unk"]) for piece in self.pieces(text)]
        for name in ("eos", "pad"):
            if self.config[name] in found:
                symbol = self.symbols[self.config[name]]
                raise InputError(f"has a prefix with the symbol {symbol}; leave it out")
        return found

    def search(
        self,
        sources: Sequence[Sequence[int]],
        beam: int = 5,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        max_len_a: float | None = None,
        max_len_b: int | None = None,
        min_len: int = 1,
        lenpen: float = 1.0,
        unkpen: float = 0.0,
    ) -> list[list[Hypothesis]]:
        """Translate a batch of sources (indices that end in ``</s>``); best hypotheses first.

        Args:
            prefixes: the tokens with which each translation must start, without ``</s>``.
            max_len_a, max_len_b: a translation of x source tokens has at most a x + b tokens.
            min_len: least number of tokens of a translation, without ``</s>``.
            lenpen: scores are divided by length^lenpen; above 1, longer translations win.
            unkpen: amount subtracted from the log-probability of ``<unk>``.
        """
        config = self.config
        a = config["max_len_a"] if max_len_a is None else max_len_a
        b = config["max_len_b"] if max_len_b is None else max_len_b
        most = config["target_positions"] - 1
        limits = np.array([min(int(a * len(source) + b), most) for source in sources])
        if min_len > limits.min():
            raise InputError(f"min_len {min_len} is above the limit of {limits.min()} tokens")
        if 2 * beam + 3 > len(self.symbols):
            raise InputError(f"a beam of {beam} is too wide for {len(self.symbols)} symbols")
        eos, unk = config["eos"], config["unk"]
        special = [config["pad"], eos, unk]
        state = State(self, sources, beam)
        forced = np.full((len(sources), max(map(len, prefixes or [[]])) + 1), -1)
        for row, prefix in zip(forced, prefixes or [], strict=False):
            row[: len(prefix)] = prefix
        words = np.full((len(sources), beam), config["start"])  # the last token of each hypothesis
        tokens = np.zeros((len(sources), beam, 0), np.int64)
        scores = np.full((len(sources), beam), -np.inf, np.float32)
        scores[:, 0] = 0  # in the first step all beams are equal
        places, ended = np.arange(len(sources)), [list[Hypothesis]() for _ in sources]
        for t in range(limits.max() + 1):
            start = forced[:, min(t, forced.shape[1] - 1)]  # -1: the search is free
            start = np.where(limits[places] <= t, -1, start)[:, None]  # a longer prefix is cut
            asked = np.stack(np.broadcast_arrays(eos, unk, np.maximum(start, 0)), -1)
            asked = np.broadcast_to(asked, (len(places), beam, 3))
            best, best_words, own = state.run(words, t, asked)
            best[np.isin(best_words, special)] = -np.inf
            own[..., 1] -= unkpen
            forced_score = own[..., 2] - unkpen * (start == unk)
            own[..., 2] = np.where(start >= 0, forced_score, -np.inf)
            best[limits[places] <= t] = own[limits[places] <= t, :, 1:2] = -np.inf
            if t < min_len:
                own[..., 0] = -np.inf
            best[start[:, 0] >= 0] = own[start[:, 0] >= 0, :, :2] = -np.inf
            # Of all continuations, the 2 beam best.
            candidates = np.concatenate([best, own], -1)  # (B, beam, c)
            candidate_words = np.concatenate([best_words, asked], -1).reshape(len(places), -1)
            totals = (scores[:, :, None] + candidates).reshape(len(places), -1)
            ranked = np.argsort(-totals, 1, kind="stable")[:, : 2 * beam]
            origins = ranked // candidates.shape[2]
            totals = np.take_along_axis(totals, ranked, 1)
            ranked_words = np.take_along_axis(candidate_words, ranked, 1)
            if not (totals[:, 0] > -np.inf).all():
                is_nan = np.isnan(best).any() or np.isnan(own).any()
                reason = "the model's output is NaN" if is_nan else "a prefix cannot be continued"
                raise InputError(f"{reason}, so no word has a probability")
            is_end = (ranked_words == eos) & (totals > -np.inf)
            for row, rank in np.argwhere(is_end[:, :beam]):
                hypotheses = ended[places[row]]
                if len(hypotheses) < beam:
                    found = tokens[row, origins[row, rank]].tolist()
                    score = float(totals[row, rank]) / (t + 1) ** lenpen
                    is_last = bool(t >= limits[places[row]])
                    hypotheses.append(Hypothesis(score, found, self.decode(found), is_last))
            order = np.argsort(is_end, 1, kind="stable")[:, :beam]
            origins, words, scores = (
                np.take_along_axis(x, order, 1) for x in (origins, ranked_words, totals)
            )
            stay = np.array([len(ended[p]) < beam and t < limits[p] for p in places])
            if not stay.any():
                break
            state.advance(origins, None if stay.all() else stay)
            tokens = np.take_along_axis(tokens, origins[:, :, None], 1)
            tokens = np.concatenate([tokens, words[:, :, None]], 2)
            if not stay.all():
                places, forced = places[stay], forced[stay]
                words, scores, tokens = words[stay], scores[stay], tokens[stay]
        return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in ended]


class State:
    """The caches of a batch, and the mask ``(B, beam, N)`` of the slots that each beam sees."""

    def __init__(self, model: Translator, sources: Sequence[Sequence[int]], beam: int):
        self.model, self.beam, self.filled = model, beam, 0
        self.cross: list[Array] = []
        if not model.is_language_model:
            padded = np.full((len(sources), max(map(len, sources))), model.config["pad"])
            for row, source in zip(padded, sources, strict=True):
                row[: len(source)] = source
            self.cross = model.encoder.run(None, {"tokens": padded})
        given = ["padding", *model.config["cross"]] if self.cross else []
        self.names = [*given, *model.config["own"]]
        self.past = [
            np.zeros((len(sources), heads, 0, size), DTYPES[dtype])
            for heads, size, dtype in model.config["own"].values()
        ]
        # The last slots are those of the step itself, of which a beam sees its own.
        self.new = np.where(np.eye(beam, dtype=bool), np.float32(0), np.float32(-np.inf))
        self.mask = np.zeros((len(sources), beam, 0), np.float32)
        self._grow()

    def run(self, words: Array, position: int, asked: Array) -> list[Array]:
        """Run a step: the best next words with scores ``(B, beam, k)``, and scores of ``asked``."""
        inputs = {"words": words, "position": np.array(position), "mask": self.mask, "asked": asked}
        inputs |= dict(zip(self.names, [*self.cross, *self.past], strict=True))
        read = {name: value for name, value in inputs.items() if name in self.model.inputs}
        found = self.model.step.run(None, read)
        if self.filled + 2 * self.beam > self.mask.shape[2]:
            self._grow()
        slots = slice(self.filled, self.filled + self.beam)
        for past, new in zip(self.past, found[3:], strict=True):
            past[:, :, slots] = new
        self.mask[:, :, slots], self.filled = self.new, self.filled + self.beam
        return found[:3]

    def advance(self, origins: Array, stay: Array | None) -> None:
        """Let beam ``i`` continue beam ``origins[i]``; drop sentences that do not ``stay``."""
        self.mask = np.take_along_axis(self.mask, origins[:, :, None], 1)
        self.mask[:, :, -self.beam :] = self.new
        if stay is not None:
            self.mask = self.mask[stay]
            self.cross, self.past = [x[stay] for x in self.cross], [x[stay] for x in self.past]

    def _grow(self) -> None:
        """Make room for more steps; slots that no beam sees go first."""
        live = (self.mask[:, :, : self.filled] == 0).any(1)  # (B, filled)
        number = int(live.sum(1).max(initial=0))
        if moves := number <= MOST_LIVE * self.filled:
            keep = np.argsort(~live, 1, kind="stable")[:, :number]
            seen = np.take_along_axis(self.mask, keep[:, None], 2)
        else:
            number, seen = self.filled, self.mask[:, :, : self.filled]
        room = self.beam * max(STEPS, int(PART * number / self.beam))
        hidden = np.full((*self.mask.shape[:2], room), -np.inf, np.float32)
        step = np.broadcast_to(self.new, (len(hidden), self.beam, self.beam))
        self.mask, self.filled = np.concatenate([seen, hidden, step], 2), number
        for index, past in enumerate(self.past):
            sentences, heads, _, size = past.shape
            grown = np.zeros((sentences, heads, number + room, size), past.dtype)
            if moves:
                for row, slots in enumerate(keep):
                    grown[row, :, :number] = past[row].take(slots, 1)
            else:
                grown[:, :, :number] = past[:, :, :number]
            self.past[index] = grown


# ---- the folder, and the command -----------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json``; InputError if a file is missing or is not the one that it names."""
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8"))
        form, files = config["form"], config["files"]
    except FileNotFoundError as error:
        raise InputError(f"{path}: file not found; give a folder that export wrote") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not written by export; export the model again") from error
    if form != FORM:
        todo = "use the translate.py of its folder"
        raise InputError(f"{path}: has format {form}, but this program reads {FORM}; {todo}")
    for name, size in files.items():
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: file not found; export the model again")
        if (folder / name).stat().st_size != size:
            raise InputError(f"{folder / name}: is not the file of this model; export it again")
    return config


_HERE: list[Translator] = []


def translate(lines: Sequence[str], beam: int = 5, batch: int = 32, **search: Any) -> list[str]:
    """The best translation of each line, by the model in the folder of this file."""
    if isinstance(lines, str):
        raise InputError("`lines` is one text; give a list of texts")
    if not _HERE:
        _HERE.append(Translator(Path(__file__).parent))
    lines = [*lines]  # a generator ends
    _HERE[0].say_if_untokenised(lines)
    _HERE[0].say_if_unknown(lines)
    found = [hypotheses[0] for hypotheses in _HERE[0].translate(lines, beam, batch, **search)]
    say_how_many_are_cut([hypothesis.at_limit for hypothesis in found])
    return [hypothesis.text for hypothesis in found]


def say_how_many_are_cut(at_limit: Sequence[bool]) -> None:
    """Warn of translations that end at the limit of their length, if any do."""
    if any(at_limit):
        number = f"{sum(at_limit)} of {len(at_limit)} translations"
        options = "--max-len-a, --max-len-b, the model's positions"
        problem = f"{number} end at the limit of their length ({options}), and may be cut"
        print(f"translate: warning: {problem}", file=sys.stderr)


def read_lines(stream: Any) -> Iterator[str | None]:
    """Yield lines of bytes as text, without a byte order mark; None for one that is not UTF-8."""
    for number, row in enumerate(stream):
        try:
            yield row.decode("utf-8-sig" if number == 0 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield None


def read_prefixes(path: Path, number: int) -> list[str]:
    """Read one prefix for each of a number of lines; InputError if the file has others."""
    with path.open("rb") as stream:
        prefixes = [*read_lines(stream)]
    if len(prefixes) != number:
        counted = f"has {len(prefixes)} lines, but the text has {number}"
        raise InputError(f"{path}: {counted}; give one prefix per line, which may be empty")
    if None in prefixes:
        raise InputError(f"{path}: line {prefixes.index(None) + 1} is not UTF-8; convert the file")
    return [prefix or "" for prefix in prefixes]


def show_progress(done: int, total: int) -> None:
    """Show a progress bar on standard error, if that is a terminal."""
    if sys.stderr.isatty() and total > WINDOW:
        width = 40 * done // total
        end = "\n" if done == total else ""
        print(f"\r{'#' * width:40} {done} of {total} lines", end=end, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 if a line could not be translated."""
    parser = argparse.ArgumentParser(description="translate standard input, line by line")
    parser.add_argument(
        "--beam", type=int, default=5, help="number of hypotheses in the beam search (default: 5)"
    )
    parser.add_argument(
        "--batch", type=int, default=32, help="number of lines to translate together (default: 32)"
    )
    parser.add_argument("--threads", type=int, help="number of CPU threads (default: one per core)")
    parser.add_argument(
        "--nbest", type=int, default=1, help="number of translations to print per line (default: 1)"
    )
    parser.add_argument(
        "--scores", action="store_true", help="print the score and a tab before each translation"
    )
    parser.add_argument(
        "--max-len-a", type=float, metavar="A",
        help="a translation of N source tokens has at most A * N + B tokens (default: as in the "
        "search of the trained model)",
    )  # fmt: skip
    parser.add_argument("--max-len-b", type=int, metavar="B", help="see --max-len-a")
    parser.add_argument(
        "--min-len",
        type=int,
        default=1,
        help="least number of tokens of a translation (default: 1)",
    )
    parser.add_argument(
        "--lenpen", type=float, default=1.0,
        help="length penalty: scores are divided by length^LENPEN, so that above 1 longer "
        "translations win (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--unkpen", type=float, default=0.0,
        help="amount to subtract from the log-probability of unknown words (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--prefixes", type=Path,
        help="file with one prefix per input line, with which the translation must start",
    )  # fmt: skip
    options = vars(parser.parse_args(arguments))
    threads, nbest, scores = (options.pop(name) for name in ("threads", "nbest", "scores"))
    beam, batch, file = (options.pop(name) for name in ("beam", "batch", "prefixes"))
    if not 1 <= nbest <= beam or batch < 1:
        parser.error("--nbest has to be from 1 to --beam, and --batch at least 1")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file on Windows has another encoding
        sys.stdout.reconfigure(encoding="utf-8")
    failed, at_limit = 0, list[bool]()
    try:
        model = Translator(Path(__file__).parent, threads)
        lines = list(read_lines(sys.stdin.buffer))
        model.say_if_untokenised(lines)
        model.say_if_unknown(lines)
        prefixes = [""] * len(lines) if file is None else read_prefixes(file, len(lines))
        for start in range(0, len(lines), WINDOW * batch):
            window = lines[start : start + WINDOW * batch]

            def report(number: int, problem: str, start: int = start, window: Any = window) -> None:
                nonlocal failed
                failed += 1
                problem = "is not UTF-8" if window[number - 1] is None else problem
                print(f"translate: line {start + number} {problem}: left out", file=sys.stderr)

            texts = [line or "" for line in window]
            given = prefixes[start : start + len(window)]
            found = model.translate(texts, beam, batch, prefixes=given, report=report, **options)
            at_limit += [hypotheses[0].at_limit for hypotheses in found if hypotheses]
            for hypotheses in found:
                for hypothesis in hypotheses[:nbest]:
                    score = f"{hypothesis.score:.4f}\t" if scores else ""
                    print(f"{score}{hypothesis.text}")
                if not hypotheses:
                    print("\n" * nbest, end="")
            show_progress(start + len(window), len(lines))
        say_how_many_are_cut(at_limit)
    except (InputError, OSError) as error:
        print(f"translate: error: {error}", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
