#!/usr/bin/env bash
# Heads of size d/H and of a fixed size, also with an equal number of parameters: Bhojanapalli et al.
# 2020 (arXiv 2002.07028), figures 1 and 3, on other text.
#
#   bash recipes/head_size_table.sh
#   FROM, DATA, OUT (default: runs/head_size_multi30k), JOBS, SWEEP: see recipes/common.sh
#   SEEDS=1,2   of all trainings
#
# Three kinds of models, by the number of heads H: size-d/H; size-32 for every H; size-d/H-wide, with
# feed-forward layers so wide that the model has the parameters of size 32.
#
# Rerun it to resume it. OUT/table has one row per model and the scores against parameters; OUT/by_heads
# has them against H (and tests size-32 against size-d/H-wide).
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=${OUT:-runs/head_size_multi30k}

train() {   # METHOD HEADS OVERRIDES...
    sweep decide . method="choice($1)" model.encoder_attention_heads="choice($2)" \
        common.seed="choice(${SEEDS:-1,2})" dataset.max_tokens=1024 optimization.max_update=3400 "${@:3}"
}

enter "$@"
train size-d/H 1,2,4,8,16,32
train size-32 8,16,32 model.head_size=32
# An attention with heads of size 32 has (4 d + 3) (32 H - d) parameters more than with size d/H; each
# unit of a feed-forward layer has 2 d + 1. With d = 128, 6 attentions and 4 of these layers,
# 256 + 6 (4 d + 3) (32 H - d) / (4 (2 d + 1)) units would be 640.8, 1410.2 and 2949.2.
train size-d/H-wide 8 model.encoder_ffn_embed_dim=640
train size-d/H-wide 16 model.encoder_ffn_embed_dim=1408
train size-d/H-wide 32 model.encoder_ffn_embed_dim=2944

fairseq-collab table "$OUT" --x none --against none --out "$OUT/table" --force
fairseq-collab table "$OUT" --x heads --against size-d/H-wide --out "$OUT/by_heads" --force
exit "$failed"
