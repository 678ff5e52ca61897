package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
	"ttmem/tracer/recording"
)

// FailuresFolder is where the installed service keeps recordings of failed allocations.
const FailuresFolder = "/var/lib/ttmem/failures"

// The bounds of a recording of a failure.
const (
	keepDelay  = 5 * time.Second // after a failure: who held the buffers is searched
	keepEvents = 300_000         // after a failure
	keepSize   = 8 << 20         // unless what was live or followed needs more
)

// The bounds of a folder of failures.
const (
	keepInterval    = 10 * time.Second // between two files of a user
	failuresPerUser = 8
	failureBytes    = 256 << 20 // of all files
	maxCauses       = 4096
)

// The names of kept recordings, failure-UID-TIME.ttmem, whose times are UTC and sort as texts, and of one that
// is not complete.
const (
	failurePrefix = "failure-"
	failureTime   = "20060102-150405.000"
	failureSuffix = ".ttmem"
	partName      = "failure.new"
)

// A BlackBox keeps recordings of failed allocations in a folder: some seconds after an allocation failed
// for a new cause, it writes the newest events. A user's next failure is added to the file of the one
// before, by writing it again, as long as a file has both. A nil BlackBox does nothing.
type BlackBox struct {
	newest Newest
	tape   *recording.Rolling // nil if newest is of another one
	size   int                // keepSize
	events uint64             // taken ones
	folder *os.Root
	in     *os.File // the same folder
	path   string
	seen   map[cause]bool
	users  map[int]int     // of processes
	wanted map[int]failure // the first of each user that no recording was kept for yet
	kept   map[int]keeping // the latest by user
}

// Newest returns at least as many of the newest events, and more if they have at most that many bytes.
type Newest func(events uint64, most int) recording.Excerpt

// A cause is what failures have in common that are kept once.
type cause struct {
	uid    int
	region event.Region
	reason event.Reason
	stack  uint64
}

// A failure is the number of its event, and when that was taken.
type failure struct {
	pid    int
	number uint64
	at     time.Time
}

// A keeping is a recording that was kept for a user, and its first part.
type keeping struct {
	name  string
	first int
	at    time.Time
}

// NewBlackBox returns nil without o.CrashDir. It makes the folder if it does not exist; only this user,
// or the user behind sudo, may read it. Events that are taken are in newest before; if newest is nil, the
// BlackBox has its own.
func NewBlackBox(o Options, state *aggregate.State, newest Newest) (*BlackBox, error) {
	dir := o.CrashDir
	if dir == "" {
		return nil, nil
	}
	b := &BlackBox{
		newest: newest, size: keepSize, seen: make(map[cause]bool), users: make(map[int]int), wanted: make(map[int]failure), kept: make(map[int]keeping),
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
	if err == nil && newest == nil {
		header := recording.NewHeader()
		header.Ttmem = o.version
		b.tape, err = recording.NewRolling(header, recording.RollingPart, func() func() *event.Event { return state.Freeze(nil) })
		b.newest = func(events uint64, most int) recording.Excerpt { return b.tape.Newest(events, most, host.Now()) }
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
	if b.events++; b.tape != nil {
		b.tape.Add(e)
	}
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
		if _, waits := b.wanted[c.uid]; !waits {
			b.wanted[c.uid] = failure{e.PID, b.events, time.Now()}
		}
	}
}

// Pause is called between batches of events.
func (b *BlackBox) Pause() {
	if b == nil {
		return
	}
	if b.tape != nil {
		b.tape.Trim(b.size)
	}
	for uid, f := range b.wanted {
		_, runs := b.users[f.pid]
		if (!runs || time.Since(f.at) >= keepDelay || b.events-f.number >= keepEvents) && time.Since(b.kept[uid].at) >= keepInterval {
			b.keep(uid)
		}
	}
}

// keep keeps the newest events for the wanted failure of a user.
func (b *BlackBox) keep(uid int) {
	f := b.wanted[uid]
	delete(b.wanted, uid)
	newest := b.newest(min(b.events-f.number+1, 2*keepEvents), b.size)
	k, now := b.kept[uid], time.Now()
	isNew := k.name == "" || k.first != newest.First
	if isNew {
		k.name = fmt.Sprintf("%s%d-%s%s", failurePrefix, uid, now.UTC().Format(failureTime), failureSuffix)
	}
	err := b.write(k.name, newest.Data)
	if err != nil {
		k.name = ""
		term.Warn(fmt.Sprintf("--crash-dir: no recording of the failed allocation of PID %d: %v", f.pid, err))
	}
	b.kept[uid] = keeping{k.name, newest.First, now}
	if err == nil && isNew {
		path := filepath.Join(b.path, k.name)
		term.Warn(fmt.Sprintf("an allocation of PID %d failed: `ttmem oom %s` says why, `ttmem html %s --to failure` makes a page for a browser", f.pid, path, path))
	}
	for _, old := range surplus(failuresIn(b.folder.FS())) {
		_ = b.folder.Remove(old.name)
	}
}

// write writes a file, which replaces an older one of its name when it is complete.
func (b *BlackBox) write(name string, data net.Buffers) error {
	part := b.at(partName)
	_ = part.Remove() // a killed process may have left it
	f, err := part.Create(filepath.Join(b.path, name), 0o600)
	if err == nil {
		_, err = data.WriteTo(f)
		err = cmp.Or(err, f.Close())
	}
	if err == nil {
		err = part.Rename(b.at(name))
	}
	if err != nil {
		_ = part.Remove()
	}
	return host.WithoutPath(err)
}

// End keeps what no recording was kept for yet.
func (b *BlackBox) End() {
	if b == nil {
		return
	}
	for uid := range b.wanted {
		b.keep(uid)
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
// are too long, the oldest of the user with the most bytes.
func surplus(list []failureFile) (remove []failureFile) {
	count, bytes, sum := make(map[string]int64), make(map[string]int64), int64(0)
	add := func(f *failureFile, sign int64) {
		count[f.uid] += sign
		bytes[f.uid] += sign * f.bytes
		sum += sign * f.bytes
	}
	for i := range list {
		add(&list[i], 1)
	}
	for len(list) > 1 {
		by := count
		if slices.Max(slices.Collect(maps.Values(count))) <= failuresPerUser {
			if by = bytes; sum <= failureBytes {
				break
			}
		}
		most := slices.Max(slices.Collect(maps.Values(by)))
		i := slices.IndexFunc(list, func(f failureFile) bool { return by[f.uid] == most })
		add(&list[i], -1)
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
