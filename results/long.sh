#!/usr/bin/env bash
# The models and numbers of long.md: bash results/long.sh DATA, the folder of real text. Some five hours
# of two cores; rerun it to resume it.
set -euo pipefail
text=${1:?give the folder of real text}

# prepare TEXT OUT OPTIONS...: a data folder
prepare() {
    [ -e "$2/manifest.json" ] ||
        fairseq-collab data prepare --text "$1" --source-lang en --target-lang de --out "$2" "${@:3}"
}

# train CONFIGURATION OUT OVERRIDES...: one run with the seed 1
train() {
    fairseq-collab sweep "configs/experiment/$1.yaml" --out "$2" "${@:3}" 'common.seed=choice(1)' common.cpu=true
}

# measure TABLE MODEL DATA OPTIONS...: rows of results/TABLE.json
measure() { python results/measure.py "$1" --model "$2" --data "$3" "${@:4}"; }

[ -e text/wikitext ] || python results/long_text.py "$text" text

prepare text/manuals data/manuals --documents 1,2,5,10,20 --vocab-size 4000
prepare text/manuals data/lines --documents 1 --like data/manuals
manuals=('method=choice(standard)' size=multi30k model.encoder_embed_dim=128 model.dropout=0.1
    model.encoder_normalize_before=true model.decoder_normalize_before=true dataset.max_tokens=2048
    optimization.clip_norm=1 dataset.disable_validation=true)
last=method-standard_seed-1/checkpoints/checkpoint_last.pt
train decide runs/lines "${manuals[@]}" 'optimization.lr=[0.002]' optimization.max_update=4000 task.data=data/lines
train decide runs/manuals "${manuals[@]}" 'optimization.lr=[0.001]' optimization.max_update=2800 \
    task.data=data/manuals checkpoint.finetune_from_model="runs/lines/$last"
measure long manuals-1="runs/manuals/$last" data/manuals --text sentences=data/lines

prepare text/captions data/lists --documents 1,2,4,8,16,32,64 --vocab-size 4000
prepare text/captions data/alone --documents 1 --like data/lists
prepare text/tatoeba data/tatoeba --documents 1 --like data/lists
train decide runs/lists 'method=choice(standard)' dataset.max_tokens=2048 optimization.max_update=7000 task.data=data/lists
measure long lists-1="runs/lists/$last" data/lists --text sentences=data/alone --text other=data/tatoeba --parts models rows
measure long_steps lists-1="runs/lists/$last" data/lists --sentences 60

words=(--only-source --trainpref text/wikitext/train --validpref text/wikitext/valid --testpref text/wikitext/test)
[ -e data/wikitext2/test.idx ] || fairseq-preprocess "${words[@]}" --destdir data/wikitext2
wikipedia=('model=choice(lm_concatenated)' task.tokens_per_sample=1024 model.decoder_layers=3
    model.decoder_embed_dim=256 model.decoder_ffn_embed_dim=512 optimization.max_update=1500 task.data=data/wikitext2)
last=model-lm_concatenated_seed-1/checkpoints/checkpoint_last.pt
train language_model runs/first "${wikipedia[@]}" lr_scheduler.total_num_update=5000
train language_model runs/wikipedia "${wikipedia[@]}" 'optimization.lr=[0.0015]' lr_scheduler.total_num_update=2400 \
    checkpoint.finetune_from_model="runs/first/$last"
measure long wikitext-1="runs/wikipedia/$last" data/wikitext2 --block 64 --sentences 250 --parts models rows
