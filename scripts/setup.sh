# Sourced by the other scripts: a virtual environment of their own, from nothing but Python >= 3.11.
#
#   setup_venv FOLDER [GROUP…]   makes FOLDER unless it is there and made from this pyproject.toml,
#                                and puts its bin first in PATH
#
# PYTHON names the interpreter to use; else the newest python3.x >= 3.11 in PATH that works.

find_python() {
  for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      # the interpreter behind a virtual environment: the environment may be ours, about to be made again
      "$candidate" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)'
      return 0
    fi
  done
  echo "error: no Python >= 3.11 with venv was found" >&2
  echo "hint: install one (Debian, Ubuntu: apt-get install python3-venv), or name it: PYTHON=/path/to/python $0" >&2
  return 2
}

setup_venv() {
  local folder=$1 python stamp groups=() group
  [ "${ARYLCLOUD_VENV_READY:-}" != "$folder" ] || return 0  # the script that called this one has done it
  shift
  for group in "$@"; do groups+=(--group "$group"); done
  python=$(find_python) || return 2
  # made again when the interpreter, the dependencies or this script change; else used as it is
  stamp=$("$python" - "$ROOT" "$*" <<'PY'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
parts = [sys.version, sys.base_prefix, sys.argv[1], sys.argv[2]]
parts += [(root / name).read_text() for name in ("pyproject.toml", "scripts/setup.sh")]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
  ) || return 1
  if [ "$(cat "$folder/.made-from" 2>/dev/null)" != "$stamp" ]; then
    echo "setting up $folder with $("$python" --version 2>&1) (once; later runs use it again)" >&2
    rm -rf "$folder"
    "$python" -m venv "$folder" || return 1
    # --group needs pip 25.1
    "$folder/bin/python" -m pip install --quiet --upgrade 'pip>=25.1' || return 1
    (cd "$ROOT" && "$folder/bin/python" -m pip install --quiet --editable . "${groups[@]}") || return 1
    echo "$stamp" >"$folder/.made-from"
  fi
  export PATH="$folder/bin:$PATH" VIRTUAL_ENV="$folder" ARYLCLOUD_VENV_READY="$folder"
}

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
unset PYTHONPATH PYTHONHOME
