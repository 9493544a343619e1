#!/usr/bin/env bash
# Train narrow, or train wide and convert? All kinds of heads by one protocol (configs/experiment/decide.yaml):
# from scratch, and converted from each standard model by price; with and without a tenth more updates.
#
#   DATA=DIR bash recipes/decide.sh      a folder of fairseq-collab data prepare
#   OUT (default: runs/decide), JOBS, SWEEP: see recipes/common.sh
#   SEEDS=1,2,3      of all trainings (default: 1,2,3)
#   KINDS='standard own to-latent-4' which kinds, from scratch and converted (default: all). Processes
#                                    with different ones may share OUT; standard comes before to-...
#                                    Tables are made at the end if `tables` is one, or without KINDS
#   WIDTH=128        d of the models
#   HEADS=8          heads of the models, with a folder OUT of their own
#   UPDATES=4800     of each training; a tenth is added by fine-tuning
#   EXPERIMENT=base  models of the base size on a GPU (configs/experiment/base.yaml; 10000 updates)
#   RATES='0.001 0.002 0.003 0.005'  only compare rates, of standard heads or KINDS, with seed 1
#
# Stages: 1 train (OUT/scratch). 2 convert and prune each standard model (OUT/models),
# measure (OUT/converted). 3 fine-tune these, and their kinds of stage 1 for as long (OUT/tuned); train the sizes
# that prices chose for latents from scratch (shape-latent-4). 4 tables, each against its standard heads: of
# 1 and 2 (OUT/table), and of 3 (OUT/tuned/table).
#
# Rerun it to resume it, also with more seeds or kinds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -n "${DATA:-}" ] || reject "give DATA=DIR, a folder of fairseq-collab data prepare"
EXPERIMENT=${EXPERIMENT:-decide}
OUT=${OUT:-runs/$EXPERIMENT}
SEEDS=${SEEDS:-1,2,3}
HEADS=${HEADS:-8}
case $EXPERIMENT in
    base) WIDTH=${WIDTH:-512} UPDATES=${UPDATES:-10000} feed_forward=4 ;;
    *) WIDTH=${WIDTH:-128} UPDATES=${UPDATES:-4800} feed_forward=2 ;;
esac
TUNE=${TUNE:-$(((UPDATES + 9) / 10))}
kinds=(standard own latent-4 normalised-4 full diagonal separate grouped-2 grouped-4 latent-8)   # from scratch
changes=(latent-{4,8} bytes-{8,16} bits-{8,4} even-{4,8} own-{4,8} grouped-{2,4} heads-{3,2})   # of a standard model
known=("${kinds[@]}" "${changes[@]/#/to-}" shape-latent-4 tables)
for kind in ${KINDS:-}; do
    [[ " ${known[*]} " == *" $kind "* ]] || reject "KINDS: there is no kind '$kind', but ${known[*]}"
done
count_updates
width=(model.encoder_embed_dim="$WIDTH" model.encoder_ffn_embed_dim=$((feed_forward * WIDTH)))
heads=model.encoder_attention_heads=$HEADS
enter "$@"

wanted() { [[ -z ${KINDS:-} || " $KINDS " == *" $1 "* ]]; }

# options KIND: how a kind is trained from scratch
options() {
    case $1 in
        standard) echo model=concatenated ;;
        separate) echo model=concatenated model.key_dim=$((WIDTH / 4)) ;;
        own | full | diagonal) echo model=collab model.key_dim=$((WIDTH / 4)) model.query_mixing="$1" ;;
        grouped-2) echo model=grouped_query model.key_value_heads=$((HEADS / 2)) ;;
        grouped-4) echo model=grouped_query model.key_value_heads=$((HEADS / 4)) ;;
        latent-4) echo model=latent model.latent_dim=$((WIDTH / 2)) model.latent_dim_in_encoder="'0'" ;;
        latent-8) echo model=latent model.latent_dim=$((WIDTH / 4)) model.latent_dim_in_encoder="'0'" ;;
        normalised-4) echo model=latent model.latent_dim=$((WIDTH / 2)) model.latent_dim_in_encoder="'0'" model.latent_norm=true ;;
    esac
}

if [ -n "${RATES:-}" ]; then
    for kind in ${KINDS:-standard}; do
        # shellcheck disable=SC2046  # several words
        sweep "$EXPERIMENT" rates method="choice($kind)" optimization.lr="choice([${RATES// /],[}])" \
            common.seed='choice(1)' "${width[@]}" "$heads" "$updates" $(options "$kind")
    done
    fairseq-collab table "$OUT/rates" --x none --score valid_nats --against none || note $?
    exit "$failed"
fi

# tune SEED OPTIONS...: runs of OUT/tuned, a tenth more updates
tune() {
    sweep "$EXPERIMENT" tuned "${width[@]}" "$tuned_updates" \
        lr_scheduler.warmup_updates=0 'optimization.lr=[0.0003]' "${@:2}" common.seed="choice($1)"
}

echo "== 1 train"
for kind in "${kinds[@]}"; do
    wanted "$kind" || continue
    # shellcheck disable=SC2046  # several words
    sweep "$EXPERIMENT" scratch method="choice($kind)" common.seed="choice($SEEDS)" "${width[@]}" "$heads" "$updates" $(options "$kind")
done

echo "== 2 convert"
models=$(real "$OUT/models")
convert() {   # KIND COMMAND OPTIONS...: of the standard model with $seed
    wanted "to-$1" || return 0
    local folder=$models/$seed/model
    mkdir -p "$folder"
    [ -e "$folder/to-$1.pt" ] ||
        fairseq-collab "$2" "$whole" "$data" "${@:3}" --out "$folder/to-$1.pt" "${cpu[@]}" || note $?
    [ ! -e "$folder/to-$1.pt" ] || fairseq-collab score "$folder/to-$1.pt" "$data" --run "$OUT/converted/to-$1_seed-$seed" \
        --set method="to-$1" --set common.seed="$seed" "${cpu[@]}" || note $?
}
for seed in ${SEEDS//,/ }; do
    whole=$OUT/scratch/method-standard_seed-$seed/average.pt
    if [ ! -e "$whole" ]; then
        if [[ " ${KINDS:-to-}" == *" to-"* ]]; then
            echo "decide: nothing is converted with seed $seed: there is no $whole; KINDS=standard trains it" >&2
            failed=1
        fi
        continue
    fi
    convert latent-4 shrink --cache 0.25 --kinds latent --cache-bits none
    convert latent-8 shrink --cache 0.125 --kinds latent --cache-bits none
    convert bytes-8 shrink --cache 0.125 --kinds latent
    convert bytes-16 shrink --cache 0.0625 --kinds latent
    convert bits-8 reparametrize --to separate --key-dim "$WIDTH" --cache-bits 8
    convert bits-4 reparametrize --to separate --key-dim "$WIDTH" --cache-bits 4
    convert even-4 reparametrize --to latent --latent-dim $((WIDTH / 2)) --latent-dim-in-encoder 0
    convert even-8 reparametrize --to latent --latent-dim $((WIDTH / 4)) --latent-dim-in-encoder 0
    convert own-4 shrink --cache 0.625 --kinds collab --cache-bits none
    convert own-8 shrink --cache 0.5625 --kinds collab --cache-bits none
    convert grouped-2 shrink --cache 0.5 --kinds grouped-query --cache-bits none
    convert grouped-4 shrink --cache 0.25 --kinds grouped-query --cache-bits none
    convert heads-3 shrink --heads 0.667
    convert heads-2 shrink --heads 0.5
done

echo "== 3 fine-tune"
for seed in ${SEEDS//,/ }; do
    for kind in standard own latent-4 latent-8 grouped-2 grouped-4; do
        wanted $kind || continue
        run=$OUT/scratch/method-${kind}_seed-$seed
        [ -e "$run/average.pt" ] || continue
        # shellcheck disable=SC2046
        tune "$seed" method="choice($kind)" checkpoint.finetune_from_model="$(real "$run/average.pt")" \
            "$heads" $(options $kind)
    done
    found=("hydra.searchpath=['file://$models/$seed']")   # configurations of converted models
    names=()
    for file in "$models/$seed"/model/to-*.yaml; do
        [ -e "$file" ] || continue
        name=$(basename -s .yaml "$file")
        ! wanted "$name" || names+=("$name")
    done
    [ ${#names[@]} -eq 0 ] || tune "$seed" "$heads" "${found[@]}" model="choice($(IFS=,; echo "${names[*]}"))"
    # the sizes that prices chose, from scratch
    if wanted shape-latent-4 && [ -e "$models/$seed/model/to-latent-4.yaml" ]; then
        sweep "$EXPERIMENT" scratch method="choice(shape-latent-4)" common.seed="choice($seed)" "${width[@]}" "$heads" \
            "$updates" "${found[@]}" model=to-latent-4 checkpoint.finetune_from_model=null
    fi
done

wanted tables || exit "$failed"
echo "== 4 tables"
# A kind has one name in all folders; what had a tenth more updates is compared with what had them, too.
table() {   # RESULT FOLDERS...
    fairseq-collab table "${@:2}" --x none --score valid_nats --against standard --out "$1" --force \
        --columns valid_nats,chrf,bleu,parameters || note $?
}
table "$OUT/table" "$OUT"/{scratch,converted}
table "$OUT/tuned/table" "$OUT/tuned"
exit "$failed"
