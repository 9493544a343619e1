#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380) in language modelling: WikiText-2, a small
# model with adaptive inputs and outputs.
#
#   bash recipes/grouped_lm.sh
#   FROM=DIR      where the text of WikiText-2 is (downloaded without it)
#   DATA=DIR      the binarised folder (default: data/wikitext2; made if it is not there)
#   OUT=DIR       where everything goes (default: runs/grouped_lm_wikitext2)
#   SEED=N        of all trainings, and of heads by chance (default: 1)
#   UPDATES=N     of the trainings, 2,048 words each (default: 2000, about two epochs)
#   TUNE=N        of the fine-tunings (default: 500)
#
# Stages: 1 data. 2 train: ordinary heads, heads in 4 and in 2 groups. 3 vote and prune: the head of
# each group that was elected, and as many by chance, of ordinary heads. 4 fine-tune: those, and the
# ordinary heads for as long. 5 perplexities of all, as a table (OUT/perplexity.md and .json).
#
# Each of OUT's folders is one model: model.pt, command (what made it), train.log, and what
# fairseq-eval-lm says of it. Interrupt the recipe whenever you like: given again, it goes on; a
# training goes on from its last checkpoint, and a file that is there is whole.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=recipes/common.sh
source recipes/common.sh

DATA=${DATA:-data/wikitext2}
OUT=${OUT:-runs/grouped_lm_wikitext2}
SEED=${SEED:-1}
UPDATES=${UPDATES:-2000}
TUNE=${TUNE:-500}
heads=8
kept=(4 2)   # a half and a quarter

command -v fairseq-collab > /dev/null || activate
set_variables

find_device

size=16   # of a head
length=128   # of what a model reads at once
model=(
    --decoder-layers 2 --decoder-embed-dim $((heads * size)) --decoder-ffn-embed-dim 256
    --decoder-attention-heads $heads --tokens-per-sample $length --dropout 0.1
    --adaptive-input --adaptive-input-cutoff 2000,10000
    --adaptive-softmax-cutoff 2000,10000 --tie-adaptive-weights --tie-adaptive-proj
)
training=(
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1 --lr-scheduler polynomial_decay
    --ddp-backend legacy_ddp --max-tokens 2048 --seed "$SEED" --num-workers 0 --log-format simple
    --disable-validation --save-interval-updates 500 --keep-interval-updates 1
    --no-epoch-checkpoints
)
ordinary=(--arch transformer_lm_headsize_n --criterion adaptive_loss)

# logged FILE COMMAND...: what COMMAND prints is added to FILE
logged() {
    "${@:2}" >> "$1" 2>&1 || { echo "grouped_lm: ${*:2:2} failed: see $1" >&2; exit 1; }
}

# train NAME UPDATES OPTION...: OUT/NAME/model.pt
train() {
    local folder=$OUT/$1 updates=$2
    [ -e "$folder/model.pt" ] && return
    echo "$1: $updates updates"
    mkdir -p "$folder"
    local command=(
        fairseq-train "$DATA" --user-dir fairseq_collab --task language_modeling "${@:3}"
        "${model[@]}" "${training[@]}" "${cpu[@]}" --max-update "$updates"
        --total-num-update "$updates" --save-dir "$folder/training"
    )
    printf '%q ' "${command[@]}" > "$folder/command"
    logged "$folder/train.log" "${command[@]}"
    mv "$folder/training/checkpoint_last.pt" "$folder/model.pt"
    rm -r "$folder/training"
}

# prune NAME SOURCE OPTION...: OUT/NAME/model.pt, fewer heads of the model SOURCE
prune() {
    local folder=$OUT/$1
    [ -e "$folder/model.pt" ] && return
    mkdir -p "$folder"
    local command=(
        fairseq-collab prune "$OUT/$2/model.pt" --data "$DATA" "${@:3}"
        --output "$folder/model.pt"
    )
    printf '%q ' "${command[@]}" > "$folder/command"
    "${command[@]}"
}

# tune NAME OPTION...: OUT/NAME-tuned/model.pt, trained on from OUT/NAME/model.pt
tune() {
    train "$1-tuned" "$TUNE" --finetune-from-model "$OUT/$1/model.pt" "${ordinary[@]}" \
        --lr 5e-4 --warmup-updates 0 "${@:2}"
}

# measure NAME: perplexity in blocks of the length of the training, each read by itself
measure() {
    local folder=$OUT/$1 subset
    for subset in valid test; do
        [ -e "$folder/$subset.log" ] && continue
        local command=(
            fairseq-eval-lm "$DATA" --user-dir fairseq_collab --path "$folder/model.pt"
            --gen-subset $subset --tokens-per-sample $length --max-tokens 2048
            --num-workers 0 --no-progress-bar "${cpu[@]}"
        )
        { printf '$ '; printf '%q ' "${command[@]}"; echo; } > "$folder/$subset.part"
        logged "$folder/$subset.part" "${command[@]}"
        mv "$folder/$subset.part" "$folder/$subset.log"
    done
}

echo "== 1 data"
if [ ! -e "$DATA/manifest.json" ]; then
    python -m data_prep.wikitext2 --out "$DATA" ${FROM:+--from "$FROM"}
fi
mkdir -p "$OUT"

echo "== 2 train"
rate=(--lr 2e-3 --warmup-updates 200)
train ordinary "$UPDATES" "${ordinary[@]}" "${rate[@]}"
for count in "${kept[@]}"; do
    train "grouped-$count" "$UPDATES" --arch transformer_lm_grouped_heads --head-groups "$count" \
        --criterion adaptive_loss_with_head_groups "${rate[@]}"
done

echo "== 3 vote and prune"
for count in "${kept[@]}"; do
    grouped=$OUT/grouped-$count
    if [ ! -e "$grouped/votes.json" ]; then
        fairseq-collab vote "$grouped/model.pt" "$DATA" "${cpu[@]}" --output "$grouped/votes.json"
    fi
    prune "voted-$count" "grouped-$count" --votes "$grouped/votes.json"
    prune "random-$count" ordinary --random "$SEED" --keep "$count"
done

echo "== 4 fine-tune"
tune ordinary
for count in "${kept[@]}"; do
    few=(--heads-in-decoder "$count" --head-size $size)
    tune "voted-$count" "${few[@]}"
    tune "random-$count" "${few[@]}"
done

echo "== 5 perplexities"
models=(ordinary)
for count in "${kept[@]}"; do models+=("grouped-$count"); done
for count in "${kept[@]}"; do models+=("voted-$count" "random-$count"); done
models+=(ordinary-tuned)
for count in "${kept[@]}"; do models+=("voted-$count-tuned" "random-$count-tuned"); done
for name in "${models[@]}"; do measure "$name"; done
python -m fairseq_collab.metrics.perplexity "${models[@]/#/$OUT/}" --data "$DATA" --out "$OUT" \
    "${cpu[@]}"
