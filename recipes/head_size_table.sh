#!/usr/bin/env bash
# Heads of size d/H beside heads of a size of their own, at as many parameters: Bhojanapalli et al.
# 2020 (arXiv 2002.07028), figures 1 and 3, on other text.
#
#   bash recipes/head_size_table.sh DATASET    multi30k (translation) or wikitext2 (language model)
#   FROM=DIR    where the raw text is (downloaded without it)
#   DATA=DIR    a data folder that is there already (default: data/DATASET, made if need be)
#   JOBS=N      runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR     where the runs go (default: runs/head_size_DATASET)
#   SEEDS=1,2   of all trainings (default: 1,2 of multi30k, 1 of wikitext2)
#   SWEEP='...' further overrides of all trainings
#
# Three kinds of model, by the number of heads H: size-d/H; size-32, whatever H is; size-d/H-wide,
# whose feed-forward layers are so wide that there are as many parameters as with size 32.
#
# Interrupt it whenever you like: given again, it goes on. OUT/table has a row a model and the scores
# against parameters; OUT/by_heads has them against H (and tests size-32 against size-d/H-wide).
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

DATASET=${1:-}
data=${DATA:-data/$DATASET}
OUT=${OUT:-runs/head_size_$DATASET}

case $DATASET in
    multi30k)
        name=multi30k heads=model.encoder_attention_heads larger=8,16,32 seeds=1,2
        against=(--against size-d/H-wide)
        ;;
    wikitext2)
        name=lm_wikitext2 heads=model.decoder_attention_heads larger=2,8,32 seeds=1
        against=(--columns "perplexity.valid,perplexity.test,parameters,multiply_adds")
        ;;
    *) refuse "DATASET is '$DATASET'; it must be multi30k or wikitext2" ;;
esac
seeds=common.seed="choice(${SEEDS:-$seeds})"

enter

[ -n "${DATA:-}" ] || prepare "$DATASET" "$data"

sweep "head_size_table_$name" . method="choice(size-d/H)" "$seeds"
sweep "head_size_table_$name" . method="choice(size-32)" model.head_size=32 \
    "$heads=choice($larger)" "$seeds"
sweep "head_size_table_wide_$name" . method="choice(size-d/H-wide)" "$seeds"

fairseq-collab table "$OUT" --x none --against none --out "$OUT/table"
fairseq-collab table "$OUT" --x heads "${against[@]}" --out "$OUT/by_heads"
exit "$failed"
