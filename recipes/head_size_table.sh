#!/usr/bin/env bash
# Heads of size d/H and of a fixed size, also with an equal number of parameters: Bhojanapalli et al.
# 2020 (arXiv 2002.07028), figures 1 and 3, on other text.
#
#   bash recipes/head_size_table.sh
#   FROM, DATA, OUT (default: runs/head_size_multi30k), JOBS, SWEEP: see recipes/common.sh
#   SEEDS=1,2   of all trainings
#   WIDTH=128   d of the models
#   HEADS=1,2,4,8,16,32    numbers of heads
#
# Three kinds of models, by the number of heads H: size-d/H; size-32, where that is larger; size-d/H-wide,
# with feed-forward layers so wide that the model has the parameters of size 32.
#
# Rerun it to resume it. OUT/table has one row per model and the scores against parameters; OUT/by_heads
# has them against H (and tests size-32 against size-d/H-wide).
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=${OUT:-runs/head_size_multi30k}
WIDTH=${WIDTH:-128}
HEADS=${HEADS:-1,2,4,8,16,32}
[[ $WIDTH,$HEADS =~ ^[1-9][0-9]*(,[1-9][0-9]*)+$ ]] ||
    reject "WIDTH is '$WIDTH', HEADS '$HEADS'; they must be a number, and numbers joined by commas"

train() {   # METHOD HEADS OVERRIDES...
    sweep decide . method="choice($1)" model.encoder_attention_heads="choice($2)" \
        common.seed="choice(${SEEDS:-1,2})" dataset.max_tokens=1024 optimization.max_update=3400 \
        model.encoder_embed_dim="$WIDTH" model.encoder_ffn_embed_dim=$((2 * WIDTH)) "${@:3}"
}

enter "$@"
train size-d/H "$HEADS"
for heads in ${HEADS//,/ }; do
    more=$((32 * heads - WIDTH))   # units of all heads together
    [ $more -gt 0 ] || continue
    train size-32 "$heads" model.head_size=32
    # An attention with heads of size 32 has (4 d + 3) `more` parameters more than with size d/H; each unit
    # of a feed-forward layer has 2 d + 1. There are three attentions for two of these layers. Of the
    # sum, the multiple of 32 below: 640, 1408 and 2944 units for d = 128 and 8, 16 and 32 heads.
    units=$((2 * WIDTH + 3 * (4 * WIDTH + 3) * more / (2 * (2 * WIDTH + 1))))
    train size-d/H-wide "$heads" model.encoder_ffn_embed_dim=$((units / 32 * 32))
done

fairseq-collab table "$OUT" --x none --against none --out "$OUT/table" --force || note $?
fairseq-collab table "$OUT" --x heads --against size-d/H-wide --out "$OUT/by_heads" --force || note $?
exit "$failed"
