#!/usr/bin/env bash
# Multi30k (image captions), from download to BLEU: a small model, less than an hour on two cores.
#
#   bash recipes/multi30k.sh --dry-run                   every command, none of them run
#   bash recipes/multi30k.sh --gpus 0 --method collab --key-dim 64
#
#   --pair S-T        en-de (default), de-en, en-fr, fr-en
#   --variant V       test2016 (default), test2017: the test set
#   --method M        collab (default) or concatenated
#   --key-dim N       (default: 64, a quarter of the model's 256)
#   --gpus N          1 (default); 0: the CPU
#   --from DIR        train.en.gz, ... are in DIR
#   --help            all options
#
# No paper: the model of results/reparametrize_multi30k.md.
set -euo pipefail
variant=test2016 pair=en-de usual_key_dim=64
papers_batches=1
out=runs/multi30k text="check, segment"
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
parse_options "$@"
choose_model collab concatenated
all_stages multi30k multi30k_recipe
