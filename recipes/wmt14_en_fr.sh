#!/usr/bin/env bash
# WMT14 English-French, from download to BLEU: the base model as arXiv 2305.14380 trains it.
#
#   bash recipes/wmt14_en_fr.sh --dry-run                every command, none of them run
#   bash recipes/wmt14_en_fr.sh --method grouped_pruned
#   bash recipes/wmt14_en_fr.sh --stop-stage 4           the data only
#
# Stages: 1 fetch, 2 extract, 3 clean, tokenise and segment, 4 binarise; 5 train, average, translate
# and score: a run in OUT/runs, of configs/wmt14_en_fr.yaml; 6 to 8 the scores again. Each is done
# whole or not at all; what is done is not done again, and `fairseq-collab table OUT/runs` shows the
# runs. The training text is 36 million pairs, eight times that of English-German.
#
#   --variant V       fairseq (default): as fairseq's prepare-wmt14en2fr.sh, every 1333rd training pair
#                     validates; wmt14: newstest2013 does
#   --method M        vanilla (default), collab or concatenated; headsize (arXiv 2002.07028); grouped, and
#                     grouped_pruned, which goes on to vote, prune and fine-tune (arXiv 2305.14380);
#                     gated, from the vanilla model on, pruned and fine-tuned (arXiv 1905.09418)
#   --key-dim N       of collab and concatenated (default: 128)
#   --head-size N     of headsize (default: 128);  --gate-penalty X: of gated (default: 0.1)
#   --gpus N          1 (default), 2, 4 or 8; the same batch whatever the number; 0: the CPU
#   --vocabulary-threshold N, --glossaries REGEX (also several times): subword-nmt's (docs/corpora.md)
#   --from DIR        the archives are in DIR;  --mirror URL: they are at URL/NAME
#   --own-archives    they hold other text in the same layout: published hashes do not apply
#   --stage N         start with this stage;  --stop-stage M: end with that one
#   --out DIR         where everything goes (default: runs/wmt14_en_fr of the repository)
#   --jobs N          processes that tokenise, segment and binarise (default: all cores)
#   --average N       checkpoints to average (default: 5)
#   --force           do the stages again, even where they are done
#   --dry-run         print the commands of the stages, run none
#   -- ...            Hydra overrides of the run, such as optimization.max_update=1000
#
# The paper states learning rate, dropout, early stopping, beam 4 and length penalty 0.6; batch and
# patience are its code's. Ours: 30 epochs at most, the last 5 averaged.
set -euo pipefail
variant=fairseq pair=en-fr usual_key_dim=128
papers_batches=8   # 1 GPU, --update-freq 8
out=runs/wmt14_en_fr
# shellcheck source=recipes/stages.sh
source "$(dirname "${BASH_SOURCE[0]}")/stages.sh"
corpus=wmt14 papers_methods=(headsize grouped grouped_pruned gated)
method=vanilla
needs_disk=100 needs_memory=12   # GiB; estimated from English-German's
parse_options "$@"
only_pair en-fr
set_up

choose_model fork_collab fork_concatenated vanilla
all_stages wmt14_en_fr wmt14 "clean, tokenise, segment"
