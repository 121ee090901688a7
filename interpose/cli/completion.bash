# SPDX-License-Identifier: MIT
# Completion for gpualloc in bash: commands, their options as `--help` lists them, backends where a
# spec is expected, and after "--" the program's own completion.
# shellcheck shell=bash

# Print the long options of command $1, or of gpualloc itself; with "=" where they need a value.
_gpualloc_options() {
    gpualloc ${1:+"$1"} --help 2>/dev/null |
        sed -nE 's/^ +(-., )?(--[a-z-]+)(=?).*/\2\3/p'
}

_gpualloc_commands() {
    gpualloc --help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p'
}

_gpualloc_backends() {
    gpualloc list 2>/dev/null | sed -nE 's/^  ([A-Za-z0-9_-]+).*/\1/p' | sort -u
}

# Print the place of the program's name in a line that has "--" before the cursor.
_gpualloc_program() {
    local i
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            echo $((i + 1))
            return
        fi
    done
    return 1
}

# Print the candidates for word $2 of command $1, after word $3.
_gpualloc_candidates() {
    case $3 in
    --host | --device | --kernel | --spec | --baseline) _gpualloc_backends ;;
    --log) printf '%s\n' error warn info debug ;;
    --place) printf '%s\n' host device ;;
    --folded) printf '%s\n' bytes blocks peak leaks; compgen -f -- "$2" ;;
    --symbolizer) printf '%s\n' none; compgen -c -- "$2" ;;
    --trace | --stats | --json | --plot | --file | --cusparse) compgen -f -- "$2" ;;
    *)
        case $1,$2 in
        *,-*) _gpualloc_options "$1" ;;
        list,*) _gpualloc_backends ;;
        help,*) _gpualloc_commands ;;
        bench,*)
            printf '%s\n' coalesce lfht spgemm
            gpualloc bench --list 2>/dev/null | sed -nE 's/^([^ ]+) .*/\1/p'
            ;;
        run,* | compare,*) compgen -c -- "$2" ;;
        env,* | check,*) ;;
        *) compgen -f -- "$2" ;;
        esac
        ;;
    esac
}

_gpualloc() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(
            compgen -W "$(_gpualloc_commands; _gpualloc_options '')" -- "$word")
    elif program=$(_gpualloc_program) && declare -F _command_offset >/dev/null; then
        _command_offset "$program"
    else
        mapfile -t COMPREPLY < <(
            _gpualloc_candidates "${COMP_WORDS[1]}" "$word" "$before" |
                while IFS= read -r name; do [[ $name == "$word"* ]] && printf '%s\n' "$name"; done)
    fi
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null || true
    fi
}

complete -F _gpualloc gpualloc
