#compdef gpualloc
# SPDX-License-Identifier: MIT
# Completion for gpualloc in zsh: commands, their options as `--help` lists them, backends where a
# spec is expected, and behind the program's name its own completion.

_gpualloc_describe_commands() {
    local -a names # each with a colon and its explanation
    names=(${(f)"$(gpualloc --help 2>/dev/null |
        sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) +(.*)/\1:\2/p')"})
    _describe command names
}

_gpualloc_backends() {
    local -a names
    names=(${(f)"$(gpualloc list 2>/dev/null | sed -nE 's/^  ([A-Za-z0-9_-]+).*/\1/p' | sort -u)"})
    compadd "$@" -a names
}

_gpualloc_workloads() {
    local -a names
    names=(coalesce lfht spgemm
        ${(f)"$(gpualloc bench --list 2>/dev/null | sed -nE 's/^([^ ]+) .*/\1/p')"})
    compadd "$@" -a names
}

_gpualloc_levels() { compadd "$@" error warn info debug }
_gpualloc_places() { compadd "$@" host device }
_gpualloc_symbolizers() { compadd "$@" none addr2line llvm-symbolizer }
_gpualloc_figures() { compadd "$@" bytes blocks peak leaks }

# Print the action of _arguments for the value that `--help` calls $1.
_gpualloc_action() {
    case $1 in
    SPEC) echo _gpualloc_backends ;;
    LEVEL) echo _gpualloc_levels ;;
    PLACE) echo _gpualloc_places ;;
    FIGURE) echo _gpualloc_figures ;;
    PROGRAM) echo _gpualloc_symbolizers ;;
    FILE) echo _files ;;
    *) echo ' ' ;;
    esac
}

# Set `specs` to the options of a command in the form of _arguments. $1 is the command; empty for
# gpualloc itself.
_gpualloc_options() {
    local name optional value
    specs=()
    gpualloc ${1:+"$1"} --help 2>/dev/null |
        sed -nE 's/^ +(-., )?(--[a-z-]+)(\[?)=?([A-Z]*).*/\2:\3:\4/p' |
        while IFS=: read -r name optional value; do
            if [[ -z $value ]]; then
                specs+=("$name")
            elif [[ -n $optional ]]; then
                specs+=("$name=-::$value:$(_gpualloc_action $value)")
            else
                specs+=("*$name=:$value:$(_gpualloc_action $value)")
            fi
        done
}

# Complete the arguments of the program. _arguments leaves a "--" before it in `words`.
_gpualloc_program() {
    if [[ $words[1] == -- ]]; then
        shift words
        ((CURRENT--))
    fi
    _normal
}

_gpualloc() {
    local -a specs
    local command=$words[2]
    if ((CURRENT == 2)); then
        _gpualloc_options ''
        _gpualloc_describe_commands
        _arguments $specs
        return
    fi
    shift words
    ((CURRENT--))
    _gpualloc_options "$command"
    case $command in
    run | compare) _arguments -S -A '-*' $specs '(-):program: _command_names -e' '*::argument:_gpualloc_program' ;;
    list) _arguments $specs '*:backend:_gpualloc_backends' ;;
    bench) _arguments $specs '*:workload:_gpualloc_workloads' ;;
    trace | replay) _arguments $specs '*:trace:_files' ;;
    help) _gpualloc_describe_commands ;;
    *) _arguments $specs ;;
    esac
}

_gpualloc "$@"
