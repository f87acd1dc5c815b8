#!/bin/sh
# Checks what a build needs from the system. Prints the Python to use, or one line that names all that is missing.
# PYTHON chooses an interpreter; otherwise python3 if it fits, else the newest that does.
set -u

CXX=${CXX:-g++}
missing=
packages=

lack() {
    missing="${missing:+$missing, }$1"
    packages="${packages:+$packages }$2"
}

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

case "$(uname -s) $(uname -m)" in
    "Linux x86_64" | "Linux aarch64") ;;
    *)
        echo "error: Cotenant builds on Linux x86-64 and aarch64 only; this is $(uname -s) $(uname -m)" >&2
        exit 1
        ;;
esac

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if fits "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    lack "${PYTHON:-Python} (3.11, 3.12 or 3.13)" "python3 python3-venv"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    lack "Python's venv module with ensurepip" python3-venv
fi

if ! command -v "$CXX" >/dev/null 2>&1; then
    lack "$CXX (a C++17 compiler)" g++
elif ! echo '#include <optional>' | "$CXX" -std=c++17 -x c++ -fsyntax-only - 2>/dev/null; then
    lack "a $CXX that compiles C++17" g++
fi

if [ -n "$missing" ]; then
    echo "error: missing: $missing (Debian and Ubuntu: apt install $packages)" >&2
    exit 1
fi
echo "$python"
