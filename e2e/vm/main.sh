# The guest's first process once the root is mounted: systemd, or a shell. That stays, so that a
# failure of the checks does not cause a kernel panic.
cat >/vm/all.sh <<'END'
. /vm/environment
/bin/bash /vm/checks.sh
echo "ttmem-vm: ended"
sync
/vm/busybox poweroff -f
END
case $(/vm/busybox cat /proc/cmdline) in
*ttmem.systemd*)
	mkdir -p /run/systemd/system
	cat >/run/systemd/system/ttmem-vm.service <<'END'
[Service]
ExecStart=/bin/sh /vm/all.sh
StandardOutput=file:/dev/console
StandardError=file:/dev/console
END
	exec /usr/lib/systemd/systemd --unit=ttmem-vm.service
	;;
esac
. /vm/all.sh
