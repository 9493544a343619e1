#!/usr/bin/env bash
# IWSLT14 (TED talks), from download to BLEU: the base model as arXiv 2305.14380 trains it.
#
#   bash recipes/iwslt14.sh --dry-run                    every command, none of them run
#   bash recipes/iwslt14.sh --pair en-de --method collab --key-dim 128
#   bash recipes/iwslt14.sh --variant cased --out runs/iwslt14_cased
#
# Stages: 1 fetch, 2 extract, 3 clean, tokenise and segment, 4 binarise; 5 train, average, translate
# and score: a run in OUT/runs, of configs/iwslt14.yaml; 6 to 8 the scores again. Each is done whole
# or not at all; what is done is not done again, and `fairseq-collab table OUT/runs` shows the runs.
#
#   --pair S-T        de-en (default), en-de, it-en, en-it, en-fr
#   --variant V       fairseq (default): as fairseq's script; cased: ordinary cased text;
#                     paper3: hyphens split, to be compared with arXiv 2305.14380 only
#   --method M        vanilla (default), collab or concatenated; headsize (arXiv 2002.07028); grouped, and
#                     grouped_pruned, which goes on to vote, prune and fine-tune (arXiv 2305.14380);
#                     gated, from the vanilla model on, pruned and fine-tuned (arXiv 1905.09418)
#   --key-dim N       of collab and concatenated (default: 128)
#   --head-size N     of headsize (default: 128);  --gate-penalty X: of gated (default: 0.1)
#   --gpus N          1 (default); 0: the CPU
#   --vocabulary-threshold N, --glossaries REGEX (also several times): subword-nmt's (docs/corpora.md)
#   --from DIR        the archive is in DIR;  --mirror URL: it is at URL/NAME
#   --own-archives    it holds other text in the same layout: published hashes do not apply
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/iwslt14 of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            Hydra overrides of the run, such as optimization.max_update=1000
#                     (the smaller model of fairseq's own recipe: model.encoder_attention_heads=4
#                     model.encoder_ffn_embed_dim=1024)
#
# The paper states early stopping, beam 5 and no length penalty. Ours: 10 epochs of patience, 100 at
# most, the last 5 averaged.
set -euo pipefail
variant=fairseq pair=de-en usual_key_dim=128
papers_batches=1
out=runs/iwslt14
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=iwslt14 papers_methods=(headsize grouped grouped_pruned gated)
method=vanilla
parse_options "$@"
set_up

choose_model fork_collab fork_concatenated vanilla   # base, unlike transformer_iwslt_de_en
[ "$variant" != cased ] || own_overrides=(common_eval.post_process=sentencepiece)
all_stages iwslt14 iwslt14 "clean, tokenise, segment"
