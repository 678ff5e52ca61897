#!/bin/sh
# Asks five questions about real programs, one command each. It needs root and an environment
# with ttnn: . ./bin/demo.env after `make demo`, or one of your own.
#
#   sudo -E env "PATH=$PATH" docs/questions.sh [FOLDER FOR RECORDINGS]
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
ttmem=${TTMEM:-$tree/bin/ttmem}
programs=$tree/e2e/programs
cd "${1:-$(mktemp -d)}"

# say prints a command, and the first screen of its answer.
say() {
	printf '\n# %s\n$ ttmem' "$1"
	shift
	printf ' %s' "$@"
	printf '\n'
	"$ttmem" "$@" 2>&1 | head -n 22
}

# once runs a program once; everything else asks its recording.
once() {
	file=$1
	shift
	TTMEM_MESH=1x1 "$ttmem" run -o "$file" -- python "$@" >/dev/null 2>run.log || [ $? != 125 ] || { cat run.log; exit 125; }
}

sed 's/self.seen.append(ttnn.log(result))/ttnn.log(result)/' "$programs/story_leak.py" >story_leak.py
PYTHONPATH=$programs once yesterday.ttmem story_leak.py 60
once model.ttmem "$programs/story_leak.py" 60
once failed.ttmem "$programs/story_fragments.py" raise
once peak.ttmem "$programs/story_peak.py"

# a program that holds its buffers until its input ends; its recording grows meanwhile
mkfifo input
TTMEM_MESH=1x1 "$ttmem" run -o now.ttmem -- python "$programs/hold.py" 3 512 <input >/dev/null 2>&1 &
exec 3>input
until "$ttmem" dump now.ttmem 2>/dev/null | grep -q hold.py; do sleep 0.2; done
say 'What uses memory now?' dump now.ttmem --by stack
exec 3>&-
wait
say 'What leaks?' leaks model.ttmem
say 'Why did it fail with memory free?' oom failed.ttmem
say 'What is my peak made of?' peak peak.ttmem --region DRAM
say 'What changed since yesterday?' diff yesterday.ttmem model.ttmem
