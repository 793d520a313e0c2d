#!/usr/bin/env bash
# Installs what the engine tests need (a Docker engine, a static busybox, debootstrap, a local registry), where this
# machine lets us; says so where it does not. The tests start and stop their own engine.
set -u
packages=(docker.io busybox-static debootstrap iptables docker-registry skopeo)
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "engine tests: not run (no root or no apt-get here to install an engine with)"
    exit 0
fi
missing=()
for package in "${packages[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1; then
    echo "engine tests: not run (could not install: ${missing[*]})"
fi
exit 0
