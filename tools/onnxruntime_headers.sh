#!/usr/bin/env bash
# tools/onnxruntime_headers.sh FOLDER: puts ONNX Runtime's C headers (1.23, the first with the complete interface for
# plugin providers) into FOLDER. They come from Debian's package libonnxruntime-dev of a newer suite than bookworm, checked
# by apt with Debian's keys; nothing is installed and root is not needed. Does nothing if they exist.
set -euo pipefail
target=$1
header=onnxruntime_ep_c_api.h
if [[ -f $target/$header ]]; then exit 0; fi

fail() {
  echo "onnxruntime_headers.sh: $*" >&2
  echo "Or take the folder 'include' of any ONNX Runtime release from 1.23 on: -DSARDONYX_ONNXRUNTIME_INCLUDE=FOLDER" >&2
  exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this way needs Debian's apt-get and dpkg-deb"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{sources,lists/partial,cache/archives/partial,unpacked}
# The machine's configured mirror, from either kind of apt source file.
# shellcheck disable=SC2016  # fields of apt's format
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 's/\(.*\/debian\)\/*$/\1/p' | sort -u | sed -n 1p)
[[ -n $mirror ]] || fail "apt has no source of Debian's main archive (a URI that ends in /debian)"
cat >"$work/sources/forky.sources" <<TXT
Types: deb
URIs: $mirror
Suites: forky
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
TXT
apt=(apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/sources" -o Dir::State::Lists="$work/lists"
  -o Dir::Cache="$work/cache" -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false)
if ((EUID == 0)); then apt+=(-o APT::Sandbox::User=root); fi
"${apt[@]}" update >"$work/log" 2>&1 || fail "apt-get update: $(tail -n 3 "$work/log")"
(cd "$work" && "${apt[@]}" download libonnxruntime-dev >"$work/log" 2>&1) || fail "apt-get download: $(tail -n 3 "$work/log")"
dpkg-deb -x "$work"/libonnxruntime-dev_*.deb "$work/unpacked"
found=$(find "$work/unpacked" -name "$header" -print -quit)
[[ -n $found ]] || fail "the package libonnxruntime-dev has no $header"
mkdir -p "$target"
cp "$(dirname "$found")"/onnxruntime_*.h "$target/"
