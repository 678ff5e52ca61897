package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
	"ttmem/tracer/recording"
)

// FailuresFolder is where the installed service keeps recordings of failed allocations.
const FailuresFolder = "/var/lib/ttmem/failures"

// recentSize is the maximum size of the recording that is always written, unless one of its blocks
// or checkpoints needs more.
const recentSize = 8 << 20

// The bounds of a folder of failures.
const (
	keepInterval    = 10 * time.Second // between two files of a user
	failuresPerUser = 8
	failureBytes    = 256 << 20 // of all files
	maxCauses       = 4096
)

// The names of the recording that is always written, and of kept ones: failure-UID-TIME.ttmem,
// whose times are UTC and sort as texts.
const (
	recentName    = "recent.ttmem"
	failurePrefix = "failure-"
	failureTime   = "20060102-150405.000"
	failureSuffix = ".ttmem"
)

// A BlackBox keeps recordings of failed allocations in a folder. It always writes a small
// recording there, which begins with a checkpoint and is replaced when it is full. When an
// allocation fails for a new cause, the present one gets a second name under which it stays: a
// hard link, so that keeping it copies nothing, and events after the failure follow. A nil BlackBox
// does nothing.
type BlackBox struct {
	recent *Service
	folder *os.Root
	in     *os.File // the same folder
	path   string
	seen   map[cause]bool
	users  map[int]int // of processes
	// wanted are the processes of failures that no recording was kept for yet, one for each user.
	wanted map[int]int
	kept   map[int]keeping // the latest by user
}

// A cause is what failures have in common that are kept once.
type cause struct {
	uid    int
	region event.Region
	reason event.Reason
	stack  uint64
}

// A keeping is a recording that was kept for a user.
type keeping struct {
	file fs.FileInfo
	at   time.Time
}

// NewBlackBox returns nil without o.CrashDir. It makes the folder if it does not exist; only this user,
// or the user behind sudo, may read it.
func NewBlackBox(o Options, state *aggregate.State) (*BlackBox, error) {
	dir := o.CrashDir
	if dir == "" {
		return nil, nil
	}
	b := &BlackBox{
		seen: make(map[cause]bool), users: make(map[int]int), wanted: make(map[int]int), kept: make(map[int]keeping),
	}
	fail := func(err error) (*BlackBox, error) {
		return nil, fmt.Errorf("--crash-dir %s: %w", dir, host.WithoutPath(err))
	}
	at, err := place.Find(dir)
	if err != nil {
		return fail(err)
	}
	defer at.Close()
	b.path = at.String()
	in, err := at.MakeFolder(0o700)
	if errors.Is(err, fs.ErrExist) {
		in, err = at.OpenFolder()
	}
	if err != nil {
		return fail(err)
	}
	b.in = in
	if b.folder, err = os.OpenRoot(place.In(in, ".").Path()); err != nil {
		return fail(err)
	}
	info, err := b.folder.Stat(".")
	if err == nil {
		err = checkFolder(info)
	}
	if err == nil {
		if !recording.IsRecording(b.at(recentName).Path()) { // damaged when the host went down
			_ = b.folder.Remove(recentName)
		}
		recent := Options{
			Path: filepath.Join(b.path, recentName), at: b.at(recentName),
			MaxSize: cmp.Or(o.recentSize, recentSize), Keep: 2, version: o.version,
		}
		b.recent, err = NewService(recent, state)
	}
	if err != nil {
		b.folder.Close()
		return fail(err)
	}
	return b, nil
}

// at returns a place in the folder.
func (b *BlackBox) at(name string) *place.Place { return place.In(b.in, name) }

// checkFolder returns an error for a folder that other users can use.
func checkFolder(info fs.FileInfo) error {
	if place.Ours(info) && info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return errors.New("other users can use this folder: name one that does not exist, or chmod 700 your own")
}

// Take takes an event, after it was applied to the state.
func (b *BlackBox) Take(e *event.Event) {
	if b == nil {
		return
	}
	b.recent.Take(e)
	switch e.Kind {
	case event.ProcessStart:
		b.users[e.PID] = e.CountsTo()
	case event.ProcessExit:
		delete(b.users, e.PID)
	case event.AllocFailed:
		c := cause{b.users[e.PID], e.Region, e.Reason, memory.StackID(e.Stack)}
		if b.seen[c] {
			return
		}
		if len(b.seen) >= maxCauses {
			clear(b.seen)
		}
		b.seen[c] = true
		b.wanted[c.uid] = e.PID
	}
}

// Pause is called between batches of events.
func (b *BlackBox) Pause() {
	if b == nil {
		return
	}
	b.recent.Pause()
	for uid := range b.wanted {
		if b.has(uid) || time.Since(b.kept[uid].at) >= keepInterval {
			b.keep(uid)
		}
	}
}

// has reports whether the present recording is kept for a user already.
func (b *BlackBox) has(uid int) bool {
	info, err := b.folder.Lstat(recentName)
	return err == nil && os.SameFile(info, b.kept[uid].file)
}

// keep keeps the present recording for the wanted failure of a user.
func (b *BlackBox) keep(uid int) {
	pid := b.wanted[uid]
	delete(b.wanted, uid)
	if b.has(uid) {
		return
	}
	b.recent.note(b.recent.file.Flush()) // with the failure
	name := fmt.Sprintf("%s%d-%s%s", failurePrefix, uid, time.Now().UTC().Format(failureTime), failureSuffix)
	info, err := b.folder.Lstat(recentName)
	if err == nil {
		err = b.folder.Link(recentName, name)
	}
	b.kept[uid] = keeping{info, time.Now()}
	if err != nil {
		term.Warn(fmt.Sprintf("--crash-dir: no recording of the failed allocation of PID %d: %v", pid, host.WithoutPath(err)))
		return
	}
	path := filepath.Join(b.path, name)
	term.Warn(fmt.Sprintf("an allocation of PID %d failed: `ttmem oom %s` says why, `ttmem html %s --to failure` makes a page for a browser", pid, path, path))
	for _, old := range surplus(failuresIn(b.folder.FS())) {
		_ = b.folder.Remove(old.name)
	}
}

// End ends the recording.
func (b *BlackBox) End(s *memory.Snapshot) {
	if b == nil {
		return
	}
	for uid := range b.wanted {
		b.keep(uid)
	}
	if err := b.recent.Close(s); err != nil {
		term.Warn(err.Error())
	}
	b.folder.Close()
}

// A failureFile is a kept recording.
type failureFile struct {
	name, uid, time string
	bytes           int64
}

// failuresIn returns the kept recordings in a folder, oldest first.
func failuresIn(folder fs.FS) (list []failureFile) {
	entries, _ := fs.ReadDir(folder, ".")
	for _, one := range entries {
		name, isFailure := strings.CutPrefix(one.Name(), failurePrefix)
		name, isRecording := strings.CutSuffix(name, failureSuffix)
		uid, at, isKept := strings.Cut(name, "-")
		info, err := one.Info()
		if isFailure && isRecording && isKept && err == nil && info.Mode().IsRegular() {
			list = append(list, failureFile{one.Name(), uid, at, info.Size()})
		}
	}
	slices.SortFunc(list, func(a, b failureFile) int {
		return cmp.Or(strings.Compare(a.time, b.time), strings.Compare(a.name, b.name))
	})
	return list
}

// surplus returns the files to remove: the oldest of users with too many and, while all together
// are too long, the oldest of the user with the most.
func surplus(list []failureFile) (remove []failureFile) {
	count, bytes := make(map[string]int), int64(0)
	for _, f := range list {
		count[f.uid]++
		bytes += f.bytes
	}
	for len(list) > 1 {
		most := 0
		for _, n := range count {
			most = max(most, n)
		}
		if most <= failuresPerUser && bytes <= failureBytes {
			break
		}
		i := slices.IndexFunc(list, func(f failureFile) bool { return count[f.uid] == most })
		count[list[i].uid]--
		bytes -= list[i].bytes
		remove = append(remove, list[i])
		list = slices.Delete(list, i, i+1)
	}
	return remove
}

// NewestFailure returns the newest kept recording in a folder; "" if there is none, or this user
// may not read the folder.
func NewestFailure(dir string) string {
	list := failuresIn(os.DirFS(dir))
	if len(list) == 0 {
		return ""
	}
	return filepath.Join(dir, list[len(list)-1].name)
}
