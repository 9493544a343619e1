#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380): heads are trained in groups, each group
# votes for one of its heads, the others are taken out, and what is left is fine-tuned.
#
#   bash recipes/grouped_heads.sh DATASET    embedded, multi30k or mixed
#   --data DIR --source-lang S --target-lang T [--size small] [--train multi30k_small]
#                 instead of DATASET: any prepared folder, with a size and a training of configs/,
#                 which gives rate, dropout and batches
#   FROM=DIR      where the raw text is: Multi30k's (downloaded without it), or the mixed corpus'
#                 (see common.sh)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR       where everything goes (default: runs/grouped_heads_DATASET)
#   DATA=DIR      a data folder that is there already (default: data/DATASET, made if need be)
#   SEEDS=1,2,3   of all trainings
#   CORE=yes      without smaller models and heads in 8 groups: 14 trainings a seed, not 20
#   STAGES=1,1+2,2    in which of training (1) and fine-tuning (2) the constraint is, several to compare
#                 (default: 1, as in the paper, whose table 3 has the others)
#   NORMALISATION=paper ELECTION=released    the much stronger constraint of the paper's equation, and
#                 election by distance (default: the weight of the paper's released code, and cosine)
#   UPDATES=N, TUNE=N    of the trainings and the fine-tunings of multi30k and --data (default: 3400;
#                 half of UPDATES)
#   COUNTS=4,2    how many of the 8 heads of each attention stay, and groups there are; fewest last
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 train (OUT/trained): ordinary heads; heads in 4 and in 2 groups, by the paper's constraint
# and by that of centred features; in 8, which is the disagreement regularisation of Li et al. 2018;
# ordinary heads in smaller models. 2 vote and prune (OUT/pruned): the heads of the groups that were
# elected; as many of ordinary heads by chance, and the most important ones; of the fewest elected heads
# also a model with half of the feed-forward units, the paper's LITE. 3 fine-tune (OUT/tuned): those,
# and the ordinary models for as long. 4 tables of 1 and 3.
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "embedded multi30k mixed" "$@"
count_updates
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/grouped_heads_$DATASET}
SEEDS=${SEEDS:-1,2,3}
CORE=${CORE:-no}
STAGES=${STAGES:-1}
heads=8
IFS=, read -ra kept <<< "${COUNTS:-4,2}"   # a half and a quarter
fewest=${kept[${#kept[@]} - 1]}   # what LITE models keep, with half of the feed-forward units

width=96 units=128
[ "$experiments" != embedded ] || width=48 units=64
[[ $CORE =~ ^(yes|no)$ ]] || refuse "CORE is '$CORE'; it must be yes or no"
for count in "${kept[@]}"; do
    [[ $count =~ ^[1-7]$ ]] ||
        refuse "COUNTS is '$COUNTS'; it must be numbers from 1 to 7, joined by commas"
done
for stages in ${STAGES//,/ }; do
    [[ $stages =~ ^(1|2|1\+2)$ ]] ||
        refuse "STAGES is '$STAGES'; it must be some of 1, 2 and 1+2, joined by commas"
done

enter

# Ordinary heads in smaller models, with about the parameters, outside the embeddings, that a quarter
# of the heads leaves: fewer layers, or narrower ones.
shallow=(model.encoder_layers="choice(1)")
narrow=(model.encoder_embed_dim="choice($width)" model.encoder_ffn_embed_dim=$((2 * width)))

[ -n "${DATA:-}" ] || prepare "$DATASET" "$data"

ordinary=model="choice(concatenated)"
grouped=(model="choice(grouped)" "$constraint")
centred=(model="choice(grouped_centred)" "$constraint")
lite=model="choice(grouped_lite)"
seeds=common.seed="choice($SEEDS)"
counts=$(IFS=,; echo "${kept[*]}")
few=model.heads_in_encoder="choice($counts)"

echo "== 1 train"
train() { sweep "grouped_heads_$experiments" trained "${updates[@]}" "$@"; }
train "$ordinary" "$seeds"
train "${grouped[@]}" model.head_groups="choice($counts)" "$seeds"
train "${centred[@]}" model.head_groups="choice($counts)" "$seeds"
if [ "$CORE" = no ]; then
    train "${grouped[@]}" model.head_groups="choice($heads)" "$seeds"
    train "$lite" "${shallow[@]}" "$seeds"
    train "$lite" "${narrow[@]}" "$seeds"
fi

echo "== 2 vote and prune"
pruned=$(real "$OUT/pruned")
trained=$(real "$OUT/trained")
mkdir -p "$pruned"
for seed in ${SEEDS//,/ }; do
    ordinary_model=$trained/model-concatenated_seed-$seed/average.pt analysis=$pruned/heads-$seed
    importance "$ordinary_model" "$analysis" || note $?
    for count in "${kept[@]}"; do
        name=$count-$seed of=head_groups-${count}_seed-$seed/average.pt
        vote_and_prune "$name" "$trained/model-grouped_$of" "$ordinary_model" "$seed" "$count"
        if [[ ,$STAGES, = *,2,* ]]; then
            elect "ordinary-$name" "votes-ordinary-$name" "$ordinary_model" --groups "$count"
        fi
        elect "centred-$name" "votes-centred-$name" "$trained/model-grouped_centred_$of"
        take_out "important-$name" "$ordinary_model" --importance "$analysis/heads.json" --keep "$count"
    done
    name=$fewest-$seed
    [ "$CORE" = yes ] || take_out "lite-$name" \
        "$trained/model-grouped_head_groups-${fewest}_seed-$seed/average.pt" \
        --votes "$pruned/votes-$name.json" --ffn-dim "$units"
done

echo "== 3 fine-tune"
# Each run takes the checkpoint of its own seed and number of heads.
from=checkpoint.finetune_from_model
# shellcheck disable=SC2016  # Hydra expands these
seed='${common.seed}' name='${model.heads_in_encoder}-${common.seed}'
tune() { sweep "grouped_finetune_$experiments" tuned "${tuning[@]}" "${third[@]}" "${tuned_updates[@]}" "$@"; }
tune model="choice(grouped_pruned)" "$few" "$seeds" "$from=$pruned/voted-$name.pt"
# With the constraint: each group is one head then, and all that is left of it pushes heads apart.
if [[ ,$STAGES, = *,1+2,* ]]; then
    tune model="choice(grouped_stages_1_2)" "$constraint" "$few" "$seeds" "$from=$pruned/voted-$name.pt"
fi
if [[ ,$STAGES, = *,2,* ]]; then
    tune model="choice(grouped_stage_2)" "$constraint" "$few" "$seeds" "$from=$pruned/ordinary-$name.pt"
fi
tune model="choice(grouped_random)" "$few" "$seeds" "$from=$pruned/random-$name.pt"
tune model="choice(grouped_important)" "$few" "$seeds" "$from=$pruned/important-$name.pt"
tune model="choice(grouped_centred_pruned)" "$few" "$seeds" "$from=$pruned/centred-$name.pt"
if [ "$CORE" = no ]; then
    tune model="choice(grouped_lite_pruned)" model.encoder_ffn_embed_dim="$units" \
        model.heads_in_encoder="choice($fewest)" "$seeds" "$from=$pruned/lite-$name.pt"
fi
tune_whole() {   # NAME OVERRIDES...
    tune "${@:2}" model.head_size=null "$seeds" \
        "$from=$trained/model-$1_seed-$seed/average.pt"
}
tune_whole concatenated "$ordinary"
if [ "$CORE" = no ]; then
    tune_whole grouped_lite_encoder_layers-1 "$lite" "${shallow[@]}"
    tune_whole "grouped_lite_encoder_embed_dim-$width" "$lite" "${narrow[@]}"
fi

echo "== 4 tables"
for folder in trained tuned; do
    tables "$experiments" "$OUT/$folder" --x none --against concatenated
done
exit "$failed"
