#!/usr/bin/env bash
# WMT14 English-German, from download to BLEU: the base model as arXiv 2006.16362 trains it.
#
#   bash recipes/wmt14_en_de.sh --dry-run                every command, none of them run
#   bash recipes/wmt14_en_de.sh --variant google --from DIR --method collab --key-dim 128
#   bash recipes/wmt14_en_de.sh --stop-stage 4           the data only
#
# Stages: 1 fetch, 2 extract, 3 clean, tokenise and segment, 4 binarise; 5 train, average, translate
# and score: a run in OUT/runs, of configs/wmt14.yaml; 6 to 8 the scores again. Each is done whole
# or not at all; what is done is not done again, and `fairseq-collab table OUT/runs` shows the runs.
#
#   --variant V       wmt14 (default): newstest2013 validates; fairseq: what fairseq's script makes
#                     with --icml17, fairseq_nc12: without; google: Google's ready-made wmt16_en_de,
#                     which the paper uses (not to be had without a browser: give --from)
#   --method M        collab (default), concatenated or vanilla; headsize (arXiv 2002.07028); grouped, and
#                     grouped_pruned, which goes on to vote, prune and fine-tune (arXiv 2305.14380);
#                     gated, from the vanilla model on, pruned and fine-tuned (arXiv 1905.09418)
#   --key-dim N       of collab and concatenated (default: 128)
#   --head-size N     of headsize (default: 128);  --gate-penalty X: of gated (default: 0.1)
#   --gpus N          1 (default), 2, 4 or 8; the paper's batch whatever the number; 0: the CPU
#   --vocabulary-threshold N, --glossaries REGEX (also several times): subword-nmt's (docs/corpora.md)
#   --from DIR        the archives are in DIR;  --mirror URL: they are at URL/NAME
#   --own-archives    they hold other text in the same layout: published hashes do not apply
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/wmt14_en_de of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            Hydra overrides of the run, such as optimization.max_update=1000
#
# The paper's code does not state the number of updates, averaging, beam and length penalty:
# 100,000, the last 5 epochs, 4 and 0.6 are ours.
set -euo pipefail
variant=wmt14 pair=en-de usual_key_dim=128
papers_batches=8   # 4 GPUs, --update-freq 2
out=runs/wmt14_en_de
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=wmt14 papers_methods=(headsize grouped grouped_pruned gated)
needs_disk=20 needs_memory=4   # GiB
parse_options "$@"
only_pair en-de
set_up

choose_model fork_collab fork_concatenated vanilla
all_stages wmt14 wmt14 "clean, tokenise, segment"
