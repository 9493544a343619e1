#!/usr/bin/env bash
# IWSLT14 (TED talks), from download to BLEU: the base model as arXiv 2305.14380 trains it.
#
#   bash recipes/iwslt14.sh --dry-run                    every command, none of them run
#   bash recipes/iwslt14.sh --pair en-de --method collab --key-dim 128
#   bash recipes/iwslt14.sh --variant paper3 --out runs/iwslt14_paper3
#
#   --pair S-T        de-en (default), en-de, it-en, en-it, en-fr
#   --variant V       fairseq (default): as fairseq's script; paper3: hyphens split, to be compared
#                     with arXiv 2305.14380 only
#   --method M        vanilla (default), collab or concatenated; headsize, grouped, grouped_pruned or gated
#   --key-dim N       of collab and concatenated (default: 128)
#   --gpus N          1 (default); 0: the CPU
#   --help            all options
#
# The smaller model of fairseq's own recipe: -- model.encoder_attention_heads=4 model.encoder_ffn_embed_dim=1024
#
# The paper states early stopping, beam 5 and no length penalty. Ours: 10 epochs of patience, 100 at
# most, the last 5 averaged.
set -euo pipefail
variant=fairseq pair=de-en usual_key_dim=128
papers_batches=1
out=runs/iwslt14
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=iwslt14
method=vanilla
parse_options "$@"
choose_model fork_collab fork_concatenated vanilla   # base, unlike transformer_iwslt_de_en
all_stages iwslt14 iwslt14
