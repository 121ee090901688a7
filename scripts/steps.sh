# SPDX-License-Identifier: MIT
# What gpu-run and cores-run share; sourced, never run. Steps are counted in passed, failed and skipped.
# shellcheck shell=bash

passed=0 failed=0 skipped=0
around= # a function that runs each step's command, if any
only= # an extended regular expression: steps whose names do not match are left out

# Run a step and judge it by its exit status: 77 is a skip.
step() {
    local name=$1 status=0 start=$SECONDS
    shift
    [[ $name =~ $only ]] || return 0
    printf '\n== %s\n' "$name"
    $around "$@" || status=$?
    printf -- '-- %d s\n' $((SECONDS - start))
    case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)); echo "-- skipped" ;;
    *) failed=$((failed + 1)); echo "-- failed with exit status $status" ;;
    esac
}

# The machine and what runs on it: $1 is the staged folder.
describe_machine() {
    echo "date    $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "commit  $(cat "$1/COMMIT")"
    echo "kernel  $(uname -sr)"
    echo "glibc   $(getconf GNU_LIBC_VERSION)"
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
