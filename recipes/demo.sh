#!/usr/bin/env bash
# Watch a transformer with collaborative heads learn to translate English into German.
#
#   bash recipes/demo.sh                  the demo corpus; minutes on two CPU cores
#   DATA=multi30k bash recipes/demo.sh    captions of Multi30k, downloaded; an hour on two cores
#   DATA=multi30k FROM=DIR bash recipes/demo.sh    captions that are already in DIR
#
# Everything is kept in OUT (default: runs/demo-$DATA). A second start skips finished steps; a
# training that was interrupted resumes at its last epoch.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

DATA=${DATA:-demo}
OUT=${OUT:-runs/demo-$DATA}

say() { printf '\n== %s\n' "$*"; }

case $DATA in
    demo)
        corpus=(--train 12000)
        architecture=(
            --arch transformer_collab --key-dim 32
            --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
            --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256
            --encoder-attention-heads 4 --decoder-attention-heads 4 --dropout 0
        )
        # Small batches give more updates for equal arithmetic; generated text has no noise that
        # dropout would have to guard against.
        schedule=(
            --max-tokens 1024 --max-epoch 4
            --lr-scheduler polynomial_decay --lr 5e-3 --warmup-updates 100 --total-num-update 650
        )
        averaged=1   # where the rate falls to 0, a mean with former epochs is worse
        # The matrices are so small that several threads would mostly wait for each other.
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
        ;;
    multi30k)
        corpus=(--vocab-size 6000)
        architecture=(--arch transformer_collab_multi30k --key-dim 64)
        schedule=(
            --max-tokens 2048 --max-epoch 16
            --lr-scheduler inverse_sqrt --lr 2e-3 --warmup-updates 1000
        )
        averaged=5
        ;;
    *) reject "DATA is '$DATA'; it must be demo or multi30k" ;;
esac

activate
set_variables

# once RESULT COMMAND...: run the command, which writes RESULT, unless RESULT is there.
once() {
    local result=$1
    shift
    if [ -e "$result" ]; then
        echo "$result is there: skipped"
    else
        "$@"
    fi
}

train() {
    fairseq-train "$OUT/data" --user-dir fairseq_collab --save-dir "$OUT/model" \
        "${architecture[@]}" --share-all-embeddings \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
        --optimizer adam --adam-betas '(0.9, 0.98)' "${schedule[@]}" --seed 1 --num-workers 0 \
        --keep-last-epochs "$averaged" --log-format tqdm --log-file "$OUT/train.log"
    touch "$OUT/trained"
}

average() {
    fairseq-collab average "$OUT/model" --last "$averaged" --out "$OUT/average.pt"
}

translate() {
    fairseq-generate "$OUT/data" --user-dir fairseq_collab --path "$OUT/average.pt" \
        --beam 5 --max-tokens 4096 --remove-bpe sentencepiece >"$OUT/generation.txt.part"
    mv "$OUT/generation.txt.part" "$OUT/generation.txt"
}

say "Data: $DATA"
mkdir -p "$OUT"
prepare "$DATA" "$OUT/data" "${corpus[@]}"

say "Training (log: $OUT/train.log)"
once "$OUT/trained" train

say "Averaging epochs (the last $averaged), translating the held-out sentences"
once "$OUT/average.pt" average
once "$OUT/generation.txt" translate

say "Some translations, and the scores of all"
# Of some sentences the source (S), the reference (T) and the translation (D).
awk -F'\t' '/^[STD]-(0|100|200|300)\t/ { print $1 "\t" $NF }' "$OUT/generation.txt"
fairseq-collab score "$OUT/generation.txt" --reference "$OUT/data/raw/test.de"

say "What it costs, next to this model with standard heads"
fairseq-collab cost "$OUT/average.pt"
