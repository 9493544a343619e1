#!/usr/bin/env bash
# BLEU against key dimension, concatenated and collaborative heads: Cordonnier et al. 2020, table 1.
#
#   bash recipes/key_dim_table.sh DATASET    embedded, multi30k, iwslt14 or wmt14
#   --data DIR --source-lang S --target-lang T [--size small] [--train multi30k_small]
#               instead of DATASET: any prepared folder, with a size and a training of configs/
#   FROM=DIR    where the raw text is: needed for wmt14 (Google's archive); the others are downloaded
#               without it
#   DATA=DIR    a data folder that is there already (default: data/DATASET, made if need be)
#   JOBS=N      runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR     where the runs go (default: runs/key_dim_DATASET)
#   SWEEP='common.seed=1,2,3 ...'    overrides of configs/experiment/key_dim_DATASET.yaml
#
# Interrupt it whenever you like: given again, it goes on. The table and the figure are in OUT/table.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "embedded multi30k iwslt14 wmt14" "$@"
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/key_dim_$DATASET}
make_data=()

case ${DATA:+given }$DATASET in   # nothing is made where it is given
    embedded | multi30k) make_data=(prepare "$DATASET" "$data") ;;
    iwslt14)
        data=runs/iwslt14/data
        make_data=(bash recipes/iwslt14.sh --stop-stage 4 --out runs/iwslt14 ${FROM:+--from "$FROM"})
        ;;
    wmt14)
        [ -n "${FROM:-}" ] || refuse "where is Google's wmt16_en_de archive, which the paper uses?" \
            "Give FROM=DIR (recipes/wmt14_en_de.sh --help tells more)"
        data=runs/wmt14_en_de/data
        make_data=(
            bash recipes/wmt14_en_de.sh --variant google --stop-stage 4 --out runs/wmt14_en_de
            --from "$FROM"
        )
        ;;
esac

enter

"${make_data[@]}"

sweep "key_dim_$experiments" .
fairseq-collab table "$OUT" --out "$OUT/table"
exit "$failed"
