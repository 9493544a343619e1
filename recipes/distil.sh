#!/usr/bin/env bash
# Cut a trained model, or train a small one? All of them on the text, and on the trained model's
# translations of it (sequence-level distillation, Kim and Rush 2016, arXiv 1606.07947).
#
#   MODEL=FILE DATA=DIR TEXT=DIR bash recipes/distil.sh
#   MODEL=FILE       the trained model, with standard heads: the average.pt of a run of configs/experiment/decide.yaml
#   DATA=DIR         the data folder that it was trained on
#   TEXT=DIR         the text of that folder: train.en, train.de, and the same for valid and test
#   OUT=DIR          where everything goes (default: runs/distil)
#   CUT='...'        how far `shrink` goes (default: --time 0.75 --time-in ENGINE-int8 --batch 32 --length 15,
#                    where ENGINE stands for the engine)
#   ENGINES='onnx'   for which the model is cut, one cut each: onnx, ct2 (default: onnx)
#   NARROW='...', SHALLOW='...'    Hydra overrides of the small models (default: five eighths of a width of 128;
#                    one decoder layer); '' leaves one out
#   SIZE='...'       Hydra overrides of the trained model's size and heads, if they are not those of decide.yaml
#   UPDATES=3400     of each training from scratch
#   TUNE=2300        of each fine-tuning of a cut, and of the whole and the small models (default: two thirds of
#                    UPDATES)
#   SEED=1           of all trainings
#   JOBS, SWEEP      see recipes/common.sh
#
# Stages: 1 translate the training text, in parts that are kept, with the model in ONNX Runtime (int8).
# 2 prepare it with the model's subwords (OUT/data). 3 cut (OUT/models). 4 train and fine-tune
# (OUT/text, OUT/distilled), measure the model, its cuts, and what was distilled (OUT/measured). 5 the table
# of all (OUT/table): by BLEU and chrF, because losses of distilled models on references say little.
#
# Rerun it to resume it.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -n "${MODEL:-}" ] || reject "give MODEL=FILE, the trained model (see --help)"
[ -n "${DATA:-}" ] || reject "give DATA=DIR, the data folder that the model was trained on"
[ -n "${TEXT:-}" ] || reject "give TEXT=DIR, the text of that data folder"
OUT=${OUT:-runs/distil}
SEED=${SEED:-1}
CUT=${CUT:---time 0.75 --time-in ENGINE-int8 --batch 32 --length 15}
TUNE=${TUNE:-$((${UPDATES:-3400} * 2 / 3))}
read -ra narrow <<< "${NARROW-model.encoder_embed_dim=80 model.encoder_ffn_embed_dim=160 model.encoder_attention_heads=5}"
read -ra shallow <<< "${SHALLOW-model.decoder_layers=1}"
read -ra engines <<< "${ENGINES:-onnx}"
read -ra size <<< "${SIZE:-}"
count_updates
enter "$@"
source_lang='' target_lang=''
read -r source_lang target_lang < <(python - "$DATA" <<'PY'
import json, pathlib, sys
options = json.loads(pathlib.Path(sys.argv[1], "manifest.json").read_text())["options"]
print(options["source_lang"], options["target_lang"])
PY
) || reject "$DATA has no manifest.json: fairseq-collab data prepare makes such a folder"
for side in "$source_lang" "$target_lang"; do
    [ -e "$TEXT/train.$side" ] || reject "TEXT: there is no $TEXT/train.$side"
done
made_of MODEL "$MODEL"
made_of TEXT "$TEXT"/*."$source_lang" "$TEXT"/*."$target_lang"
made_of CUT <(echo "$CUT")
made_of SEED <(echo "$SEED")

echo "== 1 translate the training text"
parts=$OUT/parts
mkdir -p "$parts"
[ -e "$OUT/engine/config.json" ] ||
    fairseq-collab export "$MODEL" "$DATA" --format onnx --int8 --out "$OUT/engine"
[ -e "$parts/split" ] || { split -l 2000 -d -a 5 "$TEXT/train.$source_lang" "$parts/source-"; touch "$parts/split"; }
number=0 all=$(find "$parts" -name 'source-*' | wc -l)
for part in "$parts"/source-*; do
    number=$((number + 1)) translated=$parts/target-${part##*-}
    [ ! -e "$translated" ] || continue
    echo "part $number of $all"
    python "$OUT/engine/translate.py" --threads "${JOBS:-$(cores)}" < "$part" > "$translated.partial"
    mv "$translated.partial" "$translated"
done

echo "== 2 prepare"
if [ ! -e "$OUT/data/manifest.json" ]; then
    mkdir -p "$OUT/translations"
    for file in "$TEXT"/*."$source_lang" "$TEXT"/*."$target_lang"; do cp "$file" "$OUT/translations"; done
    cat "$parts"/target-* > "$OUT/translations/train.$target_lang"
    fairseq-collab data prepare --text "$OUT/translations" --source-lang "$source_lang" \
        --target-lang "$target_lang" --like "$DATA" --out "$OUT/data"
fi

echo "== 3 cut"
models=$(real "$OUT/models")
mkdir -p "$models/model"
for engine in "${engines[@]}"; do
    read -ra cut <<< "${CUT//ENGINE/$engine}"
    [ -e "$models/model/cut-$engine.pt" ] ||
        fairseq-collab shrink "$MODEL" "$DATA" "${cut[@]}" --for "$engine" "${cpu[@]}" \
            --out "$models/model/cut-$engine.pt" || note $?
done

echo "== 4 train"
# measure METHOD MODEL: its scores, as it is
measure() {
    fairseq-collab score "$2" "$DATA" --run "$OUT/measured/$1" --set method="$1" \
        --set common.seed="$SEED" "${cpu[@]}" || note $?
}
# train METHOD OVERRIDES...: on `folder`, a run of OUT/text or OUT/distilled
train() {
    sweep decide "$folder" method="choice($1-$folder)" common.seed="choice($SEED)" "${size[@]}" "${@:2}"
    [ "$folder" = distilled ] || return 0
    # A table compares scores on one data folder: the trained model's.
    local found
    for found in "$OUT/distilled/method-$1-distilled_seed-$SEED"*/average.pt; do
        [ ! -e "$found" ] || measure "$1-distilled" "$found"
    done
}
# tune METHOD MODEL OVERRIDES...
tune() {
    train "$1" "$tuned_updates" lr_scheduler.warmup_updates=$((TUNE / 5)) \
        checkpoint.finetune_from_model="$(real "$2")" "${@:3}"
}
# again METHOD OVERRIDES...: train on what `train` has trained
again() {
    local found
    for found in "$OUT/$folder/method-$1-${folder}_seed-$SEED"*/average.pt; do
        [ ! -e "$found" ] || tune "$1-again" "$found" "${@:2}"
    done
}
# small METHOD OVERRIDES...: a small model; a cut one has two trainings, so it gets a second one as long
small() {
    [ $# -gt 1 ] || return 0
    train "$1" "$updates" "${@:2}"
    again "$@"
}
measure whole "$MODEL"
for folder in text distilled; do
    data=$DATA
    if [ "$folder" = text ]; then
        tune whole "$MODEL"   # for as long as a cut, to compare it with
        compgen -G "$OUT/text/method-whole-text_seed-$SEED*/average.pt" > /dev/null ||
            reject "the model was not trained on, for the reason above: SIZE must have all options of its size and heads"
    else
        data=$OUT/data
    fi
    for engine in "${engines[@]}"; do
        file=$models/model/cut-$engine.pt
        [ -e "$file" ] || continue
        measure "cut-$engine" "$file"
        tune "cut-$engine" "$file" "hydra.searchpath=['file://$models']" model="choice(cut-$engine)"
    done
    small narrow "${narrow[@]}"
    small shallow "${shallow[@]}"
done

echo "== 5 table"
fairseq-collab table "$OUT"/{measured,text} --x none --score bleu --against whole --out "$OUT/table" --force \
    --columns bleu,chrf,parameters || note $?
exit "$failed"
