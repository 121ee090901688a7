# SPDX-License-Identifier: MIT
# The part that the scripts share; sourced, never run. It sets REPO and DEPS, and defines functions
# that print messages, end the script with an error, find or install packages and tools, and
# configure, compile and test a build.
# shellcheck shell=bash

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DEPS=$REPO/.deps

if [[ -t 1 ]]; then BOLD=$'\e[1m' PLAIN=$'\e[0m'; else BOLD='' PLAIN=''; fi

say() { printf '%s==>%s %s\n' "$BOLD" "$PLAIN" "$*"; }
warn() { printf '%s: warning: %s\n' "${0##*/}" "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

have() { command -v "$1" >/dev/null 2>&1; }

# True when version $1 is at least $2.
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# Print the packages of "$@" that dpkg does not have installed.
missing_debian() {
    local installed package
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
    for package in "$@"; do
        grep -qx "installed $package" <<<"$installed" || printf '%s\n' "$package"
    done
}

# Run a command as root: directly, or through a sudo that asks nothing.
as_root() {
    if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

can_be_root() { ((EUID == 0)) || { have sudo && sudo -n true 2>/dev/null; }; }

# The body runs as root in a shell of its own. A policy-rc.d of ours stands in while dpkg works, so
# that no package starts a service; one that was there already is left alone.
# shellcheck disable=SC2016
APT_INSTALL='
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap "rm -f $policy" EXIT
    trap "exit 1" HUP INT TERM
    printf "#!/bin/sh\nexit 101\n" >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q || echo "apt-get update failed; trying the package lists that are here" >&2
apt-get install -q -y --no-install-recommends "$@"
'

# Install those of the Debian packages "$@" that are missing. Needs no root when none is.
need_debian() {
    have dpkg-query || { warn "no dpkg here: taking for granted what these give: $*"; return; }
    local missing
    mapfile -t missing < <(missing_debian "$@")
    ((${#missing[@]})) || return 0
    can_be_root || die "please have these packages installed, then run this again" \
        "(this user is not root and has no passwordless sudo): apt-get install ${missing[*]}"
    say "installing Debian packages: ${missing[*]}"
    mkdir -p "$DEPS"
    as_root sh -c "$APT_INSTALL" sh "${missing[@]}" >"$DEPS/apt.log" 2>&1 </dev/null ||
        { tail -n 20 "$DEPS/apt.log" >&2; die "apt-get could not install: ${missing[*]}"; }
}

# Run `pip install "$@"` in the virtual environment .deps/venv, and create that first if it is
# missing. If pip fails, return its status and do not end the script.
pip_install() {
    if [[ ! -x $DEPS/venv/bin/pip ]]; then
        need_debian python3 python3-venv
        /usr/bin/python3 -m venv "$DEPS/venv"
    fi
    "$DEPS/venv/bin/pip" install --quiet --disable-pip-version-check --no-input "$@"
}

# Print the meson to use: 1.0 or later, from PATH, from .deps, or Debian's.
find_meson() {
    local meson
    for meson in "$(command -v meson)" "$DEPS/venv/bin/meson" /usr/bin/meson; do
        if [[ -x $meson ]] && version_at_least "$("$meson" --version 2>/dev/null)" 1.0; then
            echo "$meson"
            return
        fi
    done
    return 1
}

# Print the nvcc to use: CUDA 13.0 or later, from PATH, from its usual place, or from .deps.
find_nvcc() {
    local nvcc release
    for nvcc in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc "$DEPS/cuda/bin/nvcc"; do
        [[ -x $nvcc ]] || continue
        release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
        if [[ $release ]] && version_at_least "$release" 13.0; then
            echo "$nvcc"
            return
        fi
    done
    return 1
}

# Configure build directory $1 with the meson options that follow. A directory that is configured
# already is configured again only if the options, nvcc or the build of jemalloc have changed.
# Output goes to $1-setup.log.
configure() {
    local dir=$1 meson nvcc told again=()
    shift
    meson=$(find_meson) || die "no meson 1.0 or later; scripts/setup gets one"
    nvcc=$(find_nvcc) || nvcc=
    told="$* nvcc=$nvcc $(cat "$DEPS/jemalloc/VERSION" 2>/dev/null || true)"
    if [[ -e $dir/build.ninja ]]; then
        if [[ $(cat "$dir/told" 2>/dev/null) == "$told" ]]; then return; fi
        again=(--reconfigure)
        # Options that are newer than the build are known to meson only after this.
        "$meson" setup --reconfigure "$dir" "$REPO" >"$dir-setup.log" 2>&1 || true
    else
        rm -rf "$dir/meson-private" # of a meson that was stopped, with which it would do nothing
    fi
    mkdir -p "${dir%/*}"
    "$meson" setup "${again[@]}" "$dir" "$REPO" -Dnvcc="$nvcc" "$@" >"$dir-setup.log" 2>&1 ||
        { tail -n 20 "$dir-setup.log" >&2; die "meson could not configure ${dir#"$REPO"/}"; }
    printf '%s\n' "$told" >"$dir/told"
}

# Read the output of ninja or of `meson test`, and show on one line of the terminal how many steps
# are done and how long the others take when they take as long on average.
show_progress() {
    local line start=$SECONDS finished total left
    local counted='^ *\[?([0-9]+)/([0-9]+)[] ]'
    while IFS= read -r line; do
        [[ $line =~ $counted ]] || continue
        finished=$((10#${BASH_REMATCH[1]})) total=$((10#${BASH_REMATCH[2]}))
        ((finished > 0 && finished <= total)) || continue
        left=$(((SECONDS - start) * (total - finished) / finished))
        printf '\r    %d of %d, about %d min %02d s left\e[K' \
            "$finished" "$total" $((left / 60)) $((left % 60))
    done
    printf '\r\e[K'
}

# Run the command that follows with its output in file $1; on a terminal show its progress.
logged() {
    local log=$1
    shift
    if [[ -t 1 ]]; then
        "$@" 2>&1 | tee "$log" | show_progress
    else
        "$@" >"$log" 2>&1
    fi
}

# Compile build directory $1, or of it the targets that follow. Output goes to $1.log.
compile() {
    local dir=$1
    shift
    NINJA_STATUS='[%f/%t] ' logged "$dir.log" "$(find_meson)" compile -C "$dir" "$@" || {
        tail -n 40 "$dir.log" >&2
        die "${dir#"$REPO"/} did not compile; see ${dir#"$REPO"/}.log"
    }
}

# Compile the targets of build directory $1 that the tests of the suites that follow need. Ninja
# first brings meson's lists of tests and targets up to date.
compile_suites() {
    local dir=$1 targets
    shift
    compile "$dir" --ninja-args=build.ninja
    targets=$("$REPO/scripts/suite-targets" "$dir" "$@") || die "no targets of the suites: $*"
    compile "$dir" --ninja-args="${targets//$'\n'/,}"
}

# Run meson's tests of build directory $1, as compiled; further arguments go to meson. Only this
# run's logs are there afterwards: meson names them after a --wrapper, if there is one.
run_tests() {
    local dir=$1
    shift
    rm -f "$dir"/meson-logs/testlog*
    # Verbose, since only then Criterion tells of the tests that were skipped.
    CRITERION_VERBOSITY_LEVEL=1 "$(find_meson)" test -C "$dir" --no-rebuild --print-errorlogs "$@"
}

# Copy a log of tests without the lines of those that passed, so that its end shows the failures.
without_passes() {
    sed -E '/^\[(RUN |PASS)\]/d; /^ *[0-9]+\/[0-9]+ .* (OK|SKIP|EXPECTEDFAIL) /d; / \.\.\. ok$/d'
}

# Print the path at which the loader finds a library, or nothing. awk reads the list to its end: if
# it exited at the library, SIGPIPE would end ldconfig, and with pipefail that would be a failure.
find_library() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk -v name="$1" '$1 == name && !seen++ { print $NF }'
}

# True where programs may find an NVIDIA driver.
has_driver() { [[ -e /dev/nvidiactl || $(find_library libcuda.so.1) ]]; }

# Copy the libraries that the programs in $1/bin need, beyond those of the C library and those that
# are in $1/lib already, to $1/lib.
stage_libraries() {
    local program library
    for library in $(for program in "$1"/bin/*; do
        LD_LIBRARY_PATH=$1/lib ldd "$program" | awk -v own="$1/lib/" '$2 == "=>" &&
            index($3, own) != 1 && $1 !~ /^lib(c|m|dl|pthread|rt)\.so/ { print $3 }'
    done | sort -u); do
        cp -L "$library" "$1/lib/"
    done
}

# Write the commit into folder $1 and, if $2 is not empty, make the folder one archive. $3 is the
# script that runs the programs on the other machine. Most programs hold the same device code: xz
# looks back far enough to find it again (64 MiB). On a machine without xz, python3 unpacks the
# archive.
finish_stage() {
    local stage=$1 archive
    (git -C "$REPO" describe --always --dirty 2>/dev/null || echo unknown) >"$stage/COMMIT"
    if [[ ! $2 ]]; then
        say "$(du -sm "$stage" | cut -f 1) MiB staged; run ${stage#"$REPO"/}/$3" \
            "on the other machine"
        return
    fi
    need_debian xz-utils
    archive=$(mktemp -p "$(dirname "$stage")")
    tar c -C "$stage" --sort=name --transform 's,^\.,stage,' . | xz -9 >"$archive"
    rm -rf "${stage:?}"/*
    mv "$archive" "$stage/stage.tar.xz"
    chmod 644 "$stage/stage.tar.xz"
    say "$(du -m "$stage/stage.tar.xz" | cut -f 1) MiB packed into" \
        "${stage#"$REPO"/}/stage.tar.xz; on the other machine:"
    echo "tar xJf stage.tar.xz && stage/$3    (without xz: python3 -m tarfile -e stage.tar.xz)"
}
