#!/bin/sh
# Fetches the source of llama.cpp v0.5.0, which the npm package node-llama-cpp carries.  Needs npm and git.
#   fetch-llama.sh FOLDER
set -eu
[ -d "$1" ] && exit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent node-llama-cpp@3.22.1 >/dev/null)
tar xzf "$work/node-llama-cpp-3.22.1.tgz" -C "$work" package/llama/gitRelease.bundle
git clone -q "$work/package/llama/gitRelease.bundle" "$1"
