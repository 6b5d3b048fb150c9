# Sourced by the scripts beside it: find a Python, make an environment, install a missing system package.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

say() { printf '%s\n' "$*" >&2; }

# Caches (the gateway's binary, Go's, pip's) need a home that can be written; an account without one uses the checkout.
if [ ! -w "${HOME:-/nonexistent}" ]; then
    export HOME="$PWD/.home"
    mkdir -p "$HOME"
fi

# install_package PACKAGE WHY: through apt as root, else say what an administrator has to do.
install_package() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "missing: $2. Install the package '$1' (Debian: apt-get install $1) and call this again."
        return 2
    fi
    say "installing $1: $2"
    # A service package would start its service at once, on its default ports: we only want its files.
    local policy=/usr/sbin/policy-rc.d ours=
    if [ ! -e "$policy" ]; then
        ours=yes
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    local status=0
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1"; } \
        >/dev/null || status=3
    [ -z "$ours" ] || rm -f "$policy"
    [ "$status" -eq 0 ] || say "apt-get could not install '$1'."
    return "$status"
}

# python_for_us: print the first Python on PATH that is new enough (pyproject.toml: requires-python).
python_for_us() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "missing: Python 3.11 or later, as python3 on PATH."
    return 2
}

# environment DIR WHAT…: a virtual environment in DIR with the pip requirements WHAT, made anew when pyproject.toml changes.
environment() {
    local dir=$1 python stamp
    shift
    python=$(python_for_us) || return
    stamp="$(cksum <pyproject.toml) $PWD $*"
    if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
        say "making the environment $dir"
        rm -rf "$dir"
        if ! "$python" -m venv "$dir" >/dev/null 2>&1; then
            install_package python3-venv "the venv module of $python" && "$python" -m venv "$dir" || return
        fi
        "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || return 3
        printf '%s' "$stamp" >"$dir/stamp"
    fi
}
