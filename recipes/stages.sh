# What the corpus recipes share: options, stages, models. Sourced by them; does nothing alone.
#
# A recipe sets its defaults (variant, pair, out, papers_batches), calls parse_options "$@", set_up,
# batches, configured NAME and model, and then all_stages. What is trained and translated with stands
# in configs/ alone.
# shellcheck shell=bash disable=SC2034  # some variables are for the recipe

stage=1 stop_stage=8 jobs=$(nproc) gpus=1 method=collab key_dim="" averaged=""
dry_run=no force=() source_options=() own=() extra=()
needs_disk=2 needs_memory=${needs_memory:-2}   # GiB; of text, binarised text and a training
here=$PWD

fail() {
    echo "$(basename "$0" .sh): error: $*" >&2
    exit 2
}

# The comment that a recipe starts with.
usage() { sed -n '2,/^[^#]/ { /^#/ { s/^# \{0,1\}//; p } }' "$0"; }

absolute() {
    case $1 in
        /*) echo "$1" ;;
        *) echo "$here/$1" ;;
    esac
}

whole_number() {
    [[ $2 =~ ^[0-9]+$ ]] || fail "$1: '$2' is no whole number"
}

parse_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --) shift; extra=("$@"); break ;;
            --dry-run) dry_run=yes; shift; continue ;;
            --force) force=(--force); shift; continue ;;
            --own-archives) own=(--own-archives); shift; continue ;;
            -h | --help) usage; exit 0 ;;
        esac
        [ $# -ge 2 ] || fail "$1: unknown option, or one without its value (--help tells all)"
        case $1 in
            --stage) stage=$2 ;;
            --stop-stage) stop_stage=$2 ;;
            --out) out=$(absolute "$2") ;;
            --jobs) jobs=$2 ;;
            --variant) variant=$2 ;;
            --pair) pair=$2 ;;
            --from) source_options=(--from "$(absolute "$2")") ;;
            --mirror) source_options=(--mirror "$2") ;;
            --method) method=$2 ;;
            --key-dim) key_dim=$2 ;;
            --gpus) gpus=$2 ;;
            --average) averaged=$2 ;;
            *) fail "$1: unknown option (--help tells all)" ;;
        esac
        shift 2
    done
    whole_number --stage "$stage"
    whole_number --stop-stage "$stop_stage"
    whole_number --jobs "$jobs"
    [ "$jobs" -gt 0 ] || fail "--jobs $jobs: there must be at least one"
    whole_number --gpus "$gpus"
    [ -z "$averaged" ] || whole_number --average "$averaged"
    [ -z "$key_dim" ] || whole_number --key-dim "$key_dim"
    [ "$stage" -ge 1 ] && [ "$stop_stage" -le 8 ] && [ "$stage" -le "$stop_stage" ] ||
        fail "--stage $stage --stop-stage $stop_stage: stages are 1 to 8"
}

# Repository, environment, variables. A dry run needs none of it.
set_up() {
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    [ "$dry_run" = no ] || return 0
    # shellcheck source=recipes/common.sh
    source recipes/common.sh
    command -v fairseq-collab > /dev/null || activate
    set_variables
}

# begin N TITLE: is stage N asked for?
begin() {
    [ "$stage" -le "$1" ] && [ "$1" -le "$stop_stage" ] || return 1
    printf '\n== stage %s: %s\n' "$1" "$2"
}

# Runs a command, or prints it, an option a line.
call() {
    if [ "$dry_run" = no ]; then
        "$@"
        return
    fi
    local word line=""
    for word in "$@"; do
        [[ $word == --* && -n $line ]] && { printf '%s \\\n' "$line"; line="   "; }
        line+="${line:+ }$(quoted "$word")"
    done
    printf '%s\n' "$line"
}

quoted() {
    if [[ $1 =~ ^[A-Za-z0-9_./:=,@%+{}-]+$ ]]; then echo "$1"; else echo "'$1'"; fi
}

# data MODULE STAGE: one of the four data stages of a corpus.
data() {
    local module=$1 name=$2 more=()
    case $name in
        fetch) more=("${source_options[@]}") ;;
        extract) more=("${force[@]}") ;;
        text | binarise) more=(--jobs "$jobs" "${force[@]}") ;;
    esac
    local command=(
        python -m "data_prep.$module" "$name" --variant "$variant" --pair "$pair" --out "$out"
        "${own[@]}" "${more[@]}"
    )
    call "${command[@]}"
    [ "$dry_run" = no ] || details "${command[@]:1}"
}

# In a dry run, what a data stage does in turn, if there is an environment that can tell.
details() {
    local python=${VIRTUAL_ENV:-${VENV:-.venv}}/bin/python
    [ -x "$python" ] || return 0
    "$python" "$@" --dry-run | sed 's/^/#   /'
}

# made NAME OPTIONS... -- COMMAND...: a stage that a command makes, whole or not at all.
made() {
    local name=$1
    shift
    call python -m data_prep.stages --out "$out" --name "$name" "${force[@]}" "$@"
}

# Batches of so many GPUs in a paper, on $gpus of them: --update-freq makes up for the rest.
batches() {
    local ours=$((gpus > 0 ? gpus : 1))
    [ $((papers_batches % ours)) -eq 0 ] ||
        fail "--gpus $gpus: an update is $papers_batches batches; give a divisor of that"
    hardware=(--update-freq $((papers_batches / ours)))
    if [ "$gpus" -eq 0 ]; then
        hardware+=(--cpu --num-workers 0)
    else
        hardware+=(--distributed-world-size "$gpus")
    fi
}

# settings SECTIONS FILE...: what files of configs/ say in these sections, as options of fairseq's
# commands, a word a line. Without Python: a dry run needs no environment. What depends on the machine
# or stands elsewhere (SKIPPED) is left out.
settings() {
    awk -v wanted=" $1 " -v skipped=" _name keep_last_epochs save_dir update_freq user_dir " '
        { sub(/[ \t]*#.*/, "") }
        /^[a-z0-9_]+:$/ { section = substr($0, 1, length($0) - 1) }
        { chosen = section == "defaults" && sub(/^  - /, "  ") }
        /^(  )?[a-z0-9_]+: / {
            key = substr($1, 1, length($1) - 1)
            value = substr($0, index($0, ": ") + 2)
            place = /^[a-z_]/ ? "model" : chosen ? key : section   # configs/model/: no sections
            gsub(/[][]/, "", value)   # a list of one
            if (!index(wanted, " " place " ") || index(skipped, " " key " ")) next
            if (value == "null" || value == "false") next
            gsub(/_/, "-", key)
            print "--" key
            if (value != "true") print value
        }' "${@:2}"
}

# configured NAME: `training` and `generation` of configs/data/NAME.yaml and configs/train/NAME.yaml,
# the subwords that are joined, and how many checkpoints are averaged.
configured() {
    local files=(configs/base.yaml "configs/data/$1.yaml" "configs/train/$1.yaml") word
    local sections="common criterion optimizer lr_scheduler model optimization dataset checkpoint"
    training=()
    while IFS= read -r word; do
        [ "$word" = --gen-subset ] && { IFS= read -r word; continue; }
        [ "$word" = --fp16 ] && [ "$gpus" -eq 0 ] && continue   # fairseq has none on a CPU
        training+=("$word")
    done < <(settings "$sections" "${files[@]}")
    mapfile -t generation < <(settings generation "${files[@]}")
    generation+=(--max-tokens "$(value max_tokens "${files[@]}")")
    subwords=$(value post_process "${files[@]}")
    averaged=${averaged:-$(value keep_last_epochs "${files[@]}")}
}

# value KEY FILE...: the last that files of configs/ say of it.
value() {
    sed -n "s/^ *$1: *\([^ #]*\).*/\1/p" "${@:2}" | tail -n 1
}

# model SIZE [fork_]: --method and --key-dim as fairseq's options, those of configs/model/; with fork_
# the choices of the papers' code, and fairseq's own transformer (vanilla) beside them.
model() {
    local size=$1 file=configs/model/${2:-}$method.yaml options
    if [ "$method" = vanilla ] && [ -n "${2:-}" ]; then
        [ -z "$key_dim" ] || fail "--key-dim: fairseq's own transformer has none"
        architecture=(--arch "transformer_$size")
        return
    fi
    case $method in
        collab | concatenated) ;;
        *) fail "--method $method: ${2:+vanilla, }collab or concatenated" ;;
    esac
    mapfile -t options < <(settings model "$file")
    architecture=(
        --arch "$(value _name "$file")_$size" --key-dim "${key_dim:-$usual_key_dim}" "${options[@]}"
    )
}

# What later stages need, asked before the first of them: a GPU, disk, memory.
check_machine() {
    [ "$dry_run" = no ] || return 0
    local found folder=$out
    if [ "$gpus" -gt 0 ] && [ "$stage" -le 5 ] && [ "$stop_stage" -ge 5 ] && [ ! -e "$out/train" ]; then
        found=$(python -c 'import torch; print(torch.cuda.device_count())')
        [ "$found" -ge "$gpus" ] ||
            fail "--gpus $gpus: this machine has $found; with --gpus 0 the CPU trains"
    fi
    # of the published text; what a user has of his own may be smaller
    [ "${#own[@]}" -eq 0 ] && [ "$stage" -le 4 ] && [ ! -e "$out/data" ] || return 0
    until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
    found=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$found" -ge "$needs_disk" ] ||
        fail "$folder: $found GiB are free, $needs_disk are needed; give another --out"
    [ -r /proc/meminfo ] || return 0
    found=$(awk '$1 == "MemTotal:" { print int($2 / 1048576) }' /proc/meminfo)
    [ "$found" -ge "$needs_memory" ] ||
        fail "$found GiB of memory, $needs_memory are needed to prepare the text"
}

# all_stages MODULE WHAT: of the corpus of data_prep.MODULE; WHAT its third stage does to the text.
all_stages() {
    check_machine
    if begin 1 "fetch"; then data "$1" fetch; fi
    if begin 2 "extract"; then data "$1" extract; fi
    if begin 3 "$2"; then data "$1" text; fi
    if begin 4 "binarise"; then data "$1" binarise; fi
    train_to_score
}

# Stages 5 to 8, the same everywhere, with architecture, training, generation and subwords as
# `model` and `configured` have set them.
train_to_score() {
    local cpu=()
    [ "$gpus" -gt 0 ] || cpu=(--cpu --num-workers 0)
    if begin 5 "train"; then
        made train --after data --resume -- \
            fairseq-train "$out/data" --user-dir fairseq_collab --save-dir '{}' \
            "${architecture[@]}" "${training[@]}" "${hardware[@]}" \
            --keep-last-epochs "$averaged" --log-format simple --log-file '{}/train.log' \
            "${extra[@]}"
    fi
    if begin 6 "average the last $averaged epochs"; then
        made average --after train -- \
            fairseq-collab average --last "$averaged" "$out/train" --output '{}/average.pt'
    fi
    if begin 7 "translate the test set"; then
        made translation --after data --after average --stdout generation.txt -- \
            fairseq-generate "$out/data" --user-dir fairseq_collab \
            --path "$out/average/average.pt" --gen-subset test \
            "${generation[@]}" --remove-bpe "$subwords" "${cpu[@]}"
    fi
    if begin 8 "score"; then
        made score --after data --after translation -- \
            python -m fairseq_collab.runs.recipe_score "$out/translation/generation.txt" \
            --data "$out/data" --json '{}/score.json'
    fi
}
