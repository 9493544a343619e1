#!/usr/bin/env bash
# Heads behind gates (Voita et al. 2019, arXiv 1905.09418): a converged model loses heads, the more
# of them the more an open gate costs; what is left is fine-tuned, and beside it the same shape is
# trained from scratch.
#
#   bash recipes/head_pruning.sh DATASET    embedded or multi30k
#   --data DIR --source-lang S --target-lang T [--size small] [--train multi30k_small]
#                 instead of DATASET: any prepared folder, with a size and a training of configs/,
#                 which gives rate, dropout and batches
#   BASELINE=DIR  with finished runs model-concatenated_seed-N to start from, such as those of
#                 recipes/grouped_heads.sh in runs/grouped_heads_multi30k/trained (default:
#                 OUT/trained, where they are trained)
#   PENALTIES=... what an open gate costs, written as Python does (0.1, 1e-05); 0, which comes
#                 first, is the control, as long a training that keeps all heads
#                 (default: 0,0.003,0.01,0.03,0.1)
#   FROM=DIR      where Multi30k's raw text is (downloaded without it)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR       where everything goes (default: runs/head_pruning_DATASET)
#   DATA=DIR      a data folder that is there already (default: data/DATASET, made if need be)
#   SEEDS=1,2     of all trainings (default: 1)
#   CONLLU=FILE   trees of sentences in the source language; without them no role is syntactic
#   UPDATES=N, TUNE=N    of training and gates, and of fine-tuning, of multi30k and --data (default: 3400;
#                 half of UPDATES)
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 ordinary heads (OUT/trained). 2 gates (OUT/gated): in all attentions, and in the encoder
# alone with the decoder frozen; scored with gates rounded, as in the paper, and as they are. 3 prune
# (OUT/pruned): gates below one half count as closed. 4 fine-tune (OUT/tuned). 5 the same shapes from
# scratch, for as long as all of that (OUT/scratch).
# 6 heads kept against BLEU: a table of each of these folders (OUT/tables). 7 what the heads kept do:
# roles of the fine-tuned models' heads, and heads by site and layer (OUT/heads/SEED/all, encoder).
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=recipes/common.sh
source recipes/common.sh

choose_dataset "embedded multi30k" "$@"
count_updates
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/head_pruning_$DATASET}
SEEDS=${SEEDS:-1}
PENALTIES=${PENALTIES:-0,0.003,0.01,0.03,0.1}

# From scratch: as long as training, gates and fine-tuning.
vocabulary=4000 as_long=optimization.max_update=$((2 * UPDATES + TUNE))
[ "$experiments" != embedded ] || vocabulary=2000 as_long=optimization.max_epoch=20   # 8, 8 and 4

command -v fairseq-collab > /dev/null || activate
set_variables
describe_dataset

find_device

[ -n "${DATA:-}" ] || prepare "$DATASET" "$vocabulary" "$data"

seeds=common.seed="choice($SEEDS)"

echo "== 1 ordinary heads"
baseline=$(realpath -m "${BASELINE:-$OUT/trained}")
[ -n "${BASELINE:-}" ] || sweep "grouped_heads_$experiments" trained \
    model="choice(concatenated)" "$seeds" "${updates[@]}"
for seed in ${SEEDS//,/ }; do
    if [ ! -e "$baseline/model-concatenated_seed-$seed/score.json" ]; then
        echo "head_pruning: no finished run $baseline/model-concatenated_seed-$seed" >&2
        exit 1
    fi
done

echo "== 2 gates"
# shellcheck disable=SC2016  # Hydra expands it
from='checkpoint.finetune_from_model='$baseline'/model-concatenated_seed-${common.seed}/average.pt'
gates() {   # FOLDER PENALTIES OVERRIDES...
    sweep "gated_heads_$experiments" "gated/$1" "${third[@]}" "$from" \
        criterion.gate_penalty="choice($2)" "$seeds" "${updates[@]}" "${@:3}"
    local run
    for run in "$OUT/gated/$1"/*; do   # scored once more, with gates that are not rounded
        [ -e "$run/score.json" ] || continue
        fairseq-collab score "$run/average.pt" --data "$data" "${cpu[@]}" \
            --run "$OUT/gated/$1-mean/$(basename "$run")" --set gate_evaluation=mean \
            --set "common_eval.model_overrides=\"{'gate_evaluation': 'mean'}\"" || note $?
    done
}
encoder_penalties=${PENALTIES#0,}
gates all "$PENALTIES"
gates encoder "$encoder_penalties" model.gated_sites=encoder model.freeze=decoder

echo "== 3 prune"
pruned=$(realpath -m "$OUT/pruned")
prune() {   # SITES PENALTY SEED: what is left of a finished run
    local run=$OUT/gated/$1/gate_penalty-$2_seed-$3 file=$pruned/$3/$1-$2.pt
    mkdir -p "$pruned/$3"
    [ ! -e "$file" ] || return 0
    if [ -e "$run/score.json" ]; then
        fairseq-collab prune "$run/average.pt" --gates --round --output "$file" || note $?
    else
        echo "head_pruning: $run is not finished (write penalties as in its name): not pruned" >&2
        note 1
    fi
}
declare -A shapes   # names of the pruned models, by seed
for seed in ${SEEDS//,/ }; do
    for penalty in ${PENALTIES//,/ }; do
        prune all "$penalty" "$seed"
    done
    for penalty in ${encoder_penalties//,/ }; do
        prune encoder "$penalty" "$seed"
    done
    shapes[$seed]=$(python -m fairseq_collab.checkpoints.prune.shapes "$pruned/$seed")
done

# shaped EXPERIMENT KIND OVERRIDES...: trains every shape of every seed, see shapes.py.
shaped() {
    local seed
    for seed in ${SEEDS//,/ }; do
        sweep "$1_$experiments" "$2" "hydra.searchpath=['file://$pruned/$seed/$2']" \
            model="choice(${shapes[$seed]})" common.seed="choice($seed)" "${@:3}"
    done
}

echo "== 4 fine-tune"
shaped grouped_finetune tuned "${tuning[@]}" "${third[@]}" "${tuned_updates[@]}"

echo "== 5 from scratch"
shaped grouped_heads scratch "$as_long"

echo "== 6 heads kept against BLEU"
for folder in "$baseline" "$OUT"/{gated/{all,encoder}{,-mean},tuned,scratch}; do
    fairseq-collab table "$folder" --x none --against none --out "$OUT/tables/$(basename "$folder")" \
        --columns bleu,chrf,heads_by_site,parameters,train_updates || note $?
done

echo "== 7 roles of the heads kept"
for seed in ${SEEDS//,/ }; do
    heads=$OUT/heads/$seed
    mkdir -p "$heads"
    for name in ${shapes[$seed]//,/ }; do
        run=$OUT/tuned/model-${name}_seed-$seed
        [ -e "$run/score.json" ] && [ ! -e "$heads/$name/heads.json" ] || continue
        # A model with a layer that has lost all heads is refused, and stands as not analysed.
        fairseq-collab heads "$run/average.pt" "$data" --out "$heads/$name" --no-relevance \
            --examples 0 "${cpu[@]}" ${CONLLU:+--conllu "$CONLLU"} || [ $? -le 1 ] || exit 130
    done
    for sites in all encoder; do
        models=("$pruned/$seed/$sites"-*.pt)
        [ ! -e "${models[0]}" ] || fairseq-collab heads-kept "${models[@]}" --heads "$heads" \
            --out "$heads/$sites" || note $?
    done
done
exit "$failed"
