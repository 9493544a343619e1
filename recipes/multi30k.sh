#!/usr/bin/env bash
# Multi30k (image captions), from download to BLEU: a small model, less than an hour on two cores.
#
#   bash recipes/multi30k.sh --dry-run                   every command, none of them run
#   bash recipes/multi30k.sh --gpus 0 --method collab --key-dim 64
#
# Stages: 1 fetch, 2 extract, 3 check and segment, 4 binarise; 5 train, average, translate and
# score: a run in OUT/runs, of configs/multi30k.yaml; 6 to 8 the scores again. Each is done whole or
# not at all; what is done is not done again, and `fairseq-collab table OUT/runs` shows the runs.
#
#   --pair S-T        en-de (default), de-en, en-fr, fr-en
#   --variant V       test2016 (default), test2017: the test set
#   --method M        collab (default) or concatenated
#   --key-dim N       (default: 64, a quarter of the model's 256)
#   --gpus N          1 (default); 0: the CPU
#   --from DIR        train.en.gz, ... are in DIR;  --mirror URL: they are at URL/NAME
#   --own-archives    they hold other text in the same layout: published hashes do not apply
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/multi30k of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            Hydra overrides of the run, such as optimization.max_update=1000
#
# No paper: sizes and training are those of results/multi30k.md.
set -euo pipefail
variant=test2016 pair=en-de usual_key_dim=64
papers_batches=1
out=runs/multi30k
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
parse_options "$@"
set_up

choose_model collab concatenated
all_stages multi30k multi30k_recipe "check, segment"
