# The guest's first process once the root is mounted. It stays, so that a failure of the
# checks does not cause a kernel panic.
. /vm/environment
/bin/bash /vm/checks.sh
echo "ttmem-vm: ended"
sync
/vm/busybox poweroff -f
