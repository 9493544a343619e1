#!/usr/bin/env bash
# Tatoeba (short everyday sentences), from download to BLEU.
#
#   bash recipes/tatoeba.sh --dry-run                    every command, none of them run
#   bash recipes/tatoeba.sh --variant split --from DIR   train, valid, test (.en.gz, .de.gz) in DIR
#
#   --pair S-T        en-de (default), de-en
#   --variant V       opus (default): OPUS' release of 2023-04-12, split here; split: your own sets
#   --method M        collab (default) or concatenated
#   --key-dim N       (default: 64, a quarter of the model's 256)
#   --gpus N          1 (default); 0: the CPU
#   --help            all options
#
# No paper: the training is that of configs/train/tatoeba.yaml, which is not tuned.
set -euo pipefail
variant=opus pair=en-de usual_key_dim=64
papers_batches=1
out=runs/tatoeba text="check, split, segment"
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
parse_options "$@"
choose_model collab concatenated
all_stages tatoeba tatoeba
