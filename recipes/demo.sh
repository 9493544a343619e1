#!/usr/bin/env bash
# Watch a transformer with collaborative heads learn to translate generated English into German: minutes
# on two CPU cores.
#
#   bash recipes/demo.sh
#   bash recipes/demo.sh --max-epoch 8    options go to fairseq-train
#   SENTENCES=N    of the training text (default: 12000)
#
# Everything is kept in OUT (default: runs/demo). Rerun it to resume it: a training that was interrupted
# goes on at its last epoch. On real text: docs/tutorial.md.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=${OUT:-runs/demo}
# The matrices are so small that several threads would mostly wait for each other.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

say() { printf '\n== %s\n' "$*"; }

own_environment
set_variables

say "Data"
fairseq-collab data demo-data --train "${SENTENCES:-12000}" --out "$OUT/data"

say "Training (log: $OUT/train.log)"
# Small batches give more updates for equal arithmetic; generated text has no noise that dropout would
# have to guard against.
fairseq-train "$OUT/data" --user-dir fairseq_collab --save-dir "$OUT/model" \
    --arch transformer_collab --key-dim 32 --share-all-embeddings --dropout 0 \
    --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
    --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' \
    --lr-scheduler polynomial_decay --lr 5e-3 --warmup-updates 100 --total-num-update 650 \
    --max-tokens 1024 --max-epoch 4 --seed 1 --num-workers 0 \
    --no-epoch-checkpoints --log-format tqdm --log-file "$OUT/train.log" "$@"

say "Translating the held-out sentences"
fairseq-generate "$OUT/data" --user-dir fairseq_collab --path "$OUT/model/checkpoint_last.pt" \
    --beam 5 --max-tokens 4096 --max-len-a 2 --max-len-b 20 --remove-bpe sentencepiece >"$OUT/generation.txt"

say "Some translations, and the scores of all"
# Of some sentences the source (S), the reference (T) and the translation (D).
awk -F'\t' '/^[STD]-(0|100|200|300)\t/ { print $1 "\t" $NF }' "$OUT/generation.txt"
fairseq-collab score "$OUT/generation.txt" --reference "$OUT/data/raw/test.de"

say "What it costs"
fairseq-collab cost "$OUT/model/checkpoint_last.pt"
