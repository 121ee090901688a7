# SPDX-License-Identifier: MIT
# The part that gpu-run and cores-run share; sourced, never run. Steps are counted in passed, failed
# and skipped.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
around= # a function that runs each step's command, if any
waited=0 # seconds of a step that it had to wait: set by `around`
only= # an extended regular expression: steps whose names do not match are left out
listing= # set: steps are named, and not run

# Run a step and judge it by its exit status: 77 is a skip.
step() {
    local name=$1 status=0 start=$SECONDS
    shift
    [[ $name =~ $only ]] || return 0
    if [[ $listing ]]; then
        echo "$name"
        return
    fi
    printf '\n== %s\n' "$name"
    $around "$@" || status=$?
    printf -- '-- %d s\n' $((SECONDS - start - waited))
    case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)); echo "-- skipped" ;;
    *) failed=$((failed + 1)); echo "-- failed with exit status $status" ;;
    esac
}

# $2 steps cannot be run without program $1.
lack() {
    [[ ! $listing ]] || return 0
    printf '\n== %s is not installed\n' "$1"
    skipped=$((skipped + $2))
}

# Print the date, the commit of the staged folder $1, and the machine's kernel and C library.
describe_machine() {
    echo "date    $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "commit  $(cat "$1/COMMIT")"
    echo "kernel  $(uname -sr)"
    echo "glibc   $(getconf GNU_LIBC_VERSION)"
}

# Print the steps that the command after $1 would run, each with the seconds that it took in the
# latest log of folder $1 that has it, and the sum. A step that no log has adds nothing to the sum.
list_steps() {
    local folder=$1 logs=()
    shift
    mapfile -t logs < <(find "$folder" -maxdepth 1 -name '*.log' 2>/dev/null)
    listing=yes "$@" | awk '
        FILENAME != "-" && FNR == 1 { name = date = "" }
        FILENAME != "-" && /^date / { date = $2 }
        FILENAME != "-" && /^== / { name = substr($0, 4) }
        FILENAME != "-" && /^-- [0-9]+ s$/ && date >= at[name] { at[name] = date; took[name] = $2 }
        FILENAME == "-" { printf "%6s s  %s\n", ($0 in took) ? took[$0] : "?", $0; sum += took[$0] }
        END { printf "%6d s  in all\n", sum }' "${logs[@]}" -
}

# Print the last line of a log; fail where a step did.
tally() {
    printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}

# Run "$2..." with its output into log $1, show it, and leave with its status.
run_logged() {
    local log=$1 status=0
    shift
    ("$@") >"$log" 2>&1 & # a subshell of its own: errors inside must not end the script first
    wait $! || status=$?
    cat "$log"
    echo "log: $log"
    exit "$status"
}
