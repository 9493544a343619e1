#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380): heads are trained in groups, each group
# elects one of its heads, the others are removed, and the result is fine-tuned.
#
#   bash recipes/grouped_heads.sh DATASET    embedded or multi30k
#   --data DIR --source-lang S --target-lang T [--size small] [--train multi30k_small]
#                 instead of DATASET: any prepared folder, with a size and a training of configs/,
#                 which gives rate, dropout and batches
#   FROM=DIR      where the raw text is: Multi30k's (downloaded without it)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR       where everything goes (default: runs/grouped_heads_DATASET)
#   DATA=DIR      a data folder that is there already (default: data/DATASET, made if need be)
#   SEEDS=1,2,3   of all trainings
#   NORMALISATION=paper    the much stronger constraint of the paper's equation (default: the weight of the
#                 paper's released code)
#   UPDATES=N, TUNE=N    of the trainings and the fine-tunings of multi30k and --data (default: 3400;
#                 half of UPDATES)
#   COUNTS=4,2    how many of the 8 heads of each attention are kept, and how many groups are trained
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 train (OUT/trained): standard heads; heads in 4 and in 2 groups. 2 vote and prune
# (OUT/pruned): keep the elected heads; of the standard heads as many at random, and the most important.
# 3 fine-tune (OUT/tuned): these, and the standard models for as long. 4 tables of 1 and 3.
#
# Rerun it to resume it: finished runs are skipped.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "embedded multi30k" "$@"
count_updates
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/grouped_heads_$DATASET}
SEEDS=${SEEDS:-1,2,3}
IFS=, read -ra kept <<< "${COUNTS:-4,2}"   # a half and a quarter

for count in "${kept[@]}"; do
    [[ $count =~ ^[1-7]$ ]] ||
        refuse "COUNTS is '$COUNTS'; it must be numbers from 1 to 7, joined by commas"
done

enter

[ -n "${DATA:-}" ] || prepare "$DATASET" "$data"

standard=model="choice(concatenated)"
seeds=common.seed="choice($SEEDS)"
counts=$(IFS=,; echo "${kept[*]}")
few=model.heads_in_encoder="choice($counts)"

echo "== 1 train"
train() { sweep "grouped_heads_$experiments" trained "${updates[@]}" "$@"; }
train "$standard" "$seeds"
train model="choice(grouped)" "$constraint" model.head_groups="choice($counts)" "$seeds"

echo "== 2 vote and prune"
pruned=$(real "$OUT/pruned")
trained=$(real "$OUT/trained")
mkdir -p "$pruned"
for seed in ${SEEDS//,/ }; do
    whole=$trained/model-concatenated_seed-$seed/average.pt analysis=$pruned/heads-$seed
    importance "$whole" "$analysis" || note $?
    for count in "${kept[@]}"; do
        grouped=$trained/model-grouped_head_groups-${count}_seed-$seed/average.pt
        vote_and_prune "$count-$seed" "$grouped" "$whole" "$seed" "$count"
        take_out "important-$count-$seed" "$whole" --importance "$analysis/heads.json" --keep "$count"
    done
done

echo "== 3 fine-tune"
# Each run starts from the checkpoint of its own seed and number of heads.
from=checkpoint.finetune_from_model
# shellcheck disable=SC2016  # Hydra expands these
seed='${common.seed}' name='${model.heads_in_encoder}-${common.seed}'
tune() { sweep "grouped_finetune_$experiments" tuned "${tuning[@]}" "${third[@]}" "${tuned_updates[@]}" "$@"; }
tune model="choice(grouped_pruned)" "$few" "$seeds" "$from=$pruned/voted-$name.pt"
tune model="choice(grouped_random)" "$few" "$seeds" "$from=$pruned/random-$name.pt"
tune model="choice(grouped_important)" "$few" "$seeds" "$from=$pruned/important-$name.pt"
tune "$standard" model.head_size=null "$seeds" "$from=$trained/model-concatenated_seed-$seed/average.pt"

echo "== 4 tables"
for folder in trained tuned; do
    fairseq-collab table "$OUT/$folder" --x none --against concatenated --out "$OUT/$folder/table"
done
exit "$failed"
