#!/usr/bin/env bash
# BLEU and validation loss of a trained transformer with narrower keys: separate or shared, by key width.
#
#   FROM=FILE bash recipes/reparametrize.sh
#   FROM=FILE        the trained model: the average.pt of a run, with standard heads
#   DATA=DIR         the data folder that it was trained on (default: data/multi30k)
#   OUT=DIR          where everything goes (default: runs/reparametrize)
#   DIMS='128 64'    key widths (default: 128 64 32, for d = 256)
#   SEED=N           names the runs and seeds the fine-tuning (default: 1)
#   UPDATES=N        of the fine-tuning (default: that of configs/experiment/reparametrize_finetune_multi30k.yaml)
#   SWEEP='size=small train=multi30k_small'    overrides of that file, such as the size of the trained model
#
# Stages: 1 convert (OUT/METHOD-K-SEED/model.pt) and measure (OUT/runs). 2 fine-tune
# (OUT/tuned): converted models, and the trained one for as long. 3 the table of all (OUT/table).
#
# Rerun it to resume it.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

DATA=${DATA:-data/multi30k}
OUT=${OUT:-runs/reparametrize}
DIMS=${DIMS:-128 64 32}
SEED=${SEED:-1}

[ -n "${FROM:-}" ] || reject "give FROM=FILE, the model to convert (see --help)"

enter

# measure METHOD MODEL NAME: the run OUT/runs/NAME of a model
measure() {
    fairseq-collab score "$2" "$data" --run "$OUT/runs/$3" --set method="$1" \
        --set common.seed="$SEED" "${cpu[@]}"
}

# convert METHOD K OPTIONS...: OUT/METHOD-K-SEED/model.pt, measured
convert() {
    local name=$1-$2-$SEED
    mkdir -p "$OUT/$name"
    [ -e "$OUT/$name/model.pt" ] ||
        fairseq-collab reparametrize "$FROM" "$data" --key-dim "$2" "${@:3}" "${cpu[@]}" --out "$OUT/$name/model.pt"
    measure "$1" "$OUT/$name/model.pt" "$name"
}

echo "== 1 convert and measure"
measure trained "$FROM" "trained-$SEED"
for dim in $DIMS; do
    for mixing in diagonal full own; do convert $mixing "$dim" --query-mixing $mixing; done
    convert separate "$dim" --to headsize
done

echo "== 2 fine-tune"
tune() {   # METHOD K OVERRIDES...
    sweep reparametrize_finetune_multi30k tuned method="choice(tuned-$1)" \
        model.key_dim="choice($2)" common.seed="choice($SEED)" "${@:3}" \
        ${UPDATES:+optimization.max_update="$UPDATES"}
}
start() { echo "checkpoint.finetune_from_model=$(real "$OUT")/$1-$2-$SEED/model.pt"; }
for dim in $DIMS; do
    for mixing in diagonal full own; do
        tune $mixing "$dim" model.query_mixing=$mixing "$(start $mixing "$dim")"
    done
    tune separate "$dim" model=concatenated model.attention_scale=embed "$(start separate "$dim")"
done
# The trained model with all its heads, for as long.
sweep reparametrize_finetune_multi30k tuned method="choice(tuned-trained)" model=concatenated \
    model.attention_scale=embed model.key_dim=null common.seed="choice($SEED)" \
    checkpoint.finetune_from_model="$(real "$FROM")" ${UPDATES:+optimization.max_update="$UPDATES"}

echo "== 3 table"
fairseq-collab table "$OUT/runs" "$OUT/tuned" --against none --out "$OUT/table" --force \
    --columns bleu,chrf,valid_nats,parameters,multiply_adds
exit "$failed"
