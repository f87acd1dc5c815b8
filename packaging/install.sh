#!/bin/sh
# Installs Cotenant from the wheels beside this script, with no network, and tests what it installed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

contents() {
    sed -n "s/^$1=//p" "$here/CONTENTS"
}
version=$(contents version)
pythons=$(contents pythons)
glibc=$(contents glibc)
serves=$(contents machine)

usage() {
    cat <<USAGE
usage: install.sh FOLDER                     into a virtual environment made in FOLDER with python3
       install.sh --python PYTHON FOLDER     the same, made with PYTHON
       install.sh --python PYTHON            into that interpreter's own environment

Needs Linux on $serves, glibc $glibc or newer, and one of Python $pythons. The jobs that cotenant runs may use any other
Python: they need nothing from this one.
USAGE
}

fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}

check_machine() {
    machine="$(uname -s) $(uname -m)"
    [ "$machine" = "Linux $serves" ] || fail "this bundle is for Linux on $serves; this is $machine"
    minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        fail "$python does not run" "name an interpreter: install.sh --python /path/to/python3 ..."
    case " $pythons " in
        *" $minor "*) ;;
        *) fail "no wheels for Python $minor ($python): this bundle serves $pythons" \
            "name another interpreter with --python, or make a bundle with BUNDLE_PYTHONS=\"$minor\"" ;;
    esac
    has=$("$python" -c 'import os; print((os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0").split()[1])')
    "$python" -c 'import sys; n, h = (tuple(map(int, v.split(".")[:2])) for v in sys.argv[1:]); sys.exit(h < n)' \
        "$glibc" "$has" || fail "this bundle needs glibc $glibc; this machine has $has" \
        "make the bundle on a machine with an older system"
}

# Python's venv wants ensurepip, which Debian packages apart; this bundle brings its own pip, so the bare environment will
# do, and where the module is missing altogether two files make one.
make_environment() {
    if [ -e "$folder" ] && [ ! -e "$folder/pyvenv.cfg" ] && [ -n "$(ls -A "$folder")" ]; then
        fail "$folder exists and is no virtual environment" "name a new folder"
    fi
    "$python" -m venv --without-pip "$folder" 2>/dev/null && return
    real=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    mkdir -p "$folder/bin" "$folder/lib/python$minor/site-packages" || fail "cannot make $folder"
    ln -sf "$real" "$folder/bin/python"
    printf 'home = %s\ninclude-system-site-packages = false\n' "$(dirname "$real")" >"$folder/pyvenv.cfg"
}

# -I and --isolated: nothing of the caller's settings may lead pip elsewhere.
pip_install() {
    "$python" -I "$(ls "$here"/wheels/pip-*.whl)/pip" --isolated -qq --disable-pip-version-check install --no-index \
        --find-links "$here/wheels" --no-warn-script-location "$@" || fail "pip could not install it into $python"
}

has_gpu() {
    for device in /dev/nvidia[0-9]* /dev/dxg; do
        if [ -e "$device" ]; then return 0; fi
    done
    return 1
}

self_test() {
    echo "testing: cotenant --version"
    "$python" -m cotenant --version || fail "cotenant does not start"
    echo "testing: cotenant doctor, on the software GPU"
    "$python" -m cotenant softgpu -- "$python" -m cotenant doctor ||
        fail "installed, but the test on the software GPU failed"
    if has_gpu; then
        echo "testing: cotenant doctor, on this machine's GPU"
        "$python" -m cotenant doctor || fail "installed, but the test on the GPU failed"
    else
        echo "no NVIDIA GPU on this machine: not tested on one"
    fi
}

python=
folder=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage && exit 0 ;;
        --python)
            [ $# -gt 1 ] || fail "--python needs an interpreter"
            python=$2
            shift
            ;;
        --python=*) python=${1#--python=} ;;
        -*) fail "unknown option $1" "install.sh --help lists the options" ;;
        *)
            [ -z "$folder" ] || fail "two folders given: $folder and $1"
            folder=$1
            ;;
    esac
    shift
done
if [ -z "$python$folder" ]; then
    usage >&2
    exit 2
fi

python=${python:-python3}
check_machine
if [ -n "$folder" ]; then
    make_environment
    folder=$(cd "$folder" && pwd)
    python=$folder/bin/python
fi
echo "installing Cotenant $version for Python $minor into ${folder:-$python}"
pip_install --force-reinstall --no-deps "cotenant==$version"
pip_install "cotenant[demo]==$version"
self_test
if [ -n "$folder" ]; then
    echo "installed: $folder/bin/cotenant"
else
    echo "installed: $python -m cotenant"
fi
