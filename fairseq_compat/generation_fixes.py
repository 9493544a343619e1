"""Fixes of generation; the docstring of each fix names the fault."""

from __future__ import annotations

import inspect
import logging
import math
import re
from typing import Any

from collab_common.errors import UserError

from .patching import Proxy, wrap

logger = logging.getLogger("fairseq_collab")
_GENERATE = "use fairseq-generate, which reads them from the data folder"
_SKIP = "give --skip-invalid-size-inputs-valid-test to leave it out"


def block_repeated_ngrams() -> None:
    """--no-repeat-ngram-size has no effect without fairseq's CUDA extension, so never on a CPU.

    fairseq looks for the last words at the end of the buffer, where there is only padding.
    """
    import torch
    from fairseq.ngram_repeat_block import NGramRepeatBlock
    from torch import Tensor

    def _no_repeat_ngram(
        self: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
    ) -> Tensor:
        """Forbid words that would complete an n-gram which the hypothesis already contains.

        TorchScript compiles this.  A word without an alternative, such as one of a prefix, stays
        allowed.

        Args:
            tokens: the token before the first, ``step`` words, and padding: ``(rows, step + 1 +
                n)``
            lprobs: log-probabilities of the next word, ``(rows, V)``, changed in place
        """
        n = self.no_repeat_ngram_size
        if step < n:
            return lprobs
        words = tokens[:, 1 : step + 1]
        ngrams = words.unfold(1, n, 1)  # (rows, step - n + 1, n)
        last = words[:, step - n + 1 :].unsqueeze(1)  # (rows, 1, n - 1)
        repeats = (ngrams[:, :, : n - 1] == last).all(-1)
        counts = torch.zeros_like(lprobs).scatter_add_(1, ngrams[:, :, n - 1], repeats.to(lprobs))
        allowed = lprobs.masked_fill(counts > 0, -math.inf)
        has_choice = (allowed > -math.inf).any(dim=1, keepdim=True)
        return lprobs.copy_(torch.where(has_choice, allowed, lprobs))

    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def give_masks_one_type() -> None:
    """torch warns at each training that fairseq mixes boolean and additive masks."""
    import torch
    from fairseq.modules import multihead_attention
    from torch.nn import functional

    attend: Any = functional.multi_head_attention_forward
    names = [*inspect.signature(attend).parameters]
    padding, future = names.index("key_padding_mask"), names.index("attn_mask")

    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        mask, other = args[padding], args[future]
        if mask is not None and other is not None and mask.dtype == torch.bool != other.dtype:
            zeros = torch.zeros_like(mask, dtype=other.dtype)
            mask = zeros.masked_fill_(mask, -math.inf)
        return attend(*args[:padding], mask, *args[padding + 1 :], **kwargs)

    multihead_attention.F = Proxy(
        functional, multi_head_attention_forward=multi_head_attention_forward
    )


def check_constraints() -> None:
    """--constraints in fairseq-generate, or in a search that supports none, end in a traceback.

    So does a search with constraints that gets none.
    """
    from fairseq import options
    from fairseq.search import LexicallyConstrainedBeamSearch
    from fairseq.sequence_generator import SequenceGenerator

    @wrap(options, "get_generation_parser")
    def get_generation_parser(original: Any, interactive: bool = False, **kwargs: Any) -> Any:
        parser = original(interactive, **kwargs)
        parser.has_no_constraints = not interactive
        return parser

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, *args, **kwargs)
        parsed = result[0] if isinstance(result, tuple) else result  # with what it does not know
        if getattr(parser, "has_no_constraints", False) and parsed.constraints:
            todo = "use fairseq-interactive, which reads them after a tab in each line"
            raise UserError(
                "fairseq-generate has no constraints for its sentences", "--constraints", todo
            )
        return result

    @wrap(SequenceGenerator, "generate")
    def generate(original: Any, self: Any, models: Any, sample: Any, **arguments: Any) -> Any:
        given = arguments.get("constraints") is not None
        if given and not self.search.supports_constraints:
            todo = "leave out --sampling, --diverse-beam-groups and other kinds of search"
            raise UserError("this kind of search does not support constraints", "constraints", todo)
        if not given and isinstance(self.search, LexicallyConstrainedBeamSearch):
            todo = "give packed constraints: inference_step_args={'constraints': ...}"
            raise UserError("no constraints are given", "constraints", todo)
        return original(self, models, sample, **arguments)


def check_interactive() -> None:
    """fairseq-interactive ignores --prefix-size.

    It ends in a traceback at --score-reference and at --print-alignment soft.
    """
    from fairseq import options

    @wrap(options, "get_generation_parser")
    def get_generation_parser(original: Any, interactive: bool = False, **kwargs: Any) -> Any:
        parser = original(interactive, **kwargs)
        parser.is_interactive = interactive
        return parser

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(parser, *args, **kwargs)
        parsed = result[0] if isinstance(result, tuple) else result  # with what it does not know
        if not getattr(parser, "is_interactive", False):
            return result
        if parsed.print_alignment == "soft":
            todo = "give --print-alignment hard, or use fairseq-generate"
            raise UserError(
                "fairseq-interactive cannot print soft alignments", "--print-alignment soft", todo
            )
        for name in ("prefix_size", "score_reference"):
            if getattr(parsed, name):
                option = f"--{name.replace('_', '-')}"
                raise UserError("fairseq-interactive has no references", option, _GENERATE)
        return result


def check_min_len() -> None:
    """A --min-len above the longest translation that is allowed ends in a traceback."""
    from fairseq.sequence_generator import SequenceGenerator

    @wrap(SequenceGenerator, "generate")
    def generate(original: Any, self: Any, models: Any, sample: Any, **arguments: Any) -> Any:
        source = sample["net_input"].get("src_tokens")
        if source is not None and not self.match_source_len:
            longest = min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)
            if longest < self.min_len:
                problem = f"is {self.min_len}, but a translation here has at most {longest} tokens"
                raise UserError(problem, "min_len", "give a smaller min_len, or a larger max_len_b")
        return original(self, models, sample, **arguments)


def skip_overlong_lines() -> None:
    """fairseq-interactive ends at a line that is longer than the model's limit or --max-tokens.

    Here it skips the line and says so.
    """
    from fairseq import utils
    from fairseq.tasks import FairseqTask

    @wrap(FairseqTask, "get_interactive_tokens_and_lengths")
    def get_interactive_tokens_and_lengths(
        original: Any, self: Any, lines: list[str], encode_fn: Any
    ) -> Any:
        """Count the lines read so far, because fairseq numbers the lines of each buffer from 0."""
        self.lines_before_buffer = getattr(self, "lines_read", 0)
        self.lines_read = self.lines_before_buffer + len(lines)
        return original(self, lines, encode_fn)

    @wrap(FairseqTask, "get_batch_iterator")
    def get_batch_iterator(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(self, "lines_read"):  # fairseq-interactive names all arguments
            limits = (kwargs.get("max_positions"), kwargs.get("max_tokens"))
            kwargs["max_positions"] = utils.resolve_max_positions(*limits)
        return original(self, *args, **kwargs)

    @wrap(FairseqTask, "filter_indices_by_size")
    def filter_indices_by_size(
        original: Any, self: Any, indices: Any, dataset: Any, max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
    ) -> Any:  # fmt: skip
        if hasattr(self, "lines_read"):
            kept, ignored = dataset.filter_indices_by_size(indices, max_positions)
            for index in sorted(ignored):
                line, size = self.lines_before_buffer + index + 1, dataset.num_tokens(index)
                message = "line %d is not translated: it has %d tokens, and the limit is %s"
                logger.warning(message, line, size, max_positions)
            return kept
        return original(self, indices, dataset, max_positions, ignore_invalid_inputs)


def name_overlong_sentences() -> None:
    """A sentence of a data folder beyond the model's limit or --max-tokens ends in a traceback."""
    from fairseq.data import data_utils
    from fairseq.tasks import FairseqTask

    @wrap(FairseqTask, "filter_indices_by_size")
    def filter_indices_by_size(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            if not str(error).startswith("Size of sample"):
                raise
            problem = re.sub(r"np\.\w+\((\d+)\)", r"\1", str(error).partition(", skip")[0])
            raise UserError(problem, todo=_SKIP) from None

    @wrap(data_utils, "batch_by_size")
    def batch_by_size(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except AssertionError as error:
            if "max_tokens" not in str(error):
                raise
            problem = "a sentence has more tokens than a batch may have"
            raise UserError(problem, "--max-tokens", "give a larger number") from None
