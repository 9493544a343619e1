# What recipes share: the environment, the data of small experiments, and trainings. Recipes source it;
# from then on they run in the root of the repository.
#
# Variables of every recipe that trains:
#   FROM=DIR    folder of the raw text (downloaded without it)
#   DATA=DIR    prepared data folder (default: data/multi30k, made if need be)
#   OUT=DIR     folder of all results
#   JOBS=N      trainings at a time (default: one per CPU core, or one on a GPU)
#   SWEEP='...' further Hydra overrides of all trainings. With DATA, a recipe runs on other text:
#               SWEEP='task.source_lang=de task.target_lang=en size=multi30k train=multi30k'; separate
#               dictionaries need model.share_all_embeddings=false
# shellcheck shell=bash

# Before bash 4.4 (macOS has 3.2), an array without elements counts as an unbound variable.
(none=() && : "${none[@]}") 2>/dev/null || set +u

case ${1:-} in   # the comment that the recipe starts with
    -h | --help) sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# reject WORDS...: end the recipe with a reason.
reject() {
    echo "$(basename "$0" .sh): $*" >&2
    exit 2
}

# cores: how many this process may use (nproc alone says how many threads OpenMP may have).
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

# real PATH: absolute, links followed, whether it is there or not.
real() { [ -n "$1" ] && python3 -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$1"; }

# activate [--dev]: makes the environment, if need be, and enters it.
activate() {
    bash recipes/setup.sh "$@"
    # shellcheck disable=SC1091  # made just now
    source "${VENV:-.venv}/bin/activate"
}

# own_environment: enters the environment, if need be; ends the recipe if that has other code than this copy.
own_environment() {
    local root
    command -v fairseq-collab > /dev/null || activate
    # Without the current folder, which commands do not import from.
    root=$(python -c 'import sys; sys.path = [one for one in sys.path if one]
import collab_common; print(collab_common.__path__[0])')
    root=${root%/*}
    python - "$root" <<'PY' ||
import sys; from pathlib import Path; sys.path.insert(0, ".")
from collab_common.provenance import hash_of_code
sys.exit(hash_of_code(Path(sys.argv[1])) != hash_of_code(Path(".")))
PY
        reject "the environment has other code than $PWD, that of $root: pip install -e . here, or leave it"
}

# What every training of ours has in its environment.
set_variables() {
    export PYTHONWARNINGS=ignore   # deprecations inside fairseq, which no reader can fix
    # Large tensors then reuse memory instead of mapping it anew: training on a CPU is faster.
    export MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184
    export MALLOC_TOP_PAD_=268435456
}

# count_updates: `updates` and `tuned_updates`, the overrides of trainings and of fine-tuning.
count_updates() {
    UPDATES=${UPDATES:-3400}
    [[ $UPDATES =~ ^[1-9][0-9]*$ && ${TUNE:-1} =~ ^[1-9][0-9]*$ ]] ||
        reject "UPDATES is '$UPDATES', TUNE '${TUNE:-}'; they must be numbers"
    TUNE=${TUNE:-$((UPDATES / 2))}
    updates=optimization.max_update=$UPDATES tuned_updates=optimization.max_update=$TUNE
}

# find_device: `device` (overrides for Hydra), `cpu` (options of commands) and `jobs` (runs at a
# time), as the machine has a GPU or none.
find_device() {
    if python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        device=() cpu=() jobs=1
    else
        device=(common.cpu=true) cpu=(--cpu) jobs=$(cores)
    fi
}

# enter "$@": the environment, made if there is none; the device; Multi30k in `data`, unless DATA is
# given. These recipes take variables and no arguments.
enter() {
    [ $# -eq 0 ] || reject "unknown argument '$1' (see --help)"
    own_environment
    set_variables
    find_device
    data=${DATA:-data/multi30k}
    [ -n "${DATA:-}" ] ||
        fairseq-collab data multi30k --vocab-size 4000 ${FROM:+--from "$FROM"} --out "$data"
}

# made_of NAME FILE...: end the recipe if OUT holds what it made of other files of this name.
made_of() {
    local sum one file=$OUT/made_of_$1.txt
    for one in "${@:2}"; do [ -e "$one" ] || reject "$1: there is no $one"; done
    mkdir -p "$OUT"
    sum=$(cat "${@:2}" | cksum)
    [ ! -e "$file" ] || [ "$(cat "$file")" = "$sum" ] ||
        reject "$OUT holds what was made of another $1; give another OUT"
    echo "$sum" > "$file"
}

failed=0   # exit status of the recipe: 1 after a failure

# COMMAND || note $?: after a failure the recipe continues; an interruption ends it.
note() {
    [ "$1" -le 1 ] || exit "$1"
    failed=1
}

# sweep EXPERIMENT FOLDER OVERRIDES...: train and score the runs of a file of configs/experiment in
# OUT/FOLDER, on the data folder `data`.
sweep() {
    # shellcheck disable=SC2086  # SWEEP is several words
    fairseq-collab sweep "configs/experiment/$1.yaml" --out "$OUT/$2" \
        --jobs "${JOBS:-$jobs}" "task.data=$data" "${device[@]}" "${@:3}" ${SWEEP:-} ||
        note $?
}

# take_out FILE MODEL OPTIONS...: prune a model to the file `pruned`/FILE.pt, once.
take_out() {
    [ -e "$pruned/$1.pt" ] || fairseq-collab prune "$2" "$data" "${cpu[@]}" "${@:3}" --out "$pruned/$1.pt" || note $?
}

# tune_pruned EXPERIMENT FOLDER MODELS SEED OVERRIDES...: train the models of the folder MODELS/model, which
# `prune` wrote with a configuration next to each, as runs of OUT/FOLDER.
tune_pruned() {
    local names
    compgen -G "$3/model/*.yaml" > /dev/null || return 0
    names=$(basename -s .yaml "$3"/model/*.yaml | paste -sd ,)
    sweep "$1" "$2" "hydra.searchpath=['file://$3']" model="choice($names)" \
        common.seed="choice($4)" "${@:5}"
}
