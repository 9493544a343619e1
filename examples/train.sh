#!/usr/bin/env bash
# Train a translation model, translate the test set, and score it.
#   fairseq-collab data multi30k --vocab-size 4000 --out data/multi30k
#   bash examples/train.sh data/multi30k my-model --arch transformer_collab_multi30k --key-dim 64
# Arguments: a folder of fairseq-collab data (target language de), the folder of the checkpoints, and
# options of fairseq-train; the architecture can be any of docs/methods.md.
set -euo pipefail
data=$1 out=$2

fairseq-train "$data" --user-dir fairseq_collab --save-dir "$out" --no-epoch-checkpoints \
    --share-all-embeddings --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler polynomial_decay \
    --warmup-updates 500 --total-num-update 6800 --max-update 6800 --max-tokens 2048 "${@:3}"
fairseq-generate "$data" --user-dir fairseq_collab --path "$out/checkpoint_last.pt" \
    --remove-bpe sentencepiece > "$out/translations.txt"
fairseq-collab score "$out/translations.txt" --reference "$data/raw/test.de"
