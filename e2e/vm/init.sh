#!/bin/busybox sh
# The guest's first process: mounts the root and goes on in it. Lines that begin with
# "ttmem-vm: " are for the host.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
/bin/busybox --install -s /bin
export PATH=/bin
fail() {
	echo "ttmem-vm: failed $*"
	poweroff -f
}
mount -t proc proc /proc
mount -t sysfs sys /sys
echo "ttmem-vm: started $(uname -r)"
case $(cat /proc/cmdline) in
*ttmem.probe*) poweroff -f ;;
esac
for module in /modules/*.ko; do
	insmod "$module" || fail "loading $module"
done
mount -t ext4 -o noatime /dev/vda /root || fail "mounting the root"
for dir in proc sys dev; do
	mount --move /$dir /root/$dir || fail "moving /$dir"
done
cd /root
mkdir -p dev/pts dev/shm
mount -t devpts pts dev/pts
mount -t tmpfs shm dev/shm
mount -t tmpfs tmp tmp
mount -t tmpfs vm vm
mount -t tmpfs run run
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tracefs trace sys/kernel/tracing
mount -t bpf bpf sys/fs/bpf
ip link set lo up
tar -xf dev/vdb -C vm || fail "unpacking what the host has sent"
cp /bin/busybox vm/busybox
exec switch_root /root /vm/busybox sh /vm/main.sh
