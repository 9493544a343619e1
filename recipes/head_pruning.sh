#!/usr/bin/env bash
# Heads behind gates (Voita et al. 2019, arXiv 1905.09418): a converged model loses heads, the more
# of them the more an open gate costs; what is left is fine-tuned. Beside it, with as many updates and
# as many heads: those that importance chooses (Michel et al. 2019, arXiv 1905.10650); heads that go
# early in training, as in Behnke and Heafield 2020; and the shape that gates found, from scratch.
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
#   SITES=all,encoder    gates in all attentions of a model that is trained whole; in the encoder alone
#                 with the decoder frozen, as in the paper's figures (default: all; the control and
#                 heads by importance are beside these only)
#   FROM=DIR      where Multi30k's raw text is (downloaded without it)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR       where everything goes (default: runs/head_pruning_DATASET)
#   DATA=DIR      a data folder that is there already (default: data/DATASET, made if need be)
#   SEEDS=1,2     of all trainings (default: 1)
#   UPDATES=N, TUNE=N    of training, and each of gates and of fine-tuning, of multi30k and --data
#                 (default: 3400; half of UPDATES)
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 ordinary heads (OUT/trained). 2 gates (OUT/gated); scored with gates rounded, as in the
# paper, and as they are. 3 prune (OUT/pruned): gates below one half count as closed; and as many heads
# of the ordinary models by importance. 4 fine-tune: the former (OUT/tuned); the latter for as long as
# gates and fine-tuning (OUT/important). 5 the gates' shapes from scratch, for as long as all of that
# (OUT/scratch). 6 as many heads go early, by importance after a tenth of that (OUT/begun), and the rest
# is trained on (OUT/early). 7 heads kept against BLEU: a table of each of these folders (OUT/tables).
# By importance every attention keeps a head: fewer heads than that are refused.
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "embedded multi30k" "$@"
count_updates
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/head_pruning_$DATASET}
SEEDS=${SEEDS:-1}
PENALTIES=${PENALTIES:-0,0.003,0.01,0.03,0.1}
SITES=${SITES:-all}
for sites in ${SITES//,/ }; do
    [[ $sites =~ ^(all|encoder)$ ]] ||
        refuse "SITES is '$SITES'; it must be all, encoder or both, joined by a comma"
done

# Lengths: of gates, of gates and fine-tuning, and of all of it with the training before.
length=optimization.max_update
gating=$TUNE after=$((2 * TUNE)) whole=$((UPDATES + 2 * TUNE))
[ "$experiments" != embedded ] || length=optimization.max_epoch gating=8 after=12 whole=20
early=$(((whole + 9) / 10))

enter

[ -n "${DATA:-}" ] || prepare "$DATASET" "$data"

seeds=common.seed="choice($SEEDS)"

echo "== 1 ordinary heads"
baseline=$(real "${BASELINE:-$OUT/trained}")
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
        criterion.gate_penalty="choice($2)" "$seeds" "$length=$gating" "${@:3}"
    local run penalty
    for run in "$OUT/gated/$1"/*; do   # scored once more, with gates that are not rounded
        [ -e "$run/score.json" ] || continue
        penalty=${run##*/gate_penalty-}
        fairseq-collab score "$run/average.pt" --data "$data" "${cpu[@]}" \
            --run "$OUT/gated/$1-mean/$(basename "$run")" --set gate_penalty="${penalty%_seed-*}" \
            --set "common_eval.model_overrides=\"{'gate_evaluation': 'mean'}\"" || note $?
    done
}
# penalties SITES: the control has gates in all attentions.
penalties() { [ "$1" = all ] && echo "$PENALTIES" || echo "${PENALTIES#0,}"; }
for sites in ${SITES//,/ }; do
    alone=()
    [ "$sites" = all ] || alone=(model.gated_sites=encoder model.freeze=decoder)
    gates "$sites" "$(penalties "$sites")" "${alone[@]}"
done

echo "== 3 prune"
pruned=$(real "$OUT/pruned")
prune() {   # SITES PENALTY SEED: what is left of a finished run
    local run=$OUT/gated/$1/gate_penalty-$2_seed-$3 file=$pruned/$3/model/$1-$2.pt
    mkdir -p "$pruned/$3/model"
    [ ! -e "$file" ] || return 0
    if [ -e "$run/score.json" ]; then
        fairseq-collab prune "$run/average.pt" --gates --out "$file" || note $?
    else
        echo "head_pruning: $run is not finished (write penalties as in its name): not pruned" >&2
        note 1
    fi
}
# important SEED RUN FOLDER: of a model with all heads, as many as the gates leave, by importance.
important() {
    local file to=$pruned/$1/$3/model
    if [ ! -e "$2/score.json" ]; then
        echo "head_pruning: $2 is not finished: no heads by importance" >&2
        note 1
        return
    fi
    for file in "$pruned/$1/model"/all-*.pt; do
        [[ $file != */all-0.pt && -e $file && ! -e $to/$(basename "$file") ]] || continue
        mkdir -p "$to"
        importance "$2/average.pt" "$to/heads" || { note $?; return; }
        fairseq-collab prune "$2/average.pt" --importance "$to/heads/heads.json" \
            --as-many-as "$file" --out "$to/$(basename "$file")" || note $?
    done
}
for seed in ${SEEDS//,/ }; do
    for sites in ${SITES//,/ }; do
        for penalty in $(penalties "$sites" | tr , ' '); do
            prune "$sites" "$penalty" "$seed"
        done
    done
    [[ ,$SITES, != *,all,* ]] || important "$seed" "$baseline/model-concatenated_seed-$seed" important
done

# shaped EXPERIMENT FOLDER WAY OVERRIDES...: fine-tunes every pruned model of each seed: pruned by gates
# (WAY empty) or in another way. `prune` has written a configuration next to each of them.
shaped() {
    local seed from names
    for seed in ${SEEDS//,/ }; do
        from=$pruned/$seed/$3
        compgen -G "$from/model/*.yaml" > /dev/null || continue
        names=$(basename -s .yaml "$from"/model/*.yaml | paste -sd ,)
        sweep "$1_$experiments" "$2" "hydra.searchpath=['file://$from']" \
            model="choice($names)" common.seed="choice($seed)" "${@:4}"
    done
}

echo "== 4 fine-tune"
shaped grouped_finetune tuned "" "${tuning[@]}" "${third[@]}" "${tuned_updates[@]}"
shaped grouped_finetune important important "${tuning[@]}" "${third[@]}" "$length=$after"

echo "== 5 from scratch"
shaped grouped_heads scratch "" "$length=$whole" checkpoint.finetune_from_model=null

echo "== 6 heads go early"
falling=()   # by the rate of the whole training, which falls to 0
[ "$experiments" = embedded ] || falling=(lr_scheduler.total_num_update="$whole")
if [[ ,$SITES, = *,all,* ]]; then
    sweep "grouped_heads_$experiments" begun model="choice(concatenated)" "$seeds" \
        "$length=$early" "${falling[@]}"
    for seed in ${SEEDS//,/ }; do
        important "$seed" "$OUT/begun/model-concatenated_seed-$seed" early
    done
    shaped grouped_heads early early "$length=$((whole - early))"
fi

echo "== 7 heads kept against BLEU"
folders=("$baseline")
for sites in ${SITES//,/ }; do
    folders+=("$OUT/gated/$sites"{,-mean})
done
for folder in "${folders[@]}" "$OUT"/{tuned,important,scratch,early}; do
    [ -d "$folder" ] || continue
    fairseq-collab table "$folder" --x none --against none --out "$OUT/tables/$(basename "$folder")" \
        --columns bleu,chrf,heads_by_site,parameters,train_updates || note $?
done

exit "$failed"
