#!/usr/bin/env bash
# What is measured on a GPU, part by part. Each part's numbers are on the disk before the next one starts.
#
#   DATA=DIR bash recipes/gpu.sh    a folder of fairseq-collab data prepare
#   PARTS='check lengths training long base export'  which parts (default: all)
#   OUT=DIR       where everything goes (default: runs/gpu); what is there is measured again, but no model is
#                 trained or changed again
#   MINUTES=4     of the training in `base`; UPDATES=N sets its length instead
#   TOKENS=16384  in a batch, of `training` and `base`
#   PEAK=989      TFLOP/s of the GPU in bfloat16 without sparsity (default: of an H100 or H200)
#   SWEEP         see recipes/common.sh
#   DEVICE=cpu QUICK=1   tiny models on a CPU: whether it runs
#
# By the step times of one H100 (results/speed.md), the first four parts take about 5, 1, 1 and 4 minutes, and
# `base` takes MINUTES and 3 more; `export` needs no GPU.
#
# check     recipes/gpu_check.sh, with the speed of fixed steps, live slots and the fused kernel (OUT/check.txt)
# lengths   decoding to 32, 128 and 512 tokens in 16 bits, with ordinary and with fixed steps
#           (OUT/lengths.json, OUT/lengths-fixed.json)
# training  updates next to stock fairseq, in both types of 16 bits (OUT/training-fp16.json, OUT/training-bf16.json)
# long      rounded caches, and what live slots leave of caches, at 512 and 2,048 tokens (OUT/long.json)
# base      one model of base size is trained, and made smaller by cache, by parameters and by both: losses on
#           both sets (OUT/base, OUT/cuts, OUT/gpu.json, OUT/table), tokens per second (OUT/speed.json)
# export    these models for ONNX Runtime with int8 (OUT/onnx, OUT/export-*.txt)
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

known=(check lengths training long base export)
read -ra parts <<< "${PARTS:-${known[*]}}"
for part in "${parts[@]}"; do
    [[ " ${known[*]} " == *" $part "* ]] || reject "PARTS: there is no part '$part', but ${known[*]}"
done
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
if wanted base || wanted export; then
    [ -n "${DATA:-}" ] || reject "give DATA=DIR, a folder of fairseq-collab data prepare"
fi
OUT=${OUT:-runs/gpu}
TOKENS=${TOKENS:-16384}
MINUTES=${MINUTES:-4}
DATA=${DATA:-none} enter "$@"
preset=wmt_en_de beam=5 lengths=(32 128 512) long=(512 2048) numbers=(--fp16) formats=(fp16 bf16) threads=()
case ${DEVICE:-cuda} in
    cuda) [ ${#cpu[@]} -eq 0 ] || reject "torch finds no GPU; DEVICE=cpu QUICK=1 tries the recipe on a CPU" ;;
    cpu) device=(common.cpu=true) cpu=(--cpu) numbers=(--bf16) formats=(bf16) ;;   # no CPU trains in fp16
    *) reject "DEVICE is '$DEVICE'; it may be cuda or cpu" ;;
esac
if [ -n "${QUICK:-}" ]; then
    preset=tiny beam=2 lengths=(5 9) long=(9) threads=(--threads 1)   # threads slow a toy down
fi
mkdir -p "$OUT"

# bench FILE OPTIONS...: into OUT/FILE.json
bench() {
    rm -f "$OUT/$1.json"
    fairseq-collab bench --presets $preset "${@:2}" "${cpu[@]}" "${threads[@]}" --out "$OUT/$1.json" || note $?
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
        bench "training-$format" --only training --max-tokens "$TOKENS" "--$format" --seconds "${QUICK:+0.}2"
    done
fi
if wanted long; then
    bench long --lengths "${long[@]}" --beam $beam "${numbers[@]}" \
        --only "standard heads" "standard heads, 4 bits" "latent, a quarter" "latent, a quarter, 4 bits"
fi

whole=$OUT/base/method-standard_seed-1
smaller() {   # NAME OPTIONS...: make the model smaller and measure it
    local file=$OUT/models/$1.pt
    [ -e "$file" ] || fairseq-collab shrink "$whole/average.pt" "$data" "${@:2}" --check "${cpu[@]}" --out "$file" || note $?
    [ ! -e "$file" ] || fairseq-collab score "$file" "$data" --run "$OUT/cuts/$1" --set method="$1" --set common.seed=1 "${cpu[@]}" || note $?
}
if wanted base; then
    # A batch of the benchmark has as many tokens; loading data, and shapes that are new, take the rest of the time.
    # A model that is being trained goes on as it began.
    stop=()
    if [ -z "${UPDATES:-}" ]; then
        # The first epoch may be several times as slow: the training then ends by the clock.
        stop=(optimization.stop_time_hours="$(python -c 'import sys; print(1.2 * float(sys.argv[1]) / 60)' "$MINUTES")")
        [ ! -e "$OUT/updates" ] || UPDATES=$(cat "$OUT/updates")
    fi
    UPDATES=${UPDATES:-$(python - "$OUT/training-bf16.json" "$MINUTES" <<'PY'
import json, sys
records = json.load(open(sys.argv[1]))["records"]
[seconds] = [one["seconds"] for one in records if (one["engine"], one["heads"]) == ("ours", "standard heads")]
print(max(1, int(0.8 * 60 * float(sys.argv[2]) / seconds)))
PY
)} || reject "base: give UPDATES, or measure the part 'training' before"
    count_updates
    echo "$UPDATES" > "$OUT/updates"
    sweep base base method="choice(standard)" common.seed="choice(1)" common.fp16=false common.bf16=true \
        dataset.max_tokens="$TOKENS" "$updates" "${stop[@]}" \
        lr_scheduler.warmup_updates=$((UPDATES / 10)) common.log_interval=$(((UPDATES + 19) / 20))
    [ -e "$whole/average.pt" ] || exit 1
    python - "$whole" "${PEAK:-989}" "$OUT/speed.json" <<'PY' || note $?
import json, pathlib, re, statistics, sys
whole, peak, out = pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3])
lines = re.findall(r'train_inner \| .*"wps": "([\d.]+)"', (whole / "train.log").read_text())
if not lines:
    sys.exit("gpu: the training had too few updates to tell its speed")
words = statistics.median(map(float, lines))   # of the intervals between two lines
score = json.loads((whole / "score.json").read_text())
# Forward and backward: six operations per multiply-add.
operations = 6 * score["multiply_adds"] / score["multiply_adds_length"]
how = {name: score[name] for name in ("command", "commit", "seed", "hardware", "date", "versions")}
row = {"target_tokens_per_second": words, "tflops": peak, "share_of_peak": words * operations / peak / 1e12, **how}
out.write_text(json.dumps(row, indent=2) + "\n")
print(f"{words:.0f} target tokens per second, {row['share_of_peak']:.1%} of {peak:g} TFLOP/s")
PY
    mkdir -p "$OUT/models"
    smaller both --cache 0.125 --parameters 0.66
    if [ -z "${QUICK:-}" ]; then
        smaller cache --cache 0.125
        smaller parameters --parameters 0.66
    fi
    python results/runs.py "$OUT/gpu.json" base="$OUT/base" cuts="$OUT/cuts" || note $?   # with test losses
    fairseq-collab table "$OUT/base" "$OUT/cuts" --x none --score valid_nats --against standard --out "$OUT/table" --force \
        --columns valid_nats,chrf,bleu,parameters || note $?
fi
if wanted export; then
    mkdir -p "$OUT/onnx"
    for file in "$whole/average.pt" "$OUT"/models/*.pt; do
        name=$(basename "$file" .pt)
        [ -z "${QUICK:-}" ] || [ "$name" != average ] || continue
        [ ! -e "$file" ] || [ -e "$OUT/onnx/$name" ] ||
            fairseq-collab export "$file" "$data" --format onnx --int8 --check --out "$OUT/onnx/$name" |
            tee "$OUT/export-$name.txt" || note $?
    done
fi
exit "$failed"
