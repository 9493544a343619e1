#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380) in language modelling: WikiText-2, a small
# model with adaptive inputs and outputs.
#
#   bash recipes/grouped_lm.sh
#   FROM=DIR      has train.txt, valid.txt and test.txt of WikiText-2 (wiki.train.tokens, ...)
#   DATA=DIR      the binarised folder (default: data/wikitext2; made if it is not there)
#   OUT=DIR       where everything goes (default: runs/grouped_lm_wikitext2)
#   SEED=N        of all trainings, and of heads by chance (default: 1)
#   UPDATES=N, TUNE=N    of the trainings and the fine-tunings (default: those of configs/experiment/)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   NORMALISATION=paper    the much stronger constraint of the paper's equation, and
#                 election by distance: so the pages of results were made (default: the weight of the
#                 paper's released code, and election by cosine)
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 train (OUT/trained): ordinary heads, heads in 4 and in 2 groups. 2 vote and prune
# (OUT/pruned, measured in OUT/kept): the head of each group that was elected, and as many by chance,
# of ordinary heads. 3 fine-tune (OUT/tuned): those, and the ordinary heads for as long.
# 4 perplexities of all, as a table (OUT/table).
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

data=${DATA:-data/wikitext2}
OUT=${OUT:-runs/grouped_lm_wikitext2}
SEED=${SEED:-1}
kept=(4 2)   # of 8 heads: a half and a quarter
size=16      # of a head

enter

[ -d "$data" ] || prepare wikitext2 "$data"

train=grouped_lm_wikitext2 tune=grouped_lm_finetune_wikitext2   # experiments of configs/
counts=$(IFS=,; echo "${kept[*]}")
seed=common.seed="choice($SEED)"

echo "== 1 train"
updates=(${UPDATES:+"optimization.max_update=$UPDATES"})
sweep "$train" trained method="choice(ordinary)" model=lm_concatenated "$seed" "${updates[@]}"
sweep "$train" trained method="choice(grouped)" model=lm_grouped "$constraint" \
    model.head_groups="choice($counts)" "$seed" "${updates[@]}"

echo "== 2 vote and prune"
pruned=$(real "$OUT/pruned")
trained=$(real "$OUT/trained")
mkdir -p "$pruned"
for count in "${kept[@]}"; do
    vote_and_prune "$count-$SEED" \
        "$trained/method-grouped_head_groups-${count}_seed-$SEED/average.pt" \
        "$trained/method-ordinary_seed-$SEED/average.pt" "$SEED" "$count"
    for method in voted random; do
        fairseq-collab score "$pruned/$method-$count-$SEED.pt" --data "$data" "${cpu[@]}" \
            --run "$OUT/kept/$method-$count-$SEED" --set "method=$method" \
            --set "heads_in_decoder=$count" || note $?
    done
done

echo "== 3 fine-tune"
updates=(${TUNE:+"optimization.max_update=$TUNE"})
from=checkpoint.finetune_from_model
sweep "$tune" tuned method="choice(ordinary-tuned)" "$seed" "${updates[@]}" \
    "$from=$trained/method-ordinary_seed-$SEED/average.pt"
for method in voted random; do
    sweep "$tune" tuned method="choice($method-tuned)" model.heads_in_decoder="choice($counts)" \
        model.head_size=$size "$seed" "${updates[@]}" \
        "$from=$pruned/$method-\${model.heads_in_decoder}-$SEED.pt"
done

echo "== 4 table"
fairseq-collab table "$OUT/trained" "$OUT/kept" "$OUT/tuned" --x none --against none \
    --columns perplexity.valid,perplexity.test,heads_by_site,parameters --out "$OUT/table"
exit "$failed"
