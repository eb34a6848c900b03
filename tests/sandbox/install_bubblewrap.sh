#!/bin/sh
# Installs bubblewrap where that is possible; without it, its tests are skipped
# with the reason.
set -eu
if command -v bwrap >/dev/null; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "bubblewrap is not installed, and this user cannot install it:" \
    "run 'apt-get update && apt-get install -y bubblewrap' as root" >&2
  exit 0
fi
if ! { apt-get update -qq &&
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq bubblewrap; } >/dev/null
then
  echo "bubblewrap could not be installed" >&2
fi
