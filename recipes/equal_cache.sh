#!/usr/bin/env bash
# Which way of sharing is best at an equal KV cache? Multi-query, grouped-query and latent heads and
# shared keys, next to standard heads: trained from scratch, and converted from one trained model.
#
#   bash recipes/equal_cache.sh multi30k
#   MFA and full query mixing with fewer value heads, at 1/2, 1/4 and 1/8 of the cache:
#   METHODS='plain mfa collab_full-values' BUDGETS='256 128 64' UPDATES=0 bash recipes/equal_cache.sh multi30k
#   (with SIZE=small: BUDGETS='128 64 32')
#   FROM, DATA, OUT (default: runs/equal_cache_multi30k), JOBS, SWEEP: see recipes/common.sh
#   SEEDS=1,2        of the trainings from scratch
#   SIZE=small       the models' size, of configs/size: multi30k (default, d = 256) or small (d = 128)
#   BUDGETS='128 64' cached numbers per token and layer (default: 3/4, 5/8, 1/2, 1/4 and 1/8 of the 2 d
#                    numbers of standard heads)
#   METHODS='latent' the methods, of those below (default: all)
#   TRAINED=FILE     a model to convert; nothing is trained from scratch (default: standard heads of
#                    stage 1, first seed)
#   UPDATES=N        of the fine-tuning, 0 for none (default: that of
#                    configs/experiment/reparametrize_finetune_multi30k.yaml)
#
# Stages: 1 train (OUT/scratch), one model for each method that can have the budget:
#     plain           standard heads with their whole cache
#     smaller-keys    standard heads with narrower queries and keys
#     fewer-heads     fewer standard heads, and wider feed-forward layers, so that the model has the
#                     parameters of grouped-query heads (or of smaller keys, which need no wider ones)
#     collab_diagonal     shared keys, diagonal query mixing; collab_diagonal-values: with values that are
#                     shared in groups
#     collab_full-values  shared keys, full query mixing, values that are shared in groups
#     mfa             one key and one value for all heads, each of half of the cached numbers
#     grouped-query   or multi-query, with one group
#     latent
# 2 convert (OUT/models, OUT/converted): to collab_own, collab_own-values (each head has its own query),
# grouped-query, latent. 3 fine-tune the converted models, and the standard heads for as
# long (OUT/tuned). 4 tables, in OUT/scratch/table and OUT/converted/table.
#
# Rerun it to resume it, also with more seeds or budgets.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

choose_dataset "multi30k" "$@"
OUT=${OUT:-runs/equal_cache_$DATASET}
SEEDS=${SEEDS:-1,2}
SIZE=${SIZE:-multi30k}
# Of the models: configs/size and configs/experiment.
case $SIZE in
    multi30k) width=256 of_size=() ;;
    small) width=128 of_size=(size=small train=multi30k_small) ;;
    *) reject "SIZE is '$SIZE'; it must be multi30k or small" ;;
esac
heads=8 units=$((2 * width)) size=$((width / 8))
some="$((width * 3 / 2)) $((width * 5 / 4)) $width $((width / 2)) $((width / 4))"
BUDGETS=${BUDGETS:-$some}
for cache in $BUDGETS; do
    [[ " $some " == *" $cache "* ]] || reject "BUDGETS has '$cache'; it must be some of $some"
done

enter

# sizes CACHE: the sizes at which each method caches CACHE numbers per token; by default half are keys.
sizes() {
    few=$(($1 / 2 / size))            # heads, or groups of them, with keys and values of their own
    keys=$(($1 - width))              # next to a value for each head; none are left of half the cache
    values=$((few < heads / 2 ? few : heads / 2))   # groups of values, and the keys next to them
    keys_too=$(($1 - values * size))
    wider=$((keys > 0 ? 0 : width - $1 / 2))        # units that cost as much as the queries and outputs
}

# wanted METHOD: whether it is one of METHODS.
wanted() { [[ -z ${METHODS:-} || " $METHODS " == *" $1 "* ]]; }

train() {   # METHOD OVERRIDES...
    wanted "$1" && [ -z "${TRAINED:-}" ] || return 0
    sweep "equal_cache_$DATASET" scratch method="choice($1)" common.seed="choice($SEEDS)" \
        "${of_size[@]}" "${@:2}"
}

echo "== 1 train"
train plain
for cache in $BUDGETS; do
    sizes "$cache"
    if [ "$keys" -gt 0 ]; then
        train smaller-keys model.key_dim="choice($keys)"
        train collab_diagonal model=collab_diagonal model.key_dim="choice($keys)"
    else
        [ "$few" -gt 1 ] && name=grouped-query || name=multi-query
        train "$name" model=grouped_query model.key_value_heads="choice($few)"
    fi
    train collab_diagonal-values model=collab_diagonal model.key_dim="choice($keys_too)" \
        model.value_heads=$values
    train collab_full-values model=collab model.key_dim="choice($keys_too)" model.value_heads=$values
    train mfa model=mfa model.key_dim="choice($((cache / 2)))"
    train latent model=latent model.latent_dim="choice($cache)"
    train fewer-heads model.head_size=$size model.encoder_attention_heads="choice($few)" \
        model.encoder_ffn_embed_dim=$((units + wider)) model.decoder_ffn_embed_dim=$((units + 2 * wider))
done

echo "== 2 convert and measure"
given=${TRAINED:+given}
TRAINED=${TRAINED:-$OUT/scratch/method-plain_seed-${SEEDS%%,*}/average.pt}
models=$(real "$OUT/models")

# convert METHOD CACHE OPTIONS...: OUT/models/METHOD-CACHE, measured
convert() {
    wanted "$1" || return 0
    local folder=$models/$1-$2
    convert_heads "$TRAINED" "$folder" "${@:3}"
    measure "$1-$2" "$1" "$folder/model.pt"
}
measure() {   # RUN METHOD MODEL
    wanted "$2" || return 0
    fairseq-collab score "$3" "$data" --run "$OUT/converted/$1" --set method="$2" "${cpu[@]}"
}

measure plain plain "$TRAINED"
for cache in $BUDGETS; do
    sizes "$cache"
    if [ "$keys" -gt 0 ]; then
        convert collab_own "$cache" --key-dim "$keys"
    else
        convert grouped-query "$cache" --to grouped-query --key-value-heads "$few"
        convert latent "$cache" --to latent --latent-dim "$cache"
    fi
    convert collab_own-values "$cache" --key-dim "$keys_too" --value-heads $values
done

echo "== 3 fine-tune"
tune() {   # METHOD MODEL OVERRIDES...
    wanted "$1" && [ "${UPDATES:-}" != 0 ] || return 0
    sweep "reparametrize_finetune_$DATASET" tuned method="choice(tuned-$1)" common.seed="choice(1)" \
        model.encoder_attention_heads=$heads "${of_size[@]}" checkpoint.finetune_from_model="$2" \
        ${UPDATES:+optimization.max_update="$UPDATES"} "${@:3}"
}
tune plain "$(real "$TRAINED")" model=concatenated
for cache in $BUDGETS; do
    sizes "$cache"
    if [ "$keys" -gt 0 ]; then
        tune collab_own "$models/collab_own-$cache/model.pt" model=reparametrized \
            model.key_dim="choice($keys)"
    else
        tune grouped-query "$models/grouped-query-$cache/model.pt" \
            model=grouped_query model.key_value_heads="choice($few)"
        tune latent "$models/latent-$cache/model.pt" model=latent model.latent_dim="choice($cache)"
    fi
    tune collab_own-values "$models/collab_own-values-$cache/model.pt" model=reparametrized \
        model.key_dim="choice($keys_too)" model.value_heads=$values
done

echo "== 4 tables"
tabulate() {   # FOLDERS...: OUT/FIRST/table
    local bytes=cache_bytes_per
    fairseq-collab table "${@/#/$OUT/}" --x ${bytes}_target_token --against none --out "$OUT/$1/table" --force \
        --columns bleu,chrf,valid_nats,${bytes}_target_token,${bytes}_source_token,parameters,multiply_adds
}
[ -n "$given" ] || tabulate scratch
wanted plain || exit "$failed"   # without which nothing was converted
if [ "${UPDATES:-}" = 0 ]; then tabulate converted; else tabulate converted tuned; fi
exit "$failed"
