#!/usr/bin/env bash
# WMT14 and IWSLT14, from download to BLEU: base models as the papers train them (docs/papers.md).
#
#   bash recipes/papers.sh iwslt14 de-en grouped_pruned
#   FROM=DIR VARIANT=google GPUS=8 bash recipes/papers.sh wmt14 en-de collab
#   DRY_RUN=1 bash recipes/papers.sh wmt14 en-fr vanilla
#
# Corpora: wmt14 en-de and en-fr; iwslt14 de-en, en-de, it-en, en-it and en-fr. Methods:
#
#   vanilla         fairseq's transformer
#   collab          shared keys of width KEY_DIM=128 (arXiv 2006.16362)
#   concatenated    separate keys of that width
#   key_widths      that paper's table 1: both, with 512, 256, 128 and 64, and two seeds
#   headsize        heads of HEAD_SIZE=128, not d/H (arXiv 2002.07028 has no translation)
#   grouped         8 heads in 2 groups: GHT of arXiv 2305.14380
#   grouped_pruned  that paper's GHT-PS: then votes, keeps a head a group, and fine-tunes
#   gated           gates on the vanilla model, which is trained first (arXiv 1905.09418); then
#                   removes closed heads, and fine-tunes; a gate costs GATE_PENALTY=0.0056
#
#   VARIANT=V   variant of the corpus: see `fairseq-collab data wmt14 --help`
#   GPUS=N      GPUs of a training (default: 1); the batch does not depend on it; 0: the CPU
#   DRY_RUN=1   print every command, run none
#   FROM        folder of the archives
#   DATA, OUT (default: runs/CORPUS-PAIR), JOBS, SWEEP: see recipes/common.sh
#
# Rerun it to resume it. OUT/table has all runs of OUT. What a paper leaves open is marked "ours" in configs/experiment/.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

corpus=${1:-} pair=${2:-} method=${3:-}
# Batches of an update: GPUs of the paper x --update-freq
case $corpus-$pair in
    wmt14-en-de) experiment=wmt14 variant=wmt14 batches=8 ;;
    wmt14-en-fr) experiment=wmt14_en_fr variant=fairseq batches=8 ;;
    iwslt14-de-en | iwslt14-en-de | iwslt14-it-en | iwslt14-en-it | iwslt14-en-fr)
        experiment=iwslt14 variant=fairseq batches=1 ;;
    *) reject "corpus '$corpus $pair': see --help" ;;
esac
OUT=${OUT:-runs/$corpus-$pair}
data=${DATA:-$OUT/data}
GPUS=${GPUS:-1}

if [ "$GPUS" = 0 ]; then
    cpu=(--cpu) ours=1
    device=(common.cpu=true common.fp16=false dataset.num_workers=0)   # no fp16 on a CPU
else
    [[ $GPUS =~ ^[1248]$ ]] && [ $((batches % GPUS)) -eq 0 ] ||
        reject "GPUS is '$GPUS'; give a divisor of $batches, the batches of an update, or 0 (CPU)"
    cpu=() ours=$GPUS device=("distributed_training.distributed_world_size=$GPUS")
fi
device+=("optimization.update_freq=[$((batches / ours))]"
    "task.source_lang=${pair%-*}" "task.target_lang=${pair#*-}")

# arXiv 2305.14380's feature, alpha and beta of the constraint
constraint() {
    sed -n "s/^$method $corpus $pair //p" << END
grouped iwslt14 de-en value 0.7 0.5
grouped iwslt14 en-de attention 0.3 0.1
grouped iwslt14 en-fr value 0.7 0.7
grouped iwslt14 en-it value 0.3 0.3
grouped iwslt14 it-en value 0.3 0.5
grouped_pruned iwslt14 de-en output 0.5 0.7
grouped_pruned iwslt14 en-de output 0.3 0.7
grouped_pruned iwslt14 en-fr attention 0.5 0.3
grouped_pruned iwslt14 en-it value 0.3 1.0
grouped_pruned iwslt14 it-en attention 0.3 0.3
grouped wmt14 en-de value 0.5 0.5
grouped wmt14 en-fr value 0.3 0.3
grouped_pruned wmt14 en-de value 0.5 0.5
grouped_pruned wmt14 en-fr value 0.3 0.3
END
}

case $method in
    vanilla) chosen=("model=choice(vanilla)") ;;
    collab | concatenated)
        chosen=("model=choice(fork_$method)" "model.key_dim=choice(${KEY_DIM:-128})"
            "common.seed=choice(1)") ;;   # the name of the run of key_widths that it is
    key_widths)
        chosen=("model=choice(fork_collab,fork_concatenated)" "model.key_dim=choice(512,256,128,64)"
            "common.seed=choice(1,2)") ;;
    headsize) chosen=("model=choice(concatenated)" "model.head_size=choice(${HEAD_SIZE:-128})") ;;
    grouped | grouped_pruned)
        read -r feature alpha beta < <(constraint)
        run=model-grouped_head_groups-2_group_feature-$feature
        run+=_group_alpha-${alpha}_group_beta-$beta
        chosen=("model=choice(grouped)" "model.head_groups=choice(2)"
            "model.group_feature=choice($feature)"
            "criterion.group_alpha=choice($alpha)" "criterion.group_beta=choice($beta)") ;;
    gated)   # the sample of the paper's code, 0.1, is a mean over 18 attentions: 0.1/18
        GATE_PENALTY=${GATE_PENALTY:-0.0056}
        run=model-gated_gate_penalty-$GATE_PENALTY
        chosen=("model=choice(gated)" "criterion.gate_penalty=choice($GATE_PENALTY)"
            "checkpoint.finetune_from_model=$(real "$OUT/runs/model-vanilla/average.pt")") ;;
    *) reject "method '$method': see --help" ;;
esac

if [ -n "${DRY_RUN:-}" ]; then
    show() { printf '%q ' "$@"; echo; }
    fairseq-collab() { show fairseq-collab "$@"; }
    mkdir() { show mkdir "$@"; }
else
    own_environment
    set_variables
    if [ "$GPUS" != 0 ]; then   # now, not after hours of text
        found=$(python -c "import torch; print(torch.cuda.device_count())")
        [ "$found" != 0 ] || reject "no GPU found; give GPUS=0 to train on the CPU"
        [ "$found" -ge "$GPUS" ] || reject "found $found of $GPUS GPUs; give a smaller GPUS"
    fi
fi
jobs=1

echo "== data"
[ -n "${DATA:-}" ] ||
    fairseq-collab data "$corpus" --pair "$pair" --variant "${VARIANT:-$variant}" \
        ${FROM:+--from "$FROM"} --out "$data" --jobs "$(cores)"

echo "== train, average, translate, score"
[ "$method" != gated ] || sweep "$experiment" runs "model=choice(vanilla)"
sweep "$experiment" runs "${chosen[@]}"

if [[ $method == grouped_pruned || $method == gated ]]; then
    echo "== remove heads, fine-tune the rest"
    average=$OUT/runs/$run/average.pt votes=$OUT/pruned/$run.votes.json which=(--gates)
    pruned=$OUT/pruned/model
    mkdir -p "$pruned"
    if [ "$method" = grouped_pruned ]; then
        which=(--votes "$votes")
        [ -e "$votes" ] || fairseq-collab vote "$average" "$data" "${cpu[@]}" --out "$votes" || note $?
    fi
    take_out "$run" "$average" "${which[@]}" --no-refit   # as both papers
    sweep "$experiment" runs "model=choice($run)" \
        "hydra.searchpath=['file://$(real "$OUT/pruned")']"
fi

echo "== the scores"
fairseq-collab score "$OUT/runs" || note $?
x=none
[ "$method" != key_widths ] || x=key_dim
fairseq-collab table "$OUT/runs" --x $x --out "$OUT/table" --force || note $?
exit "$failed"
