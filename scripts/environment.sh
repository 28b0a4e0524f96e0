# Sourced by the scripts: makes .venv with the package installed (editable), says what is missing.
#
#   need_environment EXTRAS     .venv with these extras, made or brought up to date
#   need_compiler               a C++ compiler, or the ziglang wheel in .venv
#
# Nothing is installed twice: a stamp holds what pyproject.toml said.

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
  fail "Python 3.11 or newer is needed; found $(python3 --version 2>/dev/null || echo none)." \
    "Install one (for example: apt-get install python3.11 python3.11-venv) or set PYTHON=/path/to/python."
}

pip_install() {
  "$python" -m pip install -qq --disable-pip-version-check "$@" || fail \
    "pip could not install: $*. Is there a network and a package index? The lines above say what pip met."
}

need_environment() {
  local extras=$1 base stamp want
  python=$PWD/.venv/bin/python
  stamp=.venv/installed-by-scripts
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    base=$(find_python)
    echo "making .venv with $("$base" --version)" >&2
    rm -rf .venv
    "$base" -m venv .venv || fail "$base cannot make a virtual environment." \
      "On Debian and Ubuntu: apt-get install python3-venv"
  fi
  want="$extras $(cksum < pyproject.toml) $PWD"
  if ! grep -qxF "$want" "$stamp" 2>/dev/null; then
    echo "installing graphwright[$extras] into .venv" >&2
    pip_install --editable ".[$extras]"
    echo "$want" >> "$stamp"
  fi
}

need_compiler() {
  local candidate
  for candidate in ${CXX:-} c++ g++ clang++; do
    command -v "$candidate" >/dev/null 2>&1 && return
  done
  if ! "$python" -c 'import ziglang' 2>/dev/null; then
    echo "no C++ compiler (g++, clang++) is installed: fetching one as the Python package ziglang" >&2
    pip_install "ziglang>=0.13"
  fi
}
