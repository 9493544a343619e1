#!/usr/bin/env bash
# WMT14 English-French, from download to BLEU: the base model as arXiv 2305.14380 trains it.
#
#   bash recipes/wmt14_en_fr.sh --dry-run                every command, none of them run
#   bash recipes/wmt14_en_fr.sh --method grouped_pruned
#   bash recipes/wmt14_en_fr.sh --data-only              the data only: 36 million pairs
#
#   --variant V       fairseq (default): as fairseq's prepare-wmt14en2fr.sh, every 1333rd training pair
#                     validates; wmt14: newstest2013 does
#   --method M        vanilla (default), collab or concatenated; headsize, grouped, grouped_pruned or gated
#   --key-dim N       of collab and concatenated (default: 128)
#   --gpus N          1 (default), 2, 4 or 8; the batch does not depend on it; 0: the CPU
#   --help            all options
#
# The paper states learning rate, dropout, early stopping, beam 4 and length penalty 0.6; batch and
# patience are its code's. Ours: 30 epochs at most, the last 5 averaged. The text takes some 100 GiB of
# disk and 12 of memory (estimated).
set -euo pipefail
variant=fairseq pair=en-fr usual_key_dim=128
papers_batches=8   # 1 GPU, --update-freq 8
out=runs/wmt14_en_fr
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=wmt14
method=vanilla
parse_options "$@"
only_pair en-fr
choose_model fork_collab fork_concatenated vanilla
all_stages wmt14_en_fr wmt14
