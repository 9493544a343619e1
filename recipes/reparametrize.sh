#!/usr/bin/env bash
# BLEU and validation loss of a trained transformer with narrower keys: separate or shared, by key width.
#
#   MODEL=FILE bash recipes/reparametrize.sh
#   MODEL=FILE       the trained model: the average.pt of a run, with standard heads (model=vanilla, concatenated)
#   DATA=DIR         the data folder that it was trained on (default: data/multi30k, made if need be)
#   OUT=DIR          where everything goes (default: runs/reparametrize)
#   FROM, JOBS       see recipes/common.sh
#   DIMS='128 64'    key widths (default: 128 64 32, for d = 256)
#   SEED=N           names the runs and seeds the fine-tuning (default: 1)
#   SWEEP='size=small train=multi30k_small'    overrides of the fine-tuning, such as the size of the trained
#                    model: see configs/experiment/reparametrize_finetune_multi30k.yaml
#
# Stages: 1 convert (OUT/METHOD-K-SEED/model.pt) and measure (OUT/runs). 2 fine-tune
# (OUT/tuned): converted models, and the trained one for as long. 3 the table of all (OUT/table).
#
# Rerun it to resume it.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=${OUT:-runs/reparametrize}
DIMS=${DIMS:-128 64 32}
SEED=${SEED:-1}

[ -n "${MODEL:-}" ] || reject "give MODEL=FILE, the model to convert (see --help)"

enter "$@"
made_of MODEL "$MODEL"

# measure METHOD MODEL NAME: the run OUT/runs/NAME of a model
measure() {
    fairseq-collab score "$2" "$data" --run "$OUT/runs/$3" --set method="$1" \
        --set common.seed="$SEED" "${cpu[@]}" || note $?
}

# tune METHOD MODEL OVERRIDES...: a run of OUT/tuned
tune() {
    sweep reparametrize_finetune_multi30k tuned method="choice(tuned-$1)" \
        common.seed="choice($SEED)" checkpoint.finetune_from_model="$(real "$2")" "${@:3}"
}

echo "== 1 convert and measure"
measure trained "$MODEL" "trained-$SEED"
for dim in $DIMS; do
    for method in diagonal full own separate; do
        kind=(--query-mixing "$method") name=$method-$dim-$SEED
        [ "$method" != separate ] || kind=(--to separate)
        mkdir -p "$OUT/$name"
        [ -e "$OUT/$name/model.pt" ] ||
            fairseq-collab reparametrize "$MODEL" "$data" --key-dim "$dim" "${kind[@]}" \
                "${cpu[@]}" --out "$OUT/$name/model.pt" || note $?
        [ ! -e "$OUT/$name/model.pt" ] || measure "$method" "$OUT/$name/model.pt" "$name"
    done
done

echo "== 2 fine-tune"
separate=(model=concatenated model.attention_scale=embed)
for dim in $DIMS; do
    for method in diagonal full own separate; do
        kind=(model.query_mixing="$method")
        [ "$method" != separate ] || kind=("${separate[@]}")
        [ -e "$OUT/$method-$dim-$SEED/model.pt" ] || continue   # a size that is not possible
        tune "$method" "$OUT/$method-$dim-$SEED/model.pt" model.key_dim="choice($dim)" "${kind[@]}"
    done
done
tune trained "$MODEL" model=concatenated   # with all its heads, for as long

echo "== 3 table"
fairseq-collab table "$OUT/runs" "$OUT/tuned" --against none --out "$OUT/table" --force \
    --columns bleu,chrf,valid_nats,parameters,multiply_adds || note $?
exit "$failed"
