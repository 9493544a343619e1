#!/usr/bin/env bash
# Heads behind gates (Voita et al. 2019, arXiv 1905.09418): a trained model loses heads, the more of
# them the more an open gate costs; the rest is fine-tuned. For comparison, an equal number of heads
# removed by price (`fairseq-collab prune`), with the number of updates of gates: from a trained model, and
# early in training (Behnke and Heafield 2020).
#
#   bash recipes/head_pruning.sh
#   FROM, DATA, OUT (default: runs/head_pruning_multi30k), JOBS, SWEEP: see recipes/common.sh
#   PENALTIES=... cost of an open gate, written as Python does (0.1, 1e-05); 0, which comes first, is the
#                 control with all heads (default: 0,0.003,0.01,0.03,0.1)
#   SEEDS=1,2     of all trainings (default: 1)
#   UPDATES=N, TUNE=N    of training, and each of gates and of fine-tuning (default: 3400; half of UPDATES)
#
# Stages: 1 train standard heads (OUT/trained). 2 train gates (OUT/gated). 3 prune (OUT/pruned): gates
# below one half count as closed; of the standard models an equal number of heads by price. 4 fine-tune the
# gated models (OUT/tuned), and the others for as long as gates and fine-tuning together (OUT/priced). 5 a
# tenth of all these updates with standard heads (OUT/begun), then an equal number of heads by price, and the
# other updates (OUT/early); all updates with standard heads (OUT/scratch). 6 tables of all of these (OUT/tables).
#
# Rerun it to resume it.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

count_updates
OUT=${OUT:-runs/head_pruning_multi30k}
SEEDS=${SEEDS:-1}
PENALTIES=${PENALTIES:-0,0.003,0.01,0.03,0.1}
seeds=common.seed="choice($SEEDS)"

enter "$@"
pruned=$(real "$OUT/pruned")

# by_price WAY RUN: of a run with all heads, the number of heads of the gates with `penalty` stays.
by_price() {
    mkdir -p "$pruned/$seed/$1/model"
    take_out "$seed/$1/model/$1-$penalty" "$2/average.pt" \
        --as-many-as "$pruned/$seed/gates/model/gates-$penalty.pt"
}

echo "== 1 train"
trained=$(real "$OUT/trained")
sweep grouped_heads_multi30k trained model="choice(concatenated)" "$seeds" "$updates"

echo "== 2 gates"
# shellcheck disable=SC2016  # Hydra expands it
sweep gated_heads_multi30k gated criterion.gate_penalty="choice($PENALTIES)" "$seeds" "$tuned_updates" \
    "checkpoint.finetune_from_model=$trained"'/model-concatenated_seed-${common.seed}/average.pt'

echo "== 3 prune"
for seed in ${SEEDS//,/ }; do
    mkdir -p "$pruned/$seed"/gates/model
    for penalty in ${PENALTIES//,/ }; do
        run=$OUT/gated/gate_penalty-${penalty}_seed-$seed whole=$trained/model-concatenated_seed-$seed
        if [ ! -e "$run/score.json" ]; then
            echo "head_pruning: $run is not finished (write penalties as in its name): not pruned" >&2
            note 1
            continue
        fi
        take_out "$seed/gates/model/gates-$penalty" "$run/average.pt" --gates --no-refit
        [ "$penalty" = 0 ] || by_price priced "$whole"
    done
done

echo "== 4 fine-tune"
# tune EXPERIMENT WAY FOLDER UPDATES: each model pruned in one way
tune() {
    local seed
    for seed in ${SEEDS//,/ }; do
        tune_pruned "$1_multi30k" "$3" "$pruned/$seed/$2" "$seed" "optimization.max_update=$4"
    done
}
tune pruned_finetune gates tuned "$TUNE"
tune pruned_finetune priced priced $((2 * TUNE))

echo "== 5 heads go early"
all=$((UPDATES + 2 * TUNE)) begin=$(((all + 9) / 10))
standard() {   # FOLDER UPDATES: the rate falls to 0 at the end of all updates
    sweep grouped_heads_multi30k "$1" model="choice(concatenated)" "$seeds" \
        "optimization.max_update=$2" "lr_scheduler.total_num_update=$all"
}
standard begun $begin
standard scratch $all
for seed in ${SEEDS//,/ }; do
    run=$OUT/begun/model-concatenated_seed-$seed
    for penalty in ${PENALTIES//,/ }; do
        [ -e "$run/score.json" ] && [ -e "$pruned/$seed/gates/model/gates-$penalty.pt" ] || continue
        [ "$penalty" = 0 ] || by_price early "$run"
    done
done
tune grouped_heads early early $((all - begin))

echo "== 6 tables"
for folder in "$OUT"/{trained,gated,tuned,priced,scratch,early}; do
    [ ! -d "$folder" ] || fairseq-collab table "$folder" --x none --against none \
        --out "$OUT/tables/$(basename "$folder")" --force \
        --columns bleu,chrf,heads_by_type.encoder,heads_by_type.decoder,heads_by_type.cross,parameters,train_updates || note $?
done
exit "$failed"
