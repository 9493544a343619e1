# What recipes share: the environment, and the data of small experiments. Sourced by them, from
# anywhere; they go on in the root of the repository.
# shellcheck shell=bash

# shellcheck source=recipes/portable.sh
source "$(dirname "${BASH_SOURCE[0]}")/portable.sh"

case ${1:-} in   # the comment that the recipe starts with
    -h | --help) sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# refuse WORDS...: what is wrong with what was asked for ends the recipe.
refuse() {
    echo "$(basename "$0" .sh): $*" >&2
    exit 2
}

# Of a prepared folder, see choose_dataset and fairseq_collab/runs/prepared.py.
prepared=() of_data=() tuning=() third=()

# choose_dataset NAMES ARGUMENTS...: `DATASET`, one of NAMES, whose data folder is DATA or is made; or any
# prepared folder, on which the experiments of multi30k are run:
#   --data DIR --source-lang S --target-lang T [--size Z] [--train X]    of configs/size and configs/train
# `experiments` is whose they are.
choose_dataset() {
    local names=$1 given words=()
    DATASET=${2:-} experiments=${2:-}
    if [[ $DATASET != --* ]]; then
        given=${names% *}
        [[ -n $DATASET && " $names " == *" $DATASET "* ]] ||
            refuse "DATASET is '$DATASET'; it must be ${given// /, } or ${names##* }, or" \
                "options: --data DIR --source-lang S --target-lang T"
        return
    fi
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --data) DATA=$(cd "$OLDPWD" && real "${2:-}") && shift ;;   # where the user is
            *) words+=("$1") ;;
        esac
        shift
    done
    [ -n "${DATA:-}" ] || refuse "which folder? Give --data DIR"
    DATASET=$(basename "$DATA") experiments=multi30k prepared=("$DATA" "${words[@]}")
}

# describe_dataset: in the environment, the variables of the prepared folder that was given, if one was.
describe_dataset() {
    [ "${#prepared[@]}" -gt 0 ] || return 0
    local found
    found=$(python -m fairseq_collab.runs.prepared "${prepared[@]}") || exit 2
    eval "$found"
}

# activate [--dev]: makes the environment, if need be, and enters it.
activate() {
    bash recipes/setup.sh "$@"
    # shellcheck disable=SC1091  # made just now
    source "${VENV:-.venv}/bin/activate"
}

# What every training of ours has in its environment.
set_variables() {
    export PYTHONWARNINGS=ignore   # deprecations inside fairseq, which no reader of this can mend
    # Large tensors then reuse memory instead of mapping it anew: training on a CPU is faster.
    export MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184
    export MALLOC_TOP_PAD_=268435456
    # Of recipes with heads in groups.
    constraint=criterion.group_normalisation=${NORMALISATION:-released}
}

# count_updates: of recipes that train and fine-tune on Multi30k or a prepared folder: the overrides
# `updates` and `tuned_updates`. Other experiments count epochs.
count_updates() {
    UPDATES=${UPDATES:-3400} updates=() tuned_updates=()
    [[ $UPDATES =~ ^[1-9][0-9]*$ && ${TUNE:-1} =~ ^[1-9][0-9]*$ ]] ||
        refuse "UPDATES is '$UPDATES', TUNE '${TUNE:-}'; they must be numbers"
    TUNE=${TUNE:-$((UPDATES / 2))}
    [ "$experiments" = multi30k ] || return 0
    updates=(optimization.max_update="$UPDATES") tuned_updates=(optimization.max_update="$TUNE")
}

# prepare DATASET DIR [OPTIONS...]: the data folder of embedded (generated), multi30k (downloaded, or
# in the folder FROM) or wikitext2 (in FROM), as the experiments have it, or as OPTIONS say.
prepare() {
    local to=(${FROM:+--from "$FROM"} --out "${@:2}")
    case $1 in
        embedded) python -m data_prep.demo_data --out "${@:2}" ;;
        multi30k) python -m data_prep.multi30k --vocab-size 4000 "${to[@]}" ;;
        wikitext2)   # words already, with <unk> for rare ones: train.txt, valid.txt, test.txt
            [ -n "${FROM:-}" ] || refuse "where is the text of WikiText-2? Give FROM=DIR"
            fairseq-preprocess --only-source --trainpref "$FROM/train.txt" --validpref "$FROM/valid.txt" \
                --testpref "$FROM/test.txt" --destdir "$2.part"
            mv "$2.part" "$2"
            ;;
    esac
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

# enter: the environment, made if there is none; what is known of the data; the device.
enter() {
    command -v fairseq-collab > /dev/null || activate
    set_variables
    describe_dataset
    find_device
}

failed=0   # becomes 1 once a run of `sweep` or another command has failed: what a recipe exits with

# COMMAND || note $?: a failure is remembered, and the rest goes on; an interruption ends the recipe.
note() {
    [ "$1" -le 1 ] || exit "$1"
    failed=1
}

# sweep EXPERIMENT FOLDER OVERRIDES...: the runs of a file of configs/experiment in OUT/FOLDER, on the
# data folder `data`. A failed run is in the table's notes, and the rest goes on.
sweep() {
    # shellcheck disable=SC2086  # SWEEP is several words
    fairseq-collab sweep "configs/experiment/$1.yaml" --out "$OUT/$2" \
        --jobs "${JOBS:-$jobs}" "task.data=$data" "${of_data[@]}" "${device[@]}" "${@:3}" ${SWEEP:-} ||
        note $?
}

# importance MODEL DIR: the importance of each head for the loss, as DIR/heads.json.
importance() {
    fairseq-collab heads "$1" "$data" "${cpu[@]}" --out "$2" --relevance-sentences 0
}

# convert_heads MODEL FOLDER OPTIONS...: what `reparametrize` makes of a model, as FOLDER/model.pt, beside
# fit.json. What is there is not made again; so with the next three.
convert_heads() {
    mkdir -p "$2"
    [ ! -e "$2/fit.json" ] || return 0
    fairseq-collab reparametrize "$1" --data "$data" --out "$2/model.pt" --json "${@:3}" > "$2/fit.part"
    mv "$2/fit.part" "$2/fit.json"
}

# take_out FILE MODEL OPTIONS...: what `prune` leaves of a model, as FILE.pt in the folder `pruned`.
take_out() {
    [ -e "$pruned/$1.pt" ] ||
        fairseq-collab prune "$2" "${@:3}" --out "$pruned/$1.pt" || note $?
}

# elect FILE VOTES MODEL: the heads that the groups of a model elect, by VOTES.json.
elect() {
    local votes=$pruned/$2.json
    [ -e "$votes" ] || fairseq-collab vote "$3" "$data" "${cpu[@]}" --out "$votes" || note $?
    take_out "$1" "$3" --votes "$votes"
}

# vote_and_prune NAME GROUPED ORDINARY SEED COUNT: the heads that the groups of the model GROUPED elect
# (votes-NAME.json, voted-NAME.pt), and COUNT heads of ORDINARY by chance (random-NAME.pt).
vote_and_prune() {
    elect "voted-$1" "votes-$1" "$2"
    take_out "random-$1" "$3" --random "$4" --keep "$5"
}
