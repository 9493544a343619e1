#!/usr/bin/env bash
# Tatoeba (short everyday sentences), from download to BLEU.
#
#   bash recipes/tatoeba.sh --dry-run                    every command, none of them run
#   bash recipes/tatoeba.sh --variant split --from DIR   train, valid, test (.en.gz, .de.gz) in DIR
#
# Stages: 1 fetch, 2 extract, 3 check, split and segment, 4 binarise; 5 train, average, translate
# and score: a run in OUT/runs, of configs/tatoeba.yaml; 6 to 8 the scores again. Each is done whole
# or not at all; what is done is not done again, and `fairseq-collab table OUT/runs` shows the runs.
#
#   --pair S-T        en-de (default), de-en
#   --variant V       opus (default): OPUS' release of 2023-04-12, split here; split: your own sets
#   --method M        collab (default) or concatenated
#   --key-dim N       (default: 64, a quarter of the model's 256)
#   --gpus N          1 (default); 0: the CPU
#   --from DIR        the archives are in DIR;  --mirror URL: they are at URL/NAME
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/tatoeba of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            Hydra overrides of the run, such as optimization.max_update=1000
#
# No paper: the training is that of configs/train/tatoeba.yaml, which is not tuned.
set -euo pipefail
variant=opus pair=en-de usual_key_dim=64
papers_batches=1
out=runs/tatoeba
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
parse_options "$@"
set_up

choose_model collab concatenated
all_stages tatoeba tatoeba "check, split, segment"
