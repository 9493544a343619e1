#!/usr/bin/env bash
# WMT14 English-German, from download to BLEU: the base model as arXiv 2006.16362 trains it.
#
#   bash recipes/wmt14_en_de.sh --dry-run                every command, none of them run
#   bash recipes/wmt14_en_de.sh --variant google --from DIR --method collab --key-dim 128
#   bash recipes/wmt14_en_de.sh --stop-stage 4           the data only
#
# Stages: 1 fetch, 2 extract, 3 clean, tokenise and segment, 4 binarise, 5 train, 6 average,
# 7 translate, 8 score. Each is done whole or not at all; what is done is not done again.
#
#   --variant V       wmt14 (default): newstest2013 validates; fairseq: what fairseq's script makes
#                     with --icml17; google: Google's ready-made wmt16_en_de, which the paper uses
#                     (not to be had without a browser: give --from)
#   --method M        collab (default), concatenated (the paper's baseline) or vanilla
#   --key-dim N       512, 256, 128 or 64 in the paper (default: 128)
#   --gpus N          1 (default), 2, 4 or 8; the paper's batch whatever the number; 0: the CPU
#   --from DIR        the archives are in DIR;  --mirror URL: they are at URL/NAME
#   --own-archives    they hold other text in the same layout: published hashes do not apply
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/wmt14_en_de of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            whatever follows goes to fairseq-train
#
# The paper's code does not state the number of updates, averaging, beam and length penalty:
# 100,000, the last 5 epochs, 4 and 0.6 are ours.
set -euo pipefail
variant=wmt14 pair=en-de averaged=5 usual_key_dim=128
papers_batches=8   # 4 GPUs, --update-freq 2
out=runs/wmt14_en_de
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
parse_options "$@"
set_up

batches
[ "$gpus" -eq 0 ] || hardware+=(--fp16)   # fairseq has no half precision on a CPU
model wmt_en_de
training=(
    --share-all-embeddings
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --weight-decay 0.0
    --lr 7e-4 --stop-min-lr 1e-9 --lr-scheduler inverse_sqrt
    --warmup-updates 4000 --warmup-init-lr 1e-7 --dropout 0.1
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --max-tokens 3584 --max-update 100000 --seed 1
)
generation=(--beam 4 --lenpen 0.6 --max-tokens 3584)
subwords=subword_nmt

all_stages wmt14 "clean, tokenise, segment"
