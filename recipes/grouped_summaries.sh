#!/usr/bin/env bash
# Grouped head attention (Ni et al. 2023, arXiv 2305.14380) in summarisation: DialogSum, a small model.
#
#   FROM=DIR bash recipes/grouped_summaries.sh
#   FROM=DIR      where the text of DialogSum is (python -m data_prep.dialogsum --help); wanted once
#   DATA=DIR      the data folder, made if it is not there (default: data/dialogsum)
#   JOBS=N        runs at a time (default: one a CPU core, or one on a GPU)
#   OUT=DIR       where everything goes (default: runs/grouped_summaries_dialogsum)
#   SEEDS=1,2     of all trainings (default: 1)
#   NORMALISATION=paper ELECTION=released    the much stronger constraint of the paper's equation, and
#                 election by distance: so the pages of results were made (default: the weight of the
#                 paper's released code, and election by cosine)
#   SWEEP='...'   further overrides of all trainings
#
# Stages: 1 train (OUT/trained): ordinary heads, and heads in 2 groups. 2 vote and prune (OUT/pruned):
# the head of each group that was elected, and as many by chance, of ordinary heads. 3 fine-tune
# (OUT/tuned): those, and the ordinary heads for as long. 4 ROUGE of 1 and 3, as tables.
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

data=${DATA:-data/dialogsum}
OUT=${OUT:-runs/grouped_summaries_dialogsum}
SEEDS=${SEEDS:-1}
kept=2   # of 8 heads: a quarter

enter

[ -e "$data/manifest.json" ] || prepare dialogsum "$data"

train=grouped_heads_dialogsum tune=grouped_finetune_dialogsum   # experiments of configs/
ordinary=model="choice(concatenated)"
seeds=common.seed="choice($SEEDS)"

echo "== 1 train"
sweep "$train" trained "$ordinary" "$seeds"
sweep "$train" trained model="choice(grouped)" "$constraint" model.head_groups="choice($kept)" \
    "$seeds"

echo "== 2 vote and prune"
pruned=$(real "$OUT/pruned")
trained=$(real "$OUT/trained")
mkdir -p "$pruned"
for seed in ${SEEDS//,/ }; do
    vote_and_prune "$seed" "$trained/model-grouped_head_groups-${kept}_seed-$seed/average.pt" \
        "$trained/model-concatenated_seed-$seed/average.pt" "$seed" "$kept"
done

echo "== 3 fine-tune"
# Each run takes the checkpoint of its own seed.
few=model.heads_in_encoder="choice($kept)"
from=checkpoint.finetune_from_model
# shellcheck disable=SC2016  # Hydra expands it
seed='${common.seed}'
sweep "$tune" tuned "$ordinary" model.head_size=null "$seeds" \
    "$from=$trained/model-concatenated_seed-$seed/average.pt"
sweep "$tune" tuned model="choice(grouped_pruned)" "$few" "$seeds" "$from=$pruned/voted-$seed.pt"
sweep "$tune" tuned model="choice(grouped_random)" "$few" "$seeds" "$from=$pruned/random-$seed.pt"

echo "== 4 tables"
for folder in trained tuned; do
    fairseq-collab table "$OUT/$folder" --x none --against none --out "$OUT/$folder/table" \
        --columns rouge.R1,rouge.R2,rouge.RL,parameters,key_bytes_per_target_token
done
exit "$failed"
