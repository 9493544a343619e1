#!/usr/bin/env bash
# BLEU against key dimension, concatenated and collaborative heads: Cordonnier et al. 2020, table 1.
#
#   bash recipes/key_dim_table.sh DATASET    embedded, multi30k, tatoeba, iwslt14 or wmt14
#   FROM=DIR    where the raw text is: needed for tatoeba (train, valid and test, .en and .de, .gz
#               or not); multi30k is downloaded without it
#   JOBS=N      runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR     where the runs go (default: runs/key_dim_DATASET)
#   SWEEP='common.seed=1,2,3 ...'    overrides of configs/experiment/key_dim_DATASET.yaml
#
# Interrupt it whenever you like: given again, it goes on. The table and the figure are in OUT/table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DATASET=${1:-}
OUT=${OUT:-runs/key_dim_$DATASET}

fail() {
    echo "key_dim_table: $*" >&2
    exit 2
}

case $DATASET in
    embedded) prepare=(python -m data_prep.demo_data --vocab-size 2000) ;;
    multi30k) prepare=(python -m data_prep.multi30k --vocab-size 4000 ${FROM:+--from "$FROM"}) ;;
    tatoeba)
        [ -n "${FROM:-}" ] || fail "where are Tatoeba's sentence pairs? Give FROM=DIR with" \
            "train, valid and test, .en and .de (a dump is at tatoeba.org/downloads)"
        prepare=(
            python -m data_prep.prepare --text "$FROM" --source-lang en --target-lang de
            --vocab-size 8000
        )
        ;;
    iwslt14 | wmt14)
        [ -e "data/$DATASET/manifest.json" ] ||
            fail "data/$DATASET is not there: make it with python -m data_prep.prepare --text DIR" \
                "--source-lang en --target-lang de --out data/$DATASET"
        prepare=()
        ;;
    *) fail "DATASET is '$DATASET'; it must be embedded, multi30k, tatoeba, iwslt14 or wmt14" ;;
esac

bash recipes/setup.sh
# shellcheck disable=SC1091
source "${VENV:-.venv}/bin/activate"
export PYTHONWARNINGS=ignore   # deprecations inside fairseq, which no reader of this can mend
# Large tensors then reuse memory instead of mapping it anew: training on a CPU is faster.
export MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184
export MALLOC_TOP_PAD_=268435456

if python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    device=() jobs=1
else
    device=(common.cpu=true) jobs=$(nproc)
fi

[ ${#prepare[@]} -eq 0 ] || "${prepare[@]}" --out "data/$DATASET"

# A run that failed is in the table's notes; the table is made all the same.
status=0
# shellcheck disable=SC2086
fairseq-collab sweep "configs/experiment/key_dim_$DATASET.yaml" --out "$OUT" \
    --jobs "${JOBS:-$jobs}" "${device[@]}" ${SWEEP:-} || status=$?
[ "$status" -le 1 ] || exit "$status"   # interrupted
fairseq-collab table "$OUT" --out "$OUT/table" || exit $?
exit "$status"
