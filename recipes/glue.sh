#!/usr/bin/env bash
# GLUE with heads swapped in a trained model: Cordonnier et al. 2020 (arXiv 2006.16362), beyond
# translation. Fine-tune, swap for collaborative heads of key dimension K, fine-tune again.
#
#   MODEL=DIR DATA=DIR bash recipes/glue.sh
#   MODEL=DIR     BERT, RoBERTa, DistilBERT or ALBERT in Hugging Face's form: config.json, tokenizer
#                 and weights (the paper's: bert-base-cased)
#   DATA=DIR      GLUE's own folders: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE
#   TASKS='cola mrpc'    some of them (default: these eight, as in the paper)
#   DIMS='384 256'       key dimensions (default: 768 384 256 128, the paper's for BERT-base)
#   SEEDS='1 2'   of all trainings (default: 1)
#   EPOCHS=N      of each training (default: 3; 10 of SST-2 and RTE, as in the paper's released code)
#   OUT=DIR       where everything goes (default: runs/glue)
#   OPTIONS='...' further options of fairseq-collab glue, such as '--max-length 64'
#
# Both folders are local; nothing is downloaded. Rows of the table, for each task: concatenated, the
# model fine-tuned; twice, the same fine-tuned once more, for as long as what follows; swapped, its
# heads swapped; collab, these fine-tuned. Only the first's weights are kept.
#
# Interrupt it whenever you like: given again, it goes on; what is done is not done again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OUT=${OUT:-runs/glue}
TASKS=${TASKS:-cola sst2 mrpc stsb qqp mnli qnli rte}
DIMS=${DIMS:-768 384 256 128}
SEEDS=${SEEDS:-1}

for name in MODEL DATA; do
    [ -d "${!name:-}" ] || refuse "$name is '${!name:-}', which is no folder; nothing is downloaded" \
        "(the head of recipes/glue.sh says what belongs there)"
done

enter

# row NAME FROM OPTIONS...: the run OUT/TASK-NAME-SEED, from the model FROM on
row() {
    # shellcheck disable=SC2086  # OPTIONS is several words
    fairseq-collab glue "$2" "$DATA" --task "$task" --seed "$seed" --out "$OUT/$task-$1-$seed" \
        "${cpu[@]}" "${@:3}" ${OPTIONS:-} || note $?
}

for task in $TASKS; do
    case $task in
        sst2 | rte) epochs=${EPOCHS:-10} ;;
        *) epochs=${EPOCHS:-3} ;;
    esac
    for seed in $SEEDS; do
        echo "== $task, seed $seed"
        row concatenated "$MODEL" --epochs "$epochs"
        tuned=$OUT/$task-concatenated-$seed/model
        [ -d "$tuned" ] || continue
        row twice "$tuned" --method twice --epochs "$epochs" --no-model
        for dim in $DIMS; do
            row "swapped-$dim" "$tuned" --method swapped --key-dim "$dim" --epochs 0 --no-model
            row "collab-$dim" "$tuned" --key-dim "$dim" --epochs "$epochs" --no-model
        done
    done
done

echo "== table"
fairseq-collab glue-table "$OUT" --out "$OUT/table"
exit "$failed"
