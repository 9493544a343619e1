# What the corpus recipes share: options, data, models. Sourced by them; does nothing alone.
#
# A recipe sets its defaults (variant, pair, out, papers_batches), calls parse_options "$@" and
# choose_model, and then all_stages: the data, a run, and heads taken out of it. Settings of training
# and translation are in configs/ alone.
# shellcheck shell=bash disable=SC2034  # some variables are for the recipe

# shellcheck source=recipes/portable.sh
source "$(dirname "${BASH_SOURCE[0]}")/portable.sh"

data_only=no jobs=$(cores) gpus=1 method=collab key_dim=""
dry_run=no source_options=() own=() extra=() cpu=()
head_size="" gate_penalty="" papers_methods=(headsize grouped grouped_pruned gated)
here=$PWD

fail() {
    echo "$(basename "$0" .sh): error: $*" >&2
    exit 2
}

# The comment that a recipe starts with, and what all of them have.
usage() {
    sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"
    cat <<EOF

Stages: data (OUT/data); train, average, translate and score (a run in OUT/runs, as configs/experiment/ has it);
with two of the methods also prune and fine-tune. Finished stages are skipped, and
\`fairseq-collab table OUT/runs\` shows the runs.

  --from DIR        folder of the archives (default: download them)
  --own-archives    they hold other text in the published layout: published hashes do not apply
  --data-only       make the data, train nothing
  --out DIR         where everything goes (default: $out of the repository)
  --jobs N          processes that binarise (default: all cores)
  --dry-run         print the commands, run none
  -- ...            Hydra overrides of the run, such as optimization.max_update=1000

  --method headsize (arXiv 2002.07028; --head-size N, default: 128); grouped; grouped_pruned: then
                    votes, prunes and fine-tunes (arXiv 2305.14380); gated, from the vanilla model on,
                    pruned and fine-tuned (arXiv 1905.09418; --gate-penalty X, default: 0.0056)
EOF
}

absolute() { [[ $1 == /* ]] && echo "$1" || echo "$here/$1"; }

parse_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --) shift; extra=("$@"); break ;;
            --dry-run) dry_run=yes; shift; continue ;;
            --data-only) data_only=yes; shift; continue ;;
            --own-archives) own=(--own-archives); shift; continue ;;
            -h | --help) usage; exit 0 ;;
        esac
        [ $# -ge 2 ] || fail "$1: unknown option, or one without its value (see --help)"
        case $1 in
            --jobs | --gpus | --key-dim | --head-size)
                [[ $2 =~ ^[0-9]+$ ]] || fail "$1: '$2' is no whole number"
                ;;
        esac
        case $1 in
            --out) out=$(absolute "$2") ;;
            --jobs) jobs=$2 ;;
            --variant) variant=$2 ;;
            --pair) pair=$2 ;;
            --from) source_options=(--from "$(absolute "$2")") ;;
            --method) method=$2 ;;
            --key-dim) key_dim=$2 ;;
            --head-size) head_size=$2 ;;
            --gate-penalty) gate_penalty=$2 ;;
            --gpus) gpus=$2 ;;
            *) fail "$1: unknown option (see --help)" ;;
        esac
        shift 2
    done
    [ "$jobs" -gt 0 ] || fail "--jobs $jobs: there must be at least one"
    local word
    for word in "${extra[@]}"; do
        [[ $word != -* ]] ||
            fail "$word: what follows -- is overrides of configs/, such as optimization.max_update=5"
    done
}

# only_pair S-T: of recipes whose configuration is that of one pair.
only_pair() {
    [ "$pair" = "$1" ] || fail "--pair $pair: this recipe is of $1"
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

# choose_model CHOICES...: enters the environment (set_up); of configs/model/, those that --method may
# name, less their prefix; then the run, by the name that its sweep gives it,
# and its overrides; of papers_methods, see papers_method.
choose_model() {
    local choice names=""
    set_up
    for choice in "$@"; do
        [ "${choice#fork_}" = "$method" ] && break
        names+="${names:+, }${choice#fork_}"
        choice=""
    done
    if [ -z "$choice" ] && [[ " ${papers_methods[*]} " == *" $method "* ]]; then
        papers_method
    else
        [ -n "$choice" ] || fail "--method $method: one of $names, ${papers_methods[*]}"
        run=model-$choice
        chosen=("model=choice($choice)")
        if [ "$method" != vanilla ]; then
            key_dim=${key_dim:-$usual_key_dim}
            run+=_key_dim-$key_dim
            chosen+=("model.key_dim=choice($key_dim)")
        fi
    fi
    [[ -z $key_dim || $run == *_key_dim-* ]] || fail "--key-dim: --method $method has none"
    hardware
}

# The settings of arXiv 2305.14380: method, corpus, languages; feature, alpha, beta of the constraint.
group_constraints="\
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
grouped_pruned wmt14 en-de value 0.5 0.5
grouped_pruned wmt14 en-fr value 0.3 0.3
grouped wmt14 en-de value 0.5 0.5
grouped wmt14 en-fr value 0.3 0.3
"

# The other papers' methods:
#   headsize   arXiv 2002.07028: a head size that is not d/H; the paper has no translation, 128 is ours
#   grouped    arXiv 2305.14380, GHT: 2 groups of 8 heads, weights and feature of the paper for the pair
#   grouped_pruned    that paper's GHT-PS: then votes, prunes and fine-tunes
#   gated      arXiv 1905.09418: gates on the vanilla model, which is trained first; then prunes what
#              they close, and fine-tunes; the sample of the paper's code, 0.1, is a mean over 18
#              attentions: 0.1/18
papers_method() {
    case $method in
        headsize)
            run=model-concatenated_head_size-${head_size:=128}
            chosen=("model=choice(concatenated)" "model.head_size=choice($head_size)")
            ;;
        grouped | grouped_pruned)
            local feature alpha beta
            read -r feature alpha beta < <(sed -n "s/^$method $corpus $pair //p" <<< "$group_constraints")
            run=model-grouped_head_groups-2_group_feature-${feature}_group_alpha-${alpha}_group_beta-$beta
            chosen=(
                "model=choice(grouped)" "model.head_groups=choice(2)"
                "model.group_feature=choice($feature)"
                "criterion.group_alpha=choice($alpha)" "criterion.group_beta=choice($beta)"
            )
            ;;
        gated)
            run=model-gated_gate_penalty-${gate_penalty:=0.0056}
            chosen=(
                "model=choice(gated)" "criterion.gate_penalty=choice($gate_penalty)"
                "checkpoint.finetune_from_model=$(real "$out/runs/model-vanilla/average.pt")"
            )
            ;;
    esac
}

# Batches of a paper's number of GPUs, on $gpus of them: update_freq makes up for the rest.
hardware() {
    local ours=$((gpus > 0 ? gpus : 1))
    [ $((papers_batches % ours)) -eq 0 ] ||
        fail "--gpus $gpus: an update is $papers_batches batches; give a divisor of that"
    machine=("optimization.update_freq=[$((papers_batches / ours))]")
    if [ "$gpus" -eq 0 ]; then
        cpu=(--cpu)
        machine+=(common.cpu=true common.fp16=false dataset.num_workers=0)   # no fp16 on a CPU
    else
        machine+=("distributed_training.distributed_world_size=$gpus")
    fi
}

# The GPUs of later stages, asked for before hours of text.
check_gpus() {
    [ "$dry_run" = no ] && [ "$data_only" = no ] && [ "$gpus" -gt 0 ] || return 0
    [ ! -e "$out/runs/$run/score.json" ] || return 0
    local found
    found=$(python -c 'import torch; print(torch.cuda.device_count())')
    [ "$found" -ge "$gpus" ] || fail "--gpus $gpus: this machine has $found; with --gpus 0 the CPU trains"
}

# all_stages CORPUS DATA: of configs/experiment/CORPUS.yaml and `fairseq-collab data DATA`.
all_stages() {
    check_gpus
    printf '\n== data\n'
    call fairseq-collab data "$2" --variant "$variant" --pair "$pair" --out "$out/data" \
        "${own[@]}" "${source_options[@]}" --jobs "$jobs"
    [ "$data_only" = no ] || return 0
    printf '\n== train, average, translate, score\n'
    [ "$method" != gated ] || run_of "$1" "model=choice(vanilla)"
    run_of "$1" "${chosen[@]}"
    case $method in
        grouped_pruned | gated)
            printf '\n== take out heads, fine-tune the rest\n'
            take_out_heads
            run_of "$1" "hydra.searchpath=[\"file://$(real "$out/pruned")\"]" "model=choice($run)"
            ;;
    esac
    printf '\n== the scores\n'
    call fairseq-collab score "$out/runs"
}

# take_out_heads: of the run, to OUT/pruned/model/RUN.pt, once; its shape as a choice of model= next to it.
take_out_heads() {
    local average=$out/runs/$run/average.pt pruned=$out/pruned/model/$run.pt which=(--gates) source
    source=$average
    call mkdir -p "$out/pruned/model"
    if [ "$method" = grouped_pruned ]; then
        which=(--votes "$out/pruned/$run.votes.json")
        source=${which[1]}
        [ "$source" -nt "$average" ] ||   # hours, on a large text
            call fairseq-collab vote "$average" "$out/data" "${cpu[@]}" --out "$source" --force
    fi
    [ "$pruned" -nt "$source" ] || call fairseq-collab prune "$average" "${which[@]}" --out "$pruned" --force
}

# run_of CORPUS OVERRIDES...: a run of configs/experiment/CORPUS.yaml in OUT/runs. A rerun resumes it.
run_of() {
    call fairseq-collab sweep "configs/experiment/$1.yaml" --out "$out/runs" "${@:2}" "${machine[@]}" \
        "task.data=$out/data" "task.source_lang=${pair%-*}" "task.target_lang=${pair#*-}" \
        "${extra[@]}"
}
