"""Break guarded lines one by one and see that their tests notice: ``python tests/mutants.py``, or
``python tests/mutants.py latent search`` for the mutants with one of these words in what they
guard or in their file.

Each mutant is a copy of the package with one line changed; the tests named beside it must fail on
it (and pass without it, which the suite shows).  Prints one line a mutant and exits with 1 if one
survives.  Not part of the suite: it takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parent.parent
PACKAGES = ("fairseq_collab", "fairseq_compat", "collab_common", "data_prep")


class Mutant(NamedTuple):
    """``old`` becomes ``new`` in ``file``; ``tests`` (pytest arguments) must notice."""

    guards: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


PARITY = "tests/parity/test_attention_parity.py"
INCREMENTAL = "tests/parity/test_incremental.py"
BEAM_TESTS = "tests/unit/test_beams.py"
LINEAR_TESTS = "tests/parity/test_linear.py"
MODELS = "tests/parity/test_model_parity.py"
COUNTS = "tests/parity/test_counts.py"
SIGNATURE = "tests/unit/test_signature.py"
OPTIONS = "tests/unit/test_attention_options.py"
CONTRAST_TESTS, SEED_TESTS = "tests/unit/test_contrast.py", "tests/unit/test_seeds.py"
START_TESTS = "tests/unit/test_collaborative_start.py"
HEADS = "fairseq_collab/attention/heads.py"
SCORES = "fairseq_collab/attention/scores.py"
COLLABORATIVE = "fairseq_collab/attention/collaborative.py"
CONCATENATED = "fairseq_collab/attention/concatenated.py"
LAYERS = "fairseq_collab/models/layers.py"
DECODER = "fairseq_collab/models/decoder.py"
BEAMS = "fairseq_collab/attention/beams.py"
CACHE, INIT = "fairseq_collab/attention/cache.py", "fairseq_collab/attention/init.py"
LINEAR = "fairseq_collab/kernels/onednn.py"
INT8, INT8_TESTS = "fairseq_collab/kernels/int8.py", "tests/parity/test_int8.py"
DROPOUT, DROPOUT_TESTS = "fairseq_collab/kernels/dropout.py", "tests/parity/test_dropout.py"
REPARAMETRIZE = "fairseq_collab/convert"
SHARED_VALUES = "tests/parity/test_reparametrize_shared_values.py"
HEADSIZE = "fairseq_collab/models/concatenated.py"
SITE_OPTIONS = "fairseq_collab/models/site_options.py"
MODEL_OPTIONS = "tests/unit/test_model_options.py"
RUN, WORKER = "fairseq_collab/runs/run.py", "fairseq_collab/runs/worker.py"
RUNS = "tests/unit/test_run.py"
SEARCH_TESTS = "tests/parity/test_search.py"
CANDIDATES, SEARCH = "fairseq_collab/search/candidates.py", "fairseq_collab/search/beam.py"
SEAM, ASK = "fairseq_collab/search/seam.py", "fairseq_compat/search.py"
GATES, GATE_TESTS = "fairseq_collab/attention/gates.py", "tests/unit/test_gates.py"
GATED_PARITY = "tests/parity/test_gated_parity.py"
CHOICES, CHOICE_TESTS = (
    "fairseq_collab/prune/choices.py",
    "tests/unit/test_gate_choices.py",
)
GROUPS, GROUP_TESTS = "fairseq_collab/attention/groups.py", "tests/unit/test_groups.py"
RELEVANCE = "fairseq_collab/analysis/heads/relevance.py"
RELEVANCE_TESTS = "tests/unit/test_relevance.py"
IMPORTANCE = "fairseq_collab/analysis/heads/importance.py"
IMPORTANCE_TESTS = "tests/unit/test_importance.py"
HEAD_MEASURES = "fairseq_collab/analysis/heads/measures.py"
HEAD_MEASURE_TESTS = "tests/unit/test_heads_measures.py"
LATENT, LATENT_TESTS = "fairseq_collab/attention/latent.py", "tests/parity/test_latent.py"
VALUE_HEADS = "tests/parity/test_value_heads.py"
SIGNATURES = "fairseq_collab/attention/signature.py"
CROSS_CACHE = "tests/parity/test_cross_cache.py"
EXPORTS = "tests/unit/test_export.py"
APPLY_BPE = "data_prep/apply_bpe.py"

MUTANTS = [
    Mutant(
        "collaborative K = d, block mixing = fairseq",
        COLLABORATIVE,
        "self.scales() * self.mixing_speed * self.mixing",
        "self.mixing_speed * self.mixing",
        (PARITY, "-k", "limit_equals"),
    ),
    Mutant(
        "block mixing",
        COLLABORATIVE,
        "dims * num_heads // key_dim == heads",
        "dims % num_heads == heads",
        (PARITY, "-k", "limit_equals"),
    ),
    Mutant(
        "concatenated h = d/H = fairseq",
        CONCATENATED,
        "self.q_proj(x) * self.scaling",
        "self.q_proj(x)",
        (PARITY, "-k", "limit_equals"),
    ),
    Mutant(
        "initial weights are fairseq's",
        INIT,
        "gain=1 / math.sqrt(2) if same_dims else 1.0",
        "gain=1.0",
        (PARITY, "-k", "initial_weights"),
    ),
    Mutant(
        "formula of the fork (scale)",
        SCORES,
        'scored_size if scale == "key" else embed_dim / max(num_heads, 1)',
        "scored_size",
        (PARITY, "-k", "fork"),
    ),
    Mutant(
        "formula of the library (content bias)",
        COLLABORATIVE,
        "device=q.device) * self.scales()",
        "device=q.device)",
        (PARITY, "-k", "library"),
    ),
    Mutant(
        "a learnt scale starts as the fixed one",
        COLLABORATIVE,
        "self.scaling * self.log_scale.exp()",
        "self.scaling * self.log_scale",
        (START_TESTS, "-k", "learnt"),
    ),
    Mutant(
        "scores start as widely as ordinary heads'",
        COLLABORATIVE,
        "- lengths.log()",
        "",
        (START_TESTS, "-k", "variance"),
    ),
    Mutant(
        "a fast mixing starts the same",
        COLLABORATIVE,
        "self.mixing.div_(mixing_speed)",
        "self.mixing.div_(1)",
        (START_TESTS, "-k", "fast_mixing"),
    ),
    Mutant(
        "checkpoints without a later field are as before",
        "fairseq_collab/attention/signature.py",
        "known[f.name] = _before(f, known)",
        "known[f.name] = None",
        (SIGNATURE, "-k", "numbers_in_checkpoints"),
    ),
    Mutant(
        "a tie is no correct pair",
        "fairseq_collab/metrics/contrast.py",
        "right = [a.total > b.total for",
        "right = [a.total >= b.total for",
        (CONTRAST_TESTS, "-k", "ties"),
    ),
    Mutant(
        "pairs are counted by sentence",
        "fairseq_collab/metrics/contrast.py",
        "counts.setdefault(source, [0, 0])",
        "counts.setdefault(str(len(counts)), [0, 0])",
        (CONTRAST_TESTS, "-k", "ties"),
    ),
    Mutant(
        "accuracies on other pairs are not compared",
        "fairseq_collab/results/seeds.py",
        "if len(signatures) > 1:",
        "if False:",
        (SEED_TESTS, "-k", "all_have_them"),
    ),
    Mutant(
        "accuracies of former scores are not compared",
        "fairseq_collab/results/seeds.py",
        "return found if found and found.signature == recorded else None",
        "return found",
        (SEED_TESTS, "-k", "all_have_them"),
    ),
    Mutant(
        "seeds that are alike say nothing of others",
        "fairseq_collab/metrics/seeds.py",
        "return None if mean else 1.0",
        "return 0.0 if mean else 1.0",
        (SEED_TESTS, "-k", "alike"),
    ),
    Mutant(
        "accuracies are a family of tests",
        "fairseq_collab/results/seeds.py",
        "(one.metric in METRICS) == of_translations",
        "of_translations",
        (SEED_TESTS, "-k", "all_have_them"),
    ),
    Mutant(
        "all runs have what is drawn",
        "fairseq_collab/commands/table.py",
        "not all(figure.numbers",
        "not any(figure.numbers",
        ("tests/unit/test_table.py", "-k", "asked_for"),
    ),
    Mutant(
        "padding has no probability",
        "fairseq_collab/metrics/forced.py",
        ".double() * there",
        ".double()",
        (CONTRAST_TESTS, "-k", "sums_of_log"),
    ),
    Mutant(
        "COMET's weights execute nothing",
        "fairseq_collab/metrics/comet.py",
        "weights_only=True",
        "weights_only=False",
        ("tests/unit/test_comet.py", "-k", "weights_that_would_execute"),
    ),
    Mutant(
        "Holm's p never fall",
        "fairseq_collab/metrics/seeds.py",
        "largest = max(largest, min(1.0, (len(tested) - rank) * one))",
        "largest = min(1.0, (len(tested) - rank) * one)",
        (SEED_TESTS, "-k", "holm"),
    ),
    Mutant(
        "seeds are drawn, too",
        "fairseq_collab/metrics/seeds.py",
        "percentiles(np.take_along_axis(drawn, picks, 1).mean(1))",
        "percentiles(drawn.mean(1))",
        (SEED_TESTS, "-k", "that_differ"),
    ),
    Mutant(
        "seeds of configured shapes are refused",
        "fairseq_collab/results/rows.py",
        "chosen = all(shapes) and any(",
        "chosen = True or any(",
        ("tests/unit/test_table.py", "-k", "another_number_of_heads"),
    ),
    Mutant(
        "what seeds have chosen costs a mean",
        "fairseq_collab/results/rows.py",
        "return None if None in values else round(statistics.fmean(values))",
        "return values[0]",
        ("tests/unit/test_table.py", "-k", "each_has_chosen"),
    ),
    Mutant(
        "as many heads as another model has at these sites",
        "fairseq_collab/commands/prune.py",
        "sum(sum(like[site]) for site in sites)",
        "sum(map(sum, like.values()))",
        ("tests/unit/test_gate_choices.py", "-k", "another_model_has"),
    ),
    Mutant(
        "what fairseq leaves undefined is 0 when a model is made",
        "fairseq_compat/fairseq_fixes.py",
        "self._float_tensor.zero_()",
        "pass",
        ("tests/compat/test_fixes.py", "-k", "nothing_reads"),
    ),
    Mutant(
        "what fairseq leaves undefined is 0 when a checkpoint is read",
        "fairseq_compat/fairseq_fixes.py",
        "state_dict[key] = state_dict[key].new_zeros(1)",
        "pass",
        ("tests/compat/test_fixes.py", "-k", "nothing_reads"),
    ),
    Mutant(
        "no matrix library is measured that is not used",
        "fairseq_collab/bench/run.py",
        "return matrix_library() if usual else LIBRARIES[0]",
        "return matrix_library()",
        ("tests/unit/test_bench.py", "-k", "both_libraries"),
    ),
    Mutant(
        "a TPU is used where --tpu is given",
        "fairseq_compat/fairseq_fixes.py",
        'found.tpu = "--tpu" in (sys.argv if input_args is None else input_args)',
        "found.tpu = False",
        ("tests/compat/test_fixes.py", "-k", "number_format"),
    ),
    Mutant(
        "what is laid over a checkpoint's options is what was given",
        "fairseq_compat/fairseq_fixes.py",
        'if getattr(found, "bf16", False) and hasattr(found, "tpu"):',
        'if getattr(found, "bf16", False):',
        ("tests/compat/test_fixes.py", "-k", "number_format"),
    ),
    Mutant(
        "a table is made without torch",
        "collab_common/main.py",
        "collab_common.MODELS = command.plugin",
        "collab_common.MODELS = True",
        ("tests/cli/test_without_torch.py",),
    ),
    Mutant(
        "accuracies on other pairs do not stand in one table",
        "fairseq_collab/results/rows.py",
        'check_same(with_pairs, ["contrast_signature"]',
        "check_same(with_pairs, []",
        ("tests/unit/test_table.py", "-k", "contrast"),
    ),
    Mutant(
        "padding mask",
        SCORES,
        "mask = padding[:, None, None, :].to(torch.bool)",
        "return None",
        (PARITY, "-k", "limit_equals"),
    ),
    Mutant(
        "causal mask",
        SCORES,
        "scores = scores + mask",
        "scores = scores",
        (PARITY, "-k", "limit_equals"),
    ),
    Mutant(
        "one key for all heads in the cache",
        COLLABORATIVE,
        "return k.transpose(0, 1).unsqueeze(1)",
        "return k.transpose(0, 1).unsqueeze(1).expand(-1, self.num_heads, -1, -1)",
        (INCREMENTAL, "-k", "one_key"),
    ),
    Mutant(
        "self-attention cache follows its sentences",
        HEADS,
        "moved = beam_history(incremental_state).moved",
        "moved = None",
        (INCREMENTAL, "-k", "self_attention"),
    ),
    Mutant(
        "beams see what they descend from",
        BEAMS,
        "rows = self._mask.flatten(0, 1).index_select(0, new_order)",
        "rows = self._mask.flatten(0, 1)[: len(new_order)]",
        (INCREMENTAL, "-k", "self_attention"),
    ),
    Mutant(
        "sentences may change places",
        BEAMS,
        "return None if torch.equal(before, stay) else before",
        "return None if len(before) == sentences else before",
        (INCREMENTAL, "-k", "self_attention"),
    ),
    Mutant(
        "beams stay in their sentence",
        BEAMS,
        "if not bool((parents == before[:, None]).all()):",
        "if False:",
        (BEAM_TESTS,),
    ),
    Mutant(
        "a cache that grows keeps what it has",
        CACHE,
        "larger[:, :, : self._filled] = self.filled",
        "larger.zero_()",
        (INCREMENTAL, "-k", "self_attention"),
    ),
    Mutant(
        "gradients of oneDNN's product",
        LINEAR,
        "rows.sum(0) if for_bias",
        "rows.mean(0) if for_bias",
        (LINEAR_TESTS,),
    ),
    Mutant(
        "packed weights are those of now",
        LINEAR,
        "if version == self.weight._version and ",
        "if ",
        (LINEAR_TESTS,),
    ),
    Mutant(
        "oneDNN is for float32",
        LINEAR,
        "x.dtype == weight.dtype == torch.float32",
        "x.dtype == weight.dtype",
        (LINEAR_TESTS,),
    ),
    Mutant(
        "8 bits: a scale for each token",
        INT8,
        "x.abs().amax(dim=1, keepdim=True) / _LARGEST",
        "x.abs().amax() / _LARGEST * torch.ones(len(x), 1)",
        (INT8_TESTS, "-k", "rows or error_is"),
    ),
    Mutant(
        "8 bits only where nothing trains",
        INT8,
        "not torch.is_grad_enabled() and in_float32_on_cpu",
        "in_float32_on_cpu",
        (INT8_TESTS, "-k", "follows"),
    ),
    Mutant(
        "8 bits are of the weights of now",
        INT8,
        "if self.packed[2] != self.weight._version:",
        "if False:",
        (INT8_TESTS, "-k", "follows"),
    ),
    Mutant(
        "8 bits only in models in float32 on a CPU",
        INT8,
        "if not in_float32_on_cpu(module.weight, module.weight):",
        "if False:",
        (INT8_TESTS, "-k", "half_precision"),
    ),
    Mutant(
        "8 bits leave small maps alone",
        INT8,
        "if module.weight.numel() >= SMALLEST:",
        "if True:",
        (INT8_TESTS, "-k", "small_maps"),
    ),
    Mutant(
        "dropout keeps numbers at the rate",
        DROPOUT,
        "kept - LEVELS // 2",
        "kept - LEVELS // 4",
        (DROPOUT_TESTS,),
    ),
    Mutant(
        "what dropout keeps has the gradient of its scale",
        DROPOUT,
        "return (grad * keep).mul_(ctx.scale), None",
        "return grad * keep, None",
        (DROPOUT_TESTS,),
    ),
    Mutant(
        "all dropout of a model is ours",
        DROPOUT,
        "if type(module) is FairseqDropout:",
        "if False:",
        (DROPOUT_TESTS,),
    ),
    Mutant(
        "a sweep goes on whatever the order of its overrides",
        "fairseq_collab/runs/sweep.py",
        "return next(there, out / job.name)",
        "return out / job.name",
        ("tests/unit/test_run.py", "-k", "another_order"),
    ),
    Mutant(
        "8 bits are refused where they are slower",
        LINEAR,
        "elif not int8_instructions():",
        "elif False:",
        (INT8_TESTS, "-k", "slow_processor"),
    ),
    Mutant(
        "8 bits stand in the record",
        "fairseq_collab/runs/evaluate.py",
        "return INT8 if wanted and",
        "return INT8 if False and",
        (INT8_TESTS, "-k", "it_is_told"),
    ),
    Mutant(
        "engines: ours must translate as fairseq does",
        "fairseq_collab/bench/engines.py",
        "if name != STOCK and not name.endswith(INT8):",
        "if False:",
        ("tests/unit/test_bench.py", "-k", "engines"),
    ),
    Mutant(
        "engines: without CTranslate2 a line",
        "fairseq_collab/commands/bench.py",
        'check_packages("--engines", ("ctranslate2",))',
        "pass",
        ("tests/unit/test_bench.py", "-k", "engines"),
    ),
    Mutant(
        "attention weights on request only",
        DECODER,
        "wanted = self.aligns if self.training else self.need_attn",
        "wanted = True",
        (MODELS, "-k", "on_request or limit_equals"),
    ),
    Mutant(
        "cross-attention cache follows the sentences",
        CACHE,
        "self.mask = self.mask.index_select(0, sentences)",
        "pass",
        (INCREMENTAL, "-k", "cross_attention"),
    ),
    Mutant(
        "beams are folded and unfolded alike",
        BEAMS,
        "return x.unflatten(0, (steps, -1)).transpose(1, 2).flatten(1, 2)",
        "return x.unflatten(0, (steps, -1)).flatten(1, 2)",
        (INCREMENTAL, "-k", "beams"),
    ),
    Mutant(
        "padding of cached keys",
        BEAMS,
        'new = new.masked_fill(hidden.flatten(1).unsqueeze(1), float("-inf"))',
        "new = new.clone()",
        (INCREMENTAL, "-k", "self_attention"),
    ),
    Mutant(
        "beam search = fairseq's, with a shared encoder output",
        LAYERS,
        "if self.beams_share_output:\n            return encoder_out",
        "if self.beams_share_output:\n            return super().reorder_encoder_out("
        "encoder_out, new_order.flip(0))",
        (MODELS, "-k", "beam_search"),
    ),
    Mutant(
        "our attention is called in evaluation; parameter counts are real",
        LAYERS,
        "for name in self.COPIES:\n            delattr(self, name)",
        "pass",
        (COUNTS,),
    ),
    Mutant(
        "published parameter counts",
        COLLABORATIVE,
        'self.q_proj = linear(embed_dim, key_dim, bias == "projection")',
        "self.q_proj = linear(embed_dim, key_dim, False)",
        (COUNTS,),
    ),
    Mutant(
        "signatures are compared",
        "fairseq_collab/attention/signature.py",
        "if number != given:",
        "if False:",
        (SIGNATURE,),
    ),
    Mutant(
        "dictionaries are compared",
        "fairseq_collab/models/signature.py",
        "int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]",
        "int.from_bytes(hashlib.sha256(b'').digest()[:8]",
        (SIGNATURE,),
    ),
    Mutant(
        "stock checkpoints are recognised",
        "fairseq_collab/models/signature.py",
        'if strict and not any(name.endswith("signature") for name in state):',
        "if False:",
        (SIGNATURE,),
    ),
    Mutant(
        "values start alike at every key dimension",
        COLLABORATIVE,
        'not (reduced and value_init == "fork")',
        "not reduced",
        (OPTIONS,),
    ),
    Mutant(
        "head counts are a layer's own",
        SITE_OPTIONS,
        "default if numbers is None else numbers[kept[layer]]",
        "default if numbers is None else numbers[0]",
        (MODEL_OPTIONS, "-k", "head_counts"),
    ),
    Mutant(
        "the key dimension is dealt out to a layer's own heads",
        HEADSIZE,
        "return cfg.key_dim // heads",
        "return cfg.key_dim // cfg.encoder.attention_heads",
        (MODEL_OPTIONS, "-k", "dealt_out"),
    ),
    Mutant(
        "initial gain of the fork's baseline",
        CONCATENATED,
        "reduced = num_heads * qk_head_size != embed_dim",
        "reduced = False",
        (PARITY, "-k", "initial_gain"),
    ),
    Mutant(
        "multiply-adds inside fused kernels are counted",
        "fairseq_collab/metrics/cost.py",
        "with torch.no_grad(), plain, counter:",
        "with torch.no_grad(), counter:",
        (COUNTS, "-k", "multiply_adds"),
    ),
    Mutant(
        "the search's numbers are on the model's device",
        "fairseq_collab/search/candidates.py",
        "torch.arange(BLOCK, device=block.device)",
        "torch.arange(BLOCK)",
        ("tests/cli/test_pretended_gpu.py", "-k", "decoding"),
    ),
    Mutant(
        "a folder that was set aside by a killed process comes back",
        "collab_common/folder.py",
        "        former.rename(out)",
        "        pass",
        ("tests/unit/test_folder.py", "-k", "outlive"),
    ),
    Mutant(
        "one process a run",
        "collab_common/files.py",
        "fcntl.LOCK_EX | ",
        "fcntl.LOCK_SH | ",
        (RUNS, "-k", "kept_off"),
    ),
    Mutant(
        "a stopped sweep leaves nothing running",
        WORKER,
        "os.killpg(child.pid, signal.SIGTERM)",
        "child.terminate()",
        (RUNS, "-k", "nothing_running"),
    ),
    Mutant(
        "a training that outlived its sweep is not trained again",
        WORKER,
        "return bool(done) and",
        "return False and",
        (RUNS, "-k", "outlived"),
    ),
    Mutant(
        "a finished run is finished",
        RUN,
        "scored = self.score_file.exists()",
        "scored = not self.score_file",
        (RUNS, "-k", "verdicts"),
    ),
    Mutant(
        "diverged trainings are told apart",
        WORKER,
        'Failure("diverged" if',
        'Failure("failed" if',
        (RUNS, "-k", "why"),
    ),
    Mutant(
        "an earlier attempt's error is not this one's",
        WORKER,
        "file.seek(max(start, ",
        "file.seek(max(0, ",
        (RUNS, "-k", "why"),
    ),
    Mutant(
        "gates follow the hard-concrete distribution",
        GATES,
        "u = torch.empty_like(log_alpha).uniform_(EPSILON, 1 - EPSILON)",
        "u = torch.full_like(log_alpha, 0.5)",
        (GATE_TESTS, "-k", "closed_forms"),
    ),
    Mutant(
        "no chance in evaluation",
        GATES,
        "if self.training:\n            return sample(self.log_alpha)",
        "if True:\n            return sample(self.log_alpha)",
        (GATE_TESTS, "-k", "training_only"),
    ),
    Mutant(
        "gates go into the weights of what is pruned",
        GATES,
        "self.out_proj.weight.detach() * columns",
        "self.out_proj.weight.detach()",
        (GATED_PARITY, "-k", "between"),
    ),
    Mutant(
        "gates are rounded in evaluation",
        GATES,
        'if evaluation == "rounded":',
        "if False:",
        (GATE_TESTS, "-k", "rounded"),
    ),
    Mutant(
        "a layer without heads is its bias",
        HEADS,
        "return torch.zeros_like(query) + self.out_proj.bias, None",
        "return torch.zeros_like(query), None",
        ("tests/parity/test_prune_parity.py", "-k", "lose_all"),
    ),
    Mutant(
        "the penalty is for training",
        "fairseq_collab/criterions/with_head_gates.py",
        "if not model.training:",
        "if False:",
        (GATE_TESTS, "-k", "validation"),
    ),
    Mutant(
        "a layer keeps a head",
        CHOICES,
        "if number and len(left[site][layer]) > least:",
        "if number:",
        (CHOICE_TESTS, "-k", "importance or important"),
    ),
    Mutant(
        "layers are compared at length one",
        CHOICES,
        "comparable = normalised(measure)",
        "comparable = measure",
        (CHOICE_TESTS, "-k", "least_important"),
    ),
    Mutant(
        "undecided gates are told",
        "fairseq_collab/prune/choices.py",
        "if undecided and not rounding:",
        "if False:",
        (CHOICE_TESTS, "-k", "between"),
    ),
    Mutant(
        "what oneDNN has packed is not copied",
        "fairseq_collab/kernels/onednn.py",
        'if name != "packed"',
        "if name",
        ("tests/parity/test_linear.py", "-k", "copied"),
    ),
    Mutant(
        "a restored layer has nothing packed",
        "fairseq_collab/kernels/onednn.py",
        "module.packed = None",
        "pass",
        ("tests/parity/test_linear.py", "-k", "copied"),
    ),
    Mutant(
        "the last checkpoint may lie within the first epoch",
        "fairseq_collab/runs/trained.py",
        "if kept == 1 and last.exists():",
        "if False:",
        ("tests/unit/test_run.py", "-k", "within_the_first"),
    ),
    Mutant(
        "padding has no part in groups",
        GROUPS,
        "features = features * kept  # a product: masked_fill takes several times as long",
        "pass",
        (GROUP_TESTS, "-k", "padding"),
    ),
    Mutant(
        "the mean of centred features is that of all positions that count",
        GROUPS,
        "/ kept.sum() * kept",
        "/ kept.numel() * kept",
        (GROUP_TESTS, "-k", "centred"),
    ),
    Mutant(
        "heads that were trained with centred features are so compared",
        "fairseq_collab/models/head_groups.py",
        '"centred": cfg.group_centred',
        '"centred": False',
        ("tests/unit/test_grouped_heads.py", "-k", "centred"),
    ),
    Mutant(
        "votes of a batch count for the trained groups",
        "fairseq_collab/prune/votes.py",
        "membership = groups.match(membership, reference)",
        "pass",
        ("tests/unit/test_votes.py", "-k", "numbers_otherwise"),
    ),
    Mutant(
        "the longer head of a pair is elected",
        GROUPS,
        "return norms.masked_fill(~equals, -1).argmax(dim=1)",
        "return cosines.argmax(dim=1)",
        (GROUP_TESTS, "-k", "longest"),
    ),
    Mutant(
        "no group is empty",
        GROUPS,
        "return membership * (1 - leaves) + joins.transpose(1, 2)",
        "return membership",
        (GROUP_TESTS, "-k", "empty"),
    ),
    Mutant(
        "relevance is conserved, or refused",
        RELEVANCE,
        "if not deviation < TOLERANCE:",
        "if False:",
        (RELEVANCE_TESTS, "-k", "refused"),
    ),
    Mutant(
        "relevance passes attention's weights by",
        RELEVANCE,
        "of_heads = weights.detach().reshape(",
        "of_heads = weights.reshape(",
        (RELEVANCE_TESTS, "-k", "conserved"),
    ),
    Mutant(
        "relevance is of the most likely word",
        RELEVANCE,
        "decoder.output_layer(features).argmax(-1)",
        "decoder.output_layer(features).argmin(-1)",
        (RELEVANCE_TESTS, "-k", "most_likely"),
    ),
    Mutant(
        "weights and values share relevance as a sum",
        "fairseq_collab/analysis/heads/ratio.py",
        "found = some * b / away_from_zero(some + b)",
        "found = some * b / away_from_zero(some - b)",
        (RELEVANCE_TESTS, "-k", "as_sums_do"),
    ),
    Mutant(
        "the released rule takes derivatives of who scores",
        "fairseq_collab/analysis/heads/released.py",
        "(v.transpose(1, 2)[:, None] - of_v.sum(-1, keepdim=True))",
        "v.transpose(1, 2)[:, None]",
        (RELEVANCE_TESTS, "-k", "released_code_does"),
    ),
    Mutant(
        "one head is left out at a time",
        IMPORTANCE,
        "torch.ones(module.num_heads).diag().logical_not()",
        "torch.ones(module.num_heads).diag()",
        (IMPORTANCE_TESTS, "-k", "without_a_head"),
    ),
    Mutant(
        "importance is of single query positions",
        IMPORTANCE,
        "derivative.abs().sum((0, 1)), derivative.sum(0).abs().sum(0)",
        "derivative.sum((0, 1)).abs(), derivative.sum(0).abs().sum(0)",
        (IMPORTANCE_TESTS, "-k", "two_forms"),
    ),
    Mutant(
        "offsets are of words that have a neighbour there",
        HEAD_MEASURES,
        "words[..., None] & neighbours(words)",
        "words[..., None] | neighbours(words)",
        (HEAD_MEASURE_TESTS, "-k", "positional"),
    ),
    Mutant(
        "the end of sentence is no key of confidence",
        HEAD_MEASURES,
        "batch.weights[site][layer] * batch.key_words(site)[:, None, None, :]",
        "batch.weights[site][layer]",
        (HEAD_MEASURE_TESTS, "-k", "left_out_of_account"),
    ),
    Mutant(
        "perplexities are measured alike",
        "fairseq_collab/former/perplexity.py",
        'if model["measured"] != measured:',
        "if False:",
        ("tests/unit/test_former.py", "-k", "language_models"),
    ),
    Mutant(
        "a model's path is told by any of its spellings",
        "fairseq_collab/former/perplexity.py",
        "Path(word).resolve() == model.resolve()",
        "word == str(model)",
        ("tests/unit/test_former.py", "-k", "spellings"),
    ),
    Mutant(
        "every line is binarised",
        "data_prep/wikitext2.py",
        "!= len(lines):",
        "< 0:",
        ("tests/data/test_wikitext2.py", "-k", "otherwise"),
    ),
    Mutant(
        "what value biases lose goes into the output's",
        f"{REPARAMETRIZE}/grouped.py",
        "bo = heads.bo + (heads.outputs(heads.bv) -",
        "bo = heads.bo + (heads.outputs(heads.bv) * 0 -",
        (SHARED_VALUES, "-k", "equal_keys_and_values"),
    ),
    Mutant(
        "what latents lose of the mean input goes into the bias",
        f"{REPARAMETRIZE}/latent.py",
        "if part.input_mean is not None:",
        "if False:",
        (SHARED_VALUES, "-k", "mean_input"),
    ),
    Mutant(
        "keys and values weigh alike in a latent",
        f"{REPARAMETRIZE}/latent.py",
        "part.rows() / _length(part.rows())",
        "part.rows()",
        (SHARED_VALUES, "-k", "no_other_latent"),
    ),
    Mutant(
        "queries weigh keys by their second moment",
        f"{REPARAMETRIZE}/calibrate.py",
        "second = query + torch.outer(x, x)",
        "second = query",
        (SHARED_VALUES, "-k", "errors_are"),
    ),
    Mutant(
        "key/value heads divide the heads",
        f"{REPARAMETRIZE}/grouped.py",
        "if groups in even:",
        "if groups <= heads:",
        ("tests/unit/test_reparametrize_source.py", "-k", "refused"),
    ),
    Mutant(
        "attentions that were left alone are not distilled",
        f"{REPARAMETRIZE}/distil.py",
        "return module.latent_dim < module.kdim",
        "return True",
        ("tests/unit/test_reparametrize_calibrate.py", "-k", "no_others"),
    ),
    Mutant(
        "tied values are not shared",
        f"{REPARAMETRIZE}/target.py",
        'for name in ("q", "k", "v", "out")',
        'for name in ("q", "k")',
        ("tests/unit/test_reparametrize_source.py", "-k", "tied"),
    ),
    Mutant(
        "latent attention scales its scores",
        LATENT,
        "split_heads(self.q_proj(x) * self.scaling, self.num_heads)",
        "split_heads(self.q_proj(x), self.num_heads)",
        (LATENT_TESTS, "-k", "both_forms"),
    ),
    Mutant(
        "training takes the cheaper form of latent attention",
        LATENT,
        "<= 2 * self.latent_dim",
        "<= 0",
        (LATENT_TESTS, "-k", "cheaper_form"),
    ),
    Mutant(
        "keys and values of a latent have one input",
        LATENT,
        "if z is not y:",
        "if False:",
        (LATENT_TESTS, "-k", "refusals"),
    ),
    Mutant(
        "a latent is cached once",
        CACHE,
        "self.keys if values is keys else Slots(values)",
        "Slots(values)",
        (INCREMENTAL, "-k", "reported_cache"),
    ),
    Mutant(
        "decoding caches latents",
        LATENT,
        "if not decoding and self.qk_head_size",
        "if self.qk_head_size",
        (INCREMENTAL, "-k", "reported_cache"),
    ),
    Mutant(
        "a checkpoint without value heads has one a head",
        SIGNATURES,
        "kept = max(len(numbers), len(self.numbers()) - 1)",
        "kept = len(numbers)",
        (VALUE_HEADS, "-k", "other_values"),
    ),
    Mutant(
        "as many value heads as heads are not in the signature",
        SIGNATURES,
        "while kept and getattr(self, kept[-1].name) == _before(kept[-1], before):",
        "while False:",
        (VALUE_HEADS, "-k", "bit_for_bit"),
    ),
    Mutant(
        "heads share values evenly",
        "fairseq_collab/attention/checks.py",
        "if num_heads % groups:",
        "if False:",
        (VALUE_HEADS, "-k", "refusals"),
    ),
    Mutant(
        "cached values are those of the value heads",
        COLLABORATIVE,
        "self.value_heads * self.v_head_size\n\n",
        "self.embed_dim\n\n",
        (INCREMENTAL, "-k", "reported_cache"),
    ),
    Mutant(
        "the encoder's output follows its sentences",
        BEAMS,
        "self.source.select(self.moved)",
        "pass",
        (CROSS_CACHE, "-k", "one_copy"),
    ),
    Mutant(
        "weights that dropout has changed do not sum to one",
        "fairseq_collab/attention/memory.py",
        "if weights is not None:",
        "if False:",
        (CROSS_CACHE, "-k", "dropout"),
    ),
    Mutant(
        "who cannot decode from the encoder's output says so",
        "fairseq_collab/models/cross_cache.py",
        "if module.from_source and type(module)",
        "if False and type(module)",
        (CROSS_CACHE, "-k", "refusals"),
    ),
    Mutant(
        "exported gates are those of evaluation",
        "fairseq_collab/export/attention.py",
        "copy.deepcopy(attention).double().eval()",
        "copy.deepcopy(attention).double()",
        ("tests/parity/test_export_parity.py", "-k", "gates"),
    ),
    Mutant(
        "a content score that the keys hold needs no dimension of its own",
        "fairseq_collab/export/attention.py",
        "a, b = a[:, scored], b[:, scored]\n        a[-1] += bias",
        "a, b = a[:, scored], b[:, scored]",
        ("tests/parity/test_export_parity.py", "-k", "content_vector"),
    ),
    Mutant(
        "CTranslate2 is told of shared keys and values",
        "fairseq_collab/export/ctranslate2_format.py",
        "own, num_heads_kv=key_value_heads(one.module), head_dim=size",
        "own, head_dim=size",
        (EXPORTS, "-k", "same_scores and grouped_query"),
    ),
    Mutant(
        "a latent bounds the rank of keys",
        "fairseq_collab/analysis/rank/measure.py",
        "return module.latent_dim if isinstance(module, LatentAttention) else otherwise",
        "return otherwise",
        ("tests/unit/test_rank.py", "-k", "bounds_of_weights"),
    ),
    Mutant(
        "what hydra's store loads is a copy",
        "fairseq_compat/hydra_fixes.py",
        "return copy.deepcopy(self.made, memo)",
        "return self.made",
        ("tests/compat/test_fixes.py", "-k", "hydra_converts"),
    ),
    Mutant(
        "no units at all are not taken for no vocabulary",
        APPLY_BPE,
        "if not found:",
        "if False:",
        ("tests/data/test_bpe.py", "-k", "above_all_units"),
    ),
    Mutant(
        "a glossary's groups do not double the text",
        APPLY_BPE,
        "if pattern.groups:",
        "if False:",
        ("tests/data/test_bpe.py", "-k", "glossaries_that_are_none"),
    ),
    Mutant(
        "each side has its own vocabulary",
        APPLY_BPE,
        "codes, source, target, lang, options, jobs=self.jobs",
        "codes, source, target, self.languages[0], options, jobs=self.jobs",
        ("tests/data/test_prepare_bpe.py",),
    ),
    Mutant(
        "variants of one pair are refused for the other",
        "data_prep/wmt14.py",
        'if variant in GERMAN_ONLY and pair != "en-de":',
        "if False:",
        ("tests/data/test_wmt14.py", "-k", "german_alone"),
    ),
    Mutant(
        "a classifier's lost weights are not random ones",
        "fairseq_collab/adapters/glue/classifier.py",
        "    if lost:",
        "    if False:",
        ("tests/unit/test_glue.py", "-k", "weights_that_are_missing"),
    ),
    Mutant(
        "GLUE downloads nothing",
        "fairseq_collab/adapters/glue/classifier.py",
        'os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"',
        "pass",
        ("tests/unit/test_glue.py", "-k", "offline"),
    ),
    Mutant(
        "swapped heads are saved as such",
        "fairseq_collab/adapters/glue/classifier.py",
        "        setattr(self.model.config, KEY_DIM, key_dim)",
        "        pass",
        ("tests/unit/test_glue.py", "-k", "saved_is_loaded"),
    ),
    Mutant(
        "a run on GLUE that is there is not another one",
        "fairseq_collab/runs/glue.py",
        "        run.check_same(config)",
        "        pass",
        ("tests/unit/test_glue.py", "-k", "done_again"),
    ),
    Mutant(
        "roles are of the model that was pruned",
        "fairseq_collab/results/heads/kept.py",
        'if found.get("heads") != heads:',
        "if False:",
        ("tests/unit/test_heads_kept.py", "-k", "another_model"),
    ),
    Mutant(
        "a prepared folder has all files",
        "fairseq_collab/runs/prepared.py",
        "if not any((data / name).is_file() for name in names):",
        "if False:",
        ("tests/cli/test_recipe_prepared.py", "-k", "missing"),
    ),
    Mutant(
        "a word's place in its cluster is no padding",
        IMPORTANCE,
        'functional.cross_entropy(these, those, reduction="none")',
        'functional.cross_entropy(these, those, ignore_index=1, reduction="none")',
        (IMPORTANCE_TESTS, "-k", "adaptive"),
    ),
    Mutant(
        "an adaptive softmax has multiply-adds",
        "fairseq_collab/metrics/cost.py",
        "model.get_normalized_probs(output, log_probs=True)",
        "pass",
        (COUNTS, "-k", "language_model"),
    ),
    Mutant(
        "heads that get groups are as many as before",
        HEADSIZE,
        "attention.signature_of(saved)",
        "attention.describe().to_tensor()",
        ("tests/unit/test_grouped_heads.py", "-k", "found_anew"),
    ),
    Mutant(
        "published rows stand beside as many heads",
        "fairseq_collab/results/published.py",
        '("reduction", "head_ratio", "heads")',
        '("reduction", "head_ratio")',
        ("tests/unit/test_report_numbers.py", "-k", "same_ratio"),
    ),
    Mutant(
        "equal scores come in fairseq's order",
        CANDIDATES,
        "if not bool(tied.any()):",
        "if True:",
        (SEARCH_TESTS, "-k", "ties or candidates"),
    ),
    Mutant(
        "a tie at the end of the candidates is seen",
        CANDIDATES,
        "_best_by_blocks(log_probs, scores, number + 1)",
        "_best_by_blocks(log_probs, scores, number)",
        (SEARCH_TESTS, "-k", "ties or candidates"),
    ),
    Mutant(
        "bounds know their beam's score",
        CANDIDATES,
        "bounds = bounds + scores.unsqueeze(-1)",
        "pass",
        (SEARCH_TESTS, "-k", "candidates"),
    ),
    Mutant(
        "what is not a number is no candidate",
        CANDIDATES,
        "inside = _possible(inside).masked_fill_(",
        "inside = inside.masked_fill_(",
        (SEARCH_TESTS, "-k", "candidates"),
    ),
    Mutant(
        "the last block ends with the vocabulary",
        CANDIDATES,
        ".masked_fill_(beyond.flatten(1), IMPOSSIBLE)",
        "",
        (SEARCH_TESTS, "-k", "candidates"),
    ),
    Mutant(
        "padding is never chosen",
        SEARCH,
        "log_probs[:, options.pad] = IMPOSSIBLE",
        "pass",
        (SEARCH_TESTS, "-k", "finds or ties"),
    ),
    Mutant(
        "least length",
        SEARCH,
        "if step < options.min_len:",
        "if False:",
        (SEARCH_TESTS, "-k", "least"),
    ),
    Mutant(
        "greatest length",
        SEARCH,
        "if step >= self.max_len:",
        "if False:",
        (SEARCH_TESTS, "-k", "greatest"),
    ),
    Mutant(
        "a penalty of unknown words",
        SEARCH,
        "if options.unk_penalty:",
        "if False:",
        (SEARCH_TESTS, "-k", "unknown"),
    ),
    Mutant(
        "only the best beam candidates end",
        SEARCH,
        "ends[:, : self.beam].nonzero(as_tuple=True)",
        "ends.nonzero(as_tuple=True)",
        (SEARCH_TESTS, "-k", "finds"),
    ),
    Mutant(
        "a sentence has beam hypotheses",
        SEARCH,
        "if len(hypotheses) < self.beam:",
        "if True:",
        (SEARCH_TESTS, "-k", "finds"),
    ),
    Mutant(
        "what ends does not go on",
        SEARCH,
        "order = ends.byte().sort(dim=1, stable=True)",
        "order = ends.byte().mul(0).sort(dim=1, stable=True)",
        (SEARCH_TESTS, "-k", "finds"),
    ),
    Mutant(
        "output that is no number is refused",
        SEARCH,
        "if not bool((found.scores[:, 0] > IMPOSSIBLE).all()):",
        "if False:",
        (SEARCH_TESTS, "-k", "refused"),
    ),
    *(
        Mutant(
            f"left to fairseq: {reason}",
            SEAM,
            f'"{reason}": ',
            f'"{reason}": False and ',
            (SEARCH_TESTS, "-k", "left_to"),
        )
        for reason in (
            *("another generator", "several models", "another search", "prefixes or constraints"),
            *("a language model", "n-grams that may not repeat", "words that may not occur"),
            *("lengths as in the source", "no source words", "a vocabulary of 2 beam words"),
            "dropout",
        )
    ),
    Mutant(
        "left to fairseq: a least length above the greatest",
        SEAM,
        "if not found and",
        "if False and",
        (SEARCH_TESTS, "-k", "left_to"),
    ),
    Mutant(
        "the search can be switched off",
        ASK,
        'search is not None and choice() == "exact"',
        "search is not None and choice()",
        (SEARCH_TESTS, "-k", "of_a_task"),
    ),
    Mutant(
        "a wrong name of a search is told",
        ASK,
        "if asked not in SEARCHES:",
        "if False:",
        (SEARCH_TESTS, "-k", "of_a_task"),
    ),
    Mutant(
        "relevance of language models is refused",
        "fairseq_collab/commands/heads.py",
        "options.refuse(parser, args, OF_RELEVANCE, what)",
        "pass",
        ("tests/cli/test_language_models_commands.py", "-k", "heads_of"),
    ),
    Mutant(
        "options that no part of a benchmark reads are refused",
        "fairseq_collab/commands/bench.py",
        "options.refuse(parser, args, unread, reason)",
        "pass",
        ("tests/unit/test_bench.py", "-k", "usage"),
    ),
    Mutant(
        "a checkpoint of a language model leaves no run where its options are refused",
        "fairseq_collab/commands/score.py",
        "check_options(run, task_of(config), args)",
        "pass",
        ("tests/cli/test_score_checkpoint.py", "-k", "perplexities"),
    ),
    Mutant(
        "a checkpoint leaves no run where there is no test set",
        "fairseq_collab/commands/score.py",
        "check_test_set(run, config)",
        "pass",
        ("tests/cli/test_score_checkpoint.py", "-k", "another_checkpoint"),
    ),
    Mutant(
        "what others add to a record while COMET is at work stays",
        "fairseq_collab/commands/score.py",
        "now = run.score() or record",
        "now = record",
        ("tests/unit/test_comet.py", "-k", "meanwhile"),
    ),
    Mutant(
        "spectra are those of whole heads",
        "fairseq_collab/bench/factorisation.py",
        "one.module.q_proj.out_features != heads * head_size",
        "one.module.q_proj.out_features % head_size",
        ("tests/unit/test_bench.py", "-k", "spectra"),
    ),
    Mutant(
        "tables of folders of one name",
        "fairseq_collab/former/kept.py",
        "if names.count(folder.name) > 1:",
        "if False:",
        ("tests/unit/test_former.py", "-k", "one_name"),
    ),
    Mutant(
        "a budget of errors holds for all key dimensions, too, where biases are approximated",
        f"{REPARAMETRIZE}/work.py",
        "self.args.exportable and not good(place, most)",
        "False",
        ("tests/unit/test_reparametrize_budgets.py", "-k", "exportable"),
    ),
    Mutant(
        "bases hold what the start holds",
        f"{REPARAMETRIZE}/factorise.py",
        "_bases(problem, start_error)\n",
        "_bases(problem, relative_error(problem.slices, problem.block_start(key_dim)))\n",
        ("tests/unit/test_reparametrize_factorise.py", "-k", "better_than_blocks"),
    ),
    Mutant(
        "an alignment loss needs heads",
        DECODER,
        "if self.training and wanted and not self.has_aligning_heads():",
        "if False:",
        (MODELS, "-k", "without_heads"),
    ),
    Mutant(
        "a key dimension of other sites is warned of",
        "fairseq_collab/models/collaborative.py",
        "if site not in sites and key_dim:",
        "if False:",
        (MODEL_OPTIONS, "-k", "warned"),
    ),
    Mutant(
        "the text of a data folder that is a link",
        "data_prep/corpus_recipe.py",
        'os.path.relpath((out / "text").resolve(), folder)',
        '"../text"',
        ("tests/data/test_stages.py", "-k", "corpus"),
    ),
    Mutant(
        "a killed call's child writes into a file of its own",
        "fairseq_collab/runs/fairseq_output.py",
        "partial.unlink(missing_ok=True)",
        "pass",
        (RUNS, "-k", "left_writing"),
    ),
    *(
        Mutant(
            f"a cost that the {which} row lacks is not compared",
            "fairseq_collab/results/report/answer.py",
            f"if pick and {old}\n",
            f"if pick and {new}\n",
            ("tests/unit/test_report_page.py", "-k", "lacks"),
        )
        for which, old, new in (
            ("chosen", "pick[field] and best[field]", "best[field]"),
            ("best", "pick[field] and best[field]", "pick[field]"),
        )
    ),
]


def survives(mutant: Mutant) -> bool:
    """Whether the mutant's tests pass all the same."""
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            shutil.copytree(REPOSITORY / package, Path(folder, package))
        path = Path(folder, mutant.file)
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"mutants: {mutant.file} does not hold once: {mutant.old}")
        path.write_text(text.replace(mutant.old, mutant.new))
        # Run from the mutant's folder, which "-m" puts first on the path of imports.
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["-c", str(REPOSITORY / "pyproject.toml"), str(REPOSITORY / mutant.tests[0])]
        # Every interpreter imports fairseq_compat as it starts, when "-m" has not been read yet.
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(
            [*command, *mutant.tests[1:]],
            cwd=folder, env=environment, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode not in (0, 1):  # 1: some test failed
        raise SystemExit(f"mutants: pytest could not run:\n{done.stdout[-2000:]}")
    return done.returncode == 0


def main() -> int:
    survivors = 0
    words = sys.argv[1:] or [""]
    chosen = [one for one in MUTANTS if any(word in f"{one.guards} {one.file}" for word in words)]
    for mutant in chosen:
        alive = survives(mutant)
        survivors += alive
        print(f"{'SURVIVES' if alive else 'noticed '}  {mutant.guards}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
