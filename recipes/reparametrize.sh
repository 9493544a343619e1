#!/usr/bin/env bash
# BLEU of a trained transformer before and after its heads are made collaborative, by key dimension.
#
#   FROM=FILE bash recipes/reparametrize.sh
#   FROM=FILE        the trained model: the average.pt of a run, with ordinary heads
#   DATA=DIR         the data folder that it was trained on (default: data/multi30k)
#   OUT=DIR          where everything goes (default: runs/reparametrize)
#   DIMS='256 192'   key dimensions (default: 256 192 128 85 64 32, for d = 256)
#   TUNE='128 64'    those that are also distilled and fine-tuned (default: 128 85 64)
#   UPDATES=N        of the fine-tuning (default: that of configs/experiment/reparametrize_finetune_multi30k.yaml)
#   DISTIL=N         updates of the distillation (default: 40)
#
# Stages: 1 convert (OUT/METHOD-K: model.pt and fit.json) and measure (OUT/runs). 2 fine-tune
# (OUT/tuned): converted models, and the trained one for as long. 3 the table of all (OUT/table).
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

data=${DATA:-data/multi30k}
OUT=${OUT:-runs/reparametrize}
DIMS=${DIMS:-256 192 128 85 64 32}
TUNE=${TUNE:-128 85 64}
DISTIL=${DISTIL:-40}
heads=4   # of the trained model

[ -n "${FROM:-}" ] || refuse "give FROM=FILE, the model to convert (--help tells all)"
[ -z "${REFERENCE:-}" ] || [ "$REFERENCE" -ef "$data/raw/test.de" ] ||
    refuse "REFERENCE is $REFERENCE; runs are compared with $data/raw/test.de"

enter

# measure METHOD-K MODEL OPTIONS...: the run OUT/runs/METHOD-K of a model that is there
measure() {
    fairseq-collab score "$2" --data "$data" --run "$OUT/runs/$1" --set method="${1%-[0-9]*}" \
        "${cpu[@]}" "${@:3}"
}

# convert METHOD-K OPTIONS...: OUT/METHOD-K/model.pt, measured
convert() {
    local folder=$OUT/$1 mean='import json, sys, statistics
print(statistics.fmean(one["error"] for one in json.load(sys.stdin)["attentions"]))'
    convert_heads "$FROM" "$folder" --key-dim "${1##*-}" "${@:2}"
    measure "$1" "$folder/model.pt" --set relative_error="$(python -c "$mean" < "$folder/fit.json")"
}

echo "== 1 convert and measure"
measure trained "$FROM"
for dim in $DIMS; do
    convert "root-$dim"
    convert "weights-$dim" --calibration 0
    convert "tensorly-$dim" --calibration 0 --method tensorly
done
for dim in $TUNE; do
    convert "scores-$dim" --weighting scores
    convert "distilled-$dim" --distil "$DISTIL"
done

echo "== 2 fine-tune"
# shellcheck disable=SC2016  # Hydra expands it
name='-${model.key_dim}/model.pt' whole=$OUT/trained.pt from=checkpoint.finetune_from_model
tune() {   # METHOD MODEL OVERRIDES...
    sweep reparametrize_finetune_multi30k tuned method="choice(tuned-$1)" "${@:3}" \
        "$from=$(real "$OUT")/$2" ${UPDATES:+optimization.max_update="$UPDATES"}
}
tune root "root$name" model.key_dim="choice(${TUNE// /,})"
tune tensorly "tensorly$name" model.key_dim="choice(${TUNE// /,})"
# What the fine-tuning does to the model itself, all of whose heads are kept.
[ -e "$whole" ] || fairseq-collab prune "$FROM" --random 1 --keep "$heads" --out "$whole"
tune trained trained.pt model=concatenated model.key_dim=null

echo "== 3 table"
fairseq-collab table "$OUT/runs" "$OUT/tuned" --against none --out "$OUT/table" \
    --columns bleu,chrf,valid_nats,relative_error
exit "$failed"
