#!/usr/bin/env bash
# BLEU of a trained transformer before and after its heads are made collaborative, by key dimension.
#
#   bash recipes/reparametrize.sh
#   FROM=FILE        the trained model (default: runs/multi30k/average.pt)
#   DATA=DIR         the binarised folder that it was trained on (default: data/multi30k)
#   REFERENCE=FILE   untouched text of the test set (default: DATA/raw/test.de)
#   OUT=DIR          where everything goes (default: runs/reparametrize)
#   DIMS='256 192'   key dimensions (default: 256 192 128 85 64 32, for d = 256)
#   TUNE='128 64'    those that are also distilled and fine-tuned (default: 128 85 64)
#   UPDATES=N        of the fine-tuning (default: 250)
#   DISTIL=N         updates of the distillation (default: 40)
#
# Each of OUT's folders is one model: METHOD-K with model.pt, fit.json, test.out, valid.log and, last,
# score.json. Interrupt it whenever you like: given again, it goes on; a file that is there is whole.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=recipes/common.sh
source recipes/common.sh

FROM=${FROM:-runs/multi30k/average.pt}
DATA=${DATA:-data/multi30k}
REFERENCE=${REFERENCE:-$DATA/raw/test.de}
OUT=${OUT:-runs/reparametrize}
DIMS=${DIMS:-256 192 128 85 64 32}
TUNE=${TUNE:-128 85 64}
UPDATES=${UPDATES:-250}
DISTIL=${DISTIL:-40}

activate
set_variables

# whole FILE COMMAND...: what COMMAND prints becomes FILE, whole or not at all
whole() {
    local file=$1
    shift
    [ -e "$file" ] && return
    "$@" > "$file.part"
    mv "$file.part" "$file"
}

# convert NAME OPTION...: OUT/NAME/model.pt
convert() {
    local folder=$OUT/$1
    shift
    mkdir -p "$folder"
    whole "$folder/fit.json" fairseq-collab reparametrize "$FROM" --data "$DATA" \
        --out "$folder/model.pt" --json "$@"
}

# measure NAME MODEL: translation, score and validation loss
measure() {
    local folder=$OUT/$1 model=$2
    mkdir -p "$folder"
    whole "$folder/test.out" fairseq-generate "$DATA" --user-dir fairseq_collab --path "$model" \
        --gen-subset test --beam 5 --max-tokens 4096 --remove-bpe sentencepiece --num-workers 0
    whole "$folder/valid.log" fairseq-validate "$DATA" --user-dir fairseq_collab --task translation --path "$model" \
        --valid-subset valid --max-tokens 4096 --num-workers 0 --log-format json
    whole "$folder/score.json" fairseq-collab score "$folder/test.out" --reference "$REFERENCE" \
        --json
}

# tune NAME MODEL OPTION...: OUT/tuned-NAME/model.pt, trained on from MODEL
tune() {
    local folder=$OUT/tuned-$1 model=$2
    shift 2
    [ -e "$folder/model.pt" ] && return
    rm -rf "$folder/training"
    mkdir -p "$folder"
    fairseq-train "$DATA" --user-dir fairseq_collab --finetune-from-model "$model" "$@" \
        --share-all-embeddings --dropout 0.3 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-4 --lr-scheduler polynomial_decay \
        --total-num-update "$UPDATES" --warmup-updates 0 --max-update "$UPDATES" \
        --max-tokens 2048 --seed 1 --num-workers 0 --disable-validation --no-epoch-checkpoints \
        --save-dir "$folder/training" > "$folder/train.log" 2>&1
    mv "$folder/training/checkpoint_last.pt" "$folder/model.pt"
    rm -rf "$folder/training"
}

measure trained "$FROM"
for dim in $DIMS; do
    convert "root-$dim" --key-dim "$dim"
    convert "weights-$dim" --key-dim "$dim" --calibration 0
    convert "tensorly-$dim" --key-dim "$dim" --calibration 0 --method tensorly
    for method in root weights tensorly; do
        measure "$method-$dim" "$OUT/$method-$dim/model.pt"
    done
done

for dim in $TUNE; do
    for method in root tensorly; do
        tune "$method-$dim" "$OUT/$method-$dim/model.pt" --arch transformer_collab_multi30k \
            --key-dim "$dim" --attention-bias content
        measure "tuned-$method-$dim" "$OUT/tuned-$method-$dim/model.pt"
    done
done

# What the fine-tuning does to the model itself.
sides=()
for side in encoder decoder; do
    sides+=(--$side-layers 3 --$side-embed-dim 256 --$side-ffn-embed-dim 512)
    sides+=(--$side-attention-heads 4)
done
tune trained "$FROM" --arch transformer "${sides[@]}"
measure tuned-trained "$OUT/tuned-trained/model.pt"

for dim in $TUNE; do
    convert "scores-$dim" --key-dim "$dim" --weighting scores
    measure "scores-$dim" "$OUT/scores-$dim/model.pt"
    convert "distilled-$dim" --key-dim "$dim" --distil "$DISTIL"
    measure "distilled-$dim" "$OUT/distilled-$dim/model.pt"
done

python -m fairseq_collab.results.reparametrized "$OUT" --out "$OUT/table"
