# Runs the checks one after the other. The host reads the results from the third drive: for
# each a line "check NAME STATUS SECONDS BYTES" and the output, and "end" at the end.
exec 3>/dev/vdc

check() { # NAME LIMIT DIRECTORY COMMAND...
	local name=$1 limit=$2 dir=$3 begun status
	shift 3
	[[ $(</proc/cmdline) == *ttmem.checks=*,$name,* ]] || return
	echo "ttmem-vm: begin $name"
	begun=$SECONDS
	(cd "$dir" && exec timeout -k 10 "$limit" "$@") >/tmp/output 2>&1 </dev/null
	status=$?
	tail -c 4000000 /tmp/output >/tmp/end
	echo "check $name $status $((SECONDS - begun)) $(stat -c %s /tmp/end)" >&3
	cat /tmp/end >&3
	sync
	echo "ttmem-vm: end $name $status $((SECONDS - begun))"
}

echo "kernel $(uname -v)" >&3
. /vm/list
echo end >&3
