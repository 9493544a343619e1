#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380): heads are trained in groups, each group
# elects one of its heads, the others are removed, and the result is fine-tuned.
#
#   bash recipes/grouped_heads.sh
#   FROM, DATA, OUT (default: runs/grouped_heads_multi30k), JOBS, SWEEP: see recipes/common.sh
#   SEEDS=1,2,3   of all trainings
#   UPDATES=N, TUNE=N    of the trainings and the fine-tunings (default: 3400; half of UPDATES)
#   COUNTS=4,2    how many of the 8 heads of each attention are kept, and how many groups are trained
#
# Stages: 1 train (OUT/trained): standard heads; heads in 4 and in 2 groups. 2 vote and prune
# (OUT/pruned): keep the elected heads, as in the paper (elected-no-refit), and with a refit of what stays
# (elected); of the standard heads an equal number at random, and by price, both with a refit.
# 3 fine-tune (OUT/tuned): these, and the standard models for as long. 4 tables of 1 and 3.
#
# Rerun it to resume it: finished runs are skipped.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

count_updates
OUT=${OUT:-runs/grouped_heads_multi30k}
SEEDS=${SEEDS:-1,2,3}
counts=${COUNTS:-4,2}   # a half and a quarter
[[ $counts =~ ^[1-7](,[1-7])*$ ]] ||
    reject "COUNTS is '$COUNTS'; it must be numbers from 1 to 7, joined by commas"
seeds=common.seed="choice($SEEDS)"

enter "$@"
pruned=$(real "$OUT/pruned")
trained=$(real "$OUT/trained")

echo "== 1 train"
train() { sweep grouped_heads_multi30k trained "$updates" "$@" "$seeds"; }
train model="choice(concatenated)"
train model="choice(grouped)" model.head_groups="choice($counts)"

echo "== 2 vote and prune"
for seed in ${SEEDS//,/ }; do
    mkdir -p "$pruned/$seed/model"
    whole=$trained/model-concatenated_seed-$seed/average.pt
    for count in ${counts//,/ }; do
        grouped=$trained/model-grouped_head_groups-${count}_seed-$seed/average.pt
        votes=$pruned/$seed/votes-$count.json
        [ -e "$votes" ] || fairseq-collab vote "$grouped" "$data" "${cpu[@]}" --out "$votes" || note $?
        take_out "$seed/model/elected-no-refit-$count" "$grouped" --votes "$votes" --no-refit
        take_out "$seed/model/elected-$count" "$grouped" --votes "$votes"
        take_out "$seed/model/random-$count" "$whole" --random "$seed" --keep "$count"
        take_out "$seed/model/priced-$count" "$whole" --keep "$count"
    done
done

echo "== 3 fine-tune"
for seed in ${SEEDS//,/ }; do
    tune_pruned pruned_finetune_multi30k tuned "$pruned/$seed" "$seed" "$tuned_updates"
done
# shellcheck disable=SC2016  # Hydra expands it
sweep pruned_finetune_multi30k tuned method='choice(standard)' "$seeds" "$tuned_updates" \
    "checkpoint.finetune_from_model=$trained"'/model-concatenated_seed-${common.seed}/average.pt'

echo "== 4 tables"
fairseq-collab table "$OUT/trained" --x none --against concatenated --out "$OUT/trained/table" --force || note $?
fairseq-collab table "$OUT/tuned" --x none --against standard --out "$OUT/tuned/table" --force || note $?
exit "$failed"
