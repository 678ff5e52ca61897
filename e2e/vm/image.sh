#!/bin/sh
# Completes the guest's root: mmdebstrap calls it with the root's directory. ROOT_COPY
# has the files and directories of the host that the guest has at the same places,
# ROOT_PYTHON is its interpreter.
set -eu
root=$1
mkdir -p "$root/vm"
# shellcheck disable=SC2086 # a list of paths
tar -C / --exclude=test --exclude=tests --exclude=idlelib --exclude=ensurepip --exclude=tkinter \
	--exclude='config-3*' --exclude='*.a' --exclude=site-packages/pip -cf - $ROOT_BASE | tar -C "$root" -xf -
# shellcheck disable=SC2086
tar -C / -cf - $ROOT_COPY | tar -C "$root" -xf -
echo guest >"$root/etc/hostname"
echo 127.0.0.1 localhost guest >"$root/etc/hosts"
chroot "$root" "$ROOT_PYTHON" -c 'import ttnn'
