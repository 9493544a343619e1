#!/usr/bin/env bash
# WMT14 English-German, from download to BLEU: the base model as arXiv 2006.16362 trains it.
#
#   bash recipes/wmt14_en_de.sh --dry-run                every command, none of them run
#   bash recipes/wmt14_en_de.sh --variant google --from DIR --method collab --key-dim 128
#   bash recipes/wmt14_en_de.sh --data-only              the data only
#
#   --variant V       wmt14 (default): newstest2013 validates; fairseq: what fairseq's script makes
#                     with --icml17; google: Google's ready-made wmt16_en_de, which the paper uses
#                     (not to be had without a browser: give --from)
#   --method M        collab (default), concatenated or vanilla; headsize, grouped, grouped_pruned or gated
#   --key-dim N       of collab and concatenated (default: 128)
#   --gpus N          1 (default), 2, 4 or 8; the paper's batch whatever the number; 0: the CPU
#   --help            all options
#
# The paper's code does not state the number of updates, averaging, beam and length penalty:
# 100,000, the last 5 epochs, 4 and 0.6 are ours. The text takes 20 GiB of disk and 4 of memory.
set -euo pipefail
variant=wmt14 pair=en-de usual_key_dim=128
papers_batches=8   # 4 GPUs, --update-freq 2
out=runs/wmt14_en_de
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=wmt14
parse_options "$@"
only_pair en-de
choose_model fork_collab fork_concatenated vanilla
all_stages wmt14 wmt14
