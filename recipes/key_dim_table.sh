#!/usr/bin/env bash
# BLEU against key width, separate and shared keys: Cordonnier et al. 2020, table 1.
#
#   bash recipes/key_dim_table.sh DATASET    demo, multi30k, iwslt14 or wmt14
#   FROM, DATA, OUT (default: runs/key_dim_DATASET), JOBS, SWEEP: see recipes/common.sh. wmt14 needs FROM,
#   the folder of Google's archive.
#
# Rerun it to resume it. The table and the figure are in OUT/table.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "demo multi30k iwslt14 wmt14" "$@"
OUT=${OUT:-runs/key_dim_$DATASET}
[ "$DATASET" != wmt14 ] || [ -n "${DATA:-}${FROM:-}" ] || reject "where is Google's wmt16_en_de archive," \
    "which the paper uses? Give FROM=DIR (recipes/wmt14_en_de.sh see --help)"

enter
table=(model=collab_diagonal,concatenated model.attention_scale=embed model.key_dim=512,256,128,64)
case $DATASET in
    demo) table[2]=model.key_dim=64,32,16,8 ;;
    wmt14) table=(model=fork_collab,fork_concatenated "${table[2]}") ;;
esac
case $DATASET in
    multi30k) sweep key_dim_multi30k . ;;
    *) sweep "$DATASET" . "${table[@]}" common.seed=1,2 ;;
esac
fairseq-collab table "$OUT" --out "$OUT/table" --force
exit "$failed"
