#!/usr/bin/env bash
# What is measured on a GPU, part by part. Each part's numbers are on the disk before the next one starts.
#
#   DATA=DIR bash recipes/gpu.sh    a folder of fairseq-collab data prepare
#   PARTS='check lengths training long base'  which parts, in this order (default: all)
#   OUT=DIR       where everything goes (default: runs/gpu); all is measured again, but models that are there stay
#   MINUTES=6     of the training in `base`; UPDATES=N sets its length instead
#   TOKENS=16384  in a batch, of `training` and `base`
#   PEAK=989      TFLOP/s of the GPU in bfloat16 without sparsity (default: of an H100 or H200)
#   JOBS, SWEEP   see recipes/common.sh
#   DEVICE=cpu QUICK=1   tiny models on a CPU: whether it runs
#
# check     recipes/gpu_check.sh, with the speed of fixed steps, live slots and the fused kernel (OUT/check.txt)
# lengths   decoding to 32, 128 and 512 tokens in 16 bits, with ordinary and with fixed steps
#           (OUT/lengths.json, OUT/lengths-fixed.json)
# training  updates next to stock fairseq, in both types of 16 bits (OUT/training-fp16.json, OUT/training-bf16.json)
# long      rounded caches, and what live slots leave of caches, at 512 and 2,048 tokens (OUT/long.json)
# base      one model of base size is trained, made smaller by cache, by parameters and by both, and exported
#           for ONNX Runtime with int8 (OUT/base, OUT/cuts, OUT/export-*.txt, OUT/speed.txt, OUT/gpu.json, OUT/table)
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

known=(check lengths training long base)
read -ra parts <<< "${PARTS:-${known[*]}}"
for part in "${parts[@]}"; do
    [[ " ${known[*]} " == *" $part "* ]] || reject "PARTS: there is no part '$part', but ${known[*]}"
done
[ -n "${DATA:-}" ] || [[ " ${parts[*]} " != *" base "* ]] || reject "give DATA=DIR, a folder of fairseq-collab data prepare"
OUT=${OUT:-runs/gpu}
TOKENS=${TOKENS:-16384}
DATA=${DATA:-none} enter "$@"
preset=wmt_en_de beam=5 lengths=(32 128 512) long=(512 2048) numbers=(--fp16) formats=(fp16 bf16)
case ${DEVICE:-cuda} in
    cuda) [ ${#cpu[@]} -eq 0 ] || reject "torch finds no GPU; DEVICE=cpu QUICK=1 tries the recipe on a CPU" ;;
    cpu) device=(common.cpu=true) cpu=(--cpu) numbers=(--bf16) formats=(bf16) ;;   # no CPU trains in fp16
    *) reject "DEVICE is '$DEVICE'; it may be cuda or cpu" ;;
esac
threads=()
if [ -n "${QUICK:-}" ]; then
    threads=(--threads 1)   # a toy waits for its threads
    preset=tiny beam=2 lengths=(5 9) long=(9)
fi
mkdir -p "$OUT"
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# bench FILE OPTIONS...: into OUT/FILE.json
bench() {
    fairseq-collab bench --presets $preset "${@:2}" "${cpu[@]}" "${threads[@]}" --out "$OUT/$1.json" --force || note $?
}

if wanted check; then
    DEVICE=${DEVICE:-cuda} bash recipes/gpu_check.sh | tee "$OUT/check.txt" || note $?
fi
if wanted lengths; then
    some=(--lengths "${lengths[@]}" --beam $beam --only "standard heads" "latent, a quarter" "${numbers[@]}")
    bench lengths "${some[@]}"
    FAIRSEQ_COLLAB_FIXED_STEPS=1 bench lengths-fixed "${some[@]}"
fi
if wanted training; then
    for format in "${formats[@]}"; do
        bench "training-$format" --max-tokens "$TOKENS" "--$format" --seconds "${QUICK:+0.}2"
    done
fi
if wanted long; then
    bench long --lengths "${long[@]}" --beam $beam "${numbers[@]}" \
        --only "standard heads" "standard heads, 4 bits" "latent, a quarter" "latent, a quarter, 4 bits"
fi
wanted base || exit "$failed"

# A batch of the benchmark has as many tokens; loading data, and shapes that are new, take the rest of the time.
UPDATES=${UPDATES:-$(python - "$OUT/training-bf16.json" "${MINUTES:-6}" <<'PY'
import json, sys
records = json.load(open(sys.argv[1]))["records"]
[seconds] = [one["seconds"] for one in records
             if (one["task"], one["engine"], one["heads"]) == ("training", "ours", "standard heads")]
print(max(1, int(0.8 * 60 * float(sys.argv[2]) / seconds)))
PY
)} || reject "base: give UPDATES, or measure the part 'training' before"
count_updates
sweep base base method="choice(standard)" common.seed="choice(1)" common.fp16=false common.bf16=true \
    dataset.max_tokens="$TOKENS" "$updates" lr_scheduler.warmup_updates=$((UPDATES / 10))
whole=$OUT/base/method-standard_seed-1
[ -e "$whole/average.pt" ] || exit 1
python - "$whole" "${PEAK:-989}" <<'PY' | tee "$OUT/speed.txt"
import json, pathlib, re, sys
whole = pathlib.Path(sys.argv[1])
words = float(re.findall(r'"train_wps": "([\d.]+)"', (whole / "train.log").read_text())[-1])
score = json.loads((whole / "score.json").read_text())
# Forward and backward: six operations per multiply-add.
operations = 6 * score["multiply_adds"] / score["multiply_adds_length"]
share = words * operations / (float(sys.argv[2]) * 1e12)
print(f"last epoch: {words:.0f} target tokens a second, {share:.1%} of {sys.argv[2]} TFLOP/s")
PY
mkdir -p "$OUT/models"
cut() {   # NAME OPTIONS...: made smaller, measured and exported
    local file=$OUT/models/$1.pt
    [ -e "$file" ] || fairseq-collab shrink "$whole/average.pt" "$data" "${@:2}" --check "${cpu[@]}" --out "$file" || note $?
    [ -e "$file" ] || return 0
    fairseq-collab score "$file" "$data" --run "$OUT/cuts/$1" --set method="$1" --set common.seed=1 "${cpu[@]}" || note $?
    [ -e "$OUT/models/onnx-$1" ] ||
        fairseq-collab export "$file" "$data" --format onnx --int8 --check --out "$OUT/models/onnx-$1" |
        tee "$OUT/export-$1.txt" || note $?
}
cut both --cache 0.125 --parameters 0.66
if [ -z "${QUICK:-}" ]; then
    cut cache --cache 0.125
    cut parameters --parameters 0.66
fi
python results/runs.py "$OUT/gpu.json" base="$OUT/base" cuts="$OUT/cuts" || note $?   # with test losses
fairseq-collab table "$OUT/base" "$OUT/cuts" --x none --score valid_nats --against standard --out "$OUT/table" --force \
    --columns valid_nats,chrf,bleu,parameters || note $?
exit "$failed"
