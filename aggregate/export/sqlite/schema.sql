-- Times are in ns after the first event, and before it if they are negative. Sizes are in bytes.
-- A NULL is not known, or did not happen.

CREATE TABLE recording (
  schema_version INTEGER NOT NULL,
  first_event_monotonic_ns INTEGER, -- CLOCK_MONOTONIC, as in ttmem's JSON
  first_event_utc TEXT,
  last_event_ns INTEGER
);

CREATE TABLE chips (
  chip INTEGER PRIMARY KEY,
  board TEXT,
  arch TEXT,
  -- L1 of a core, with circular buffers: of the fullest core
  l1_capacity_bytes_per_core INTEGER,
  l1_peak_bytes_per_core INTEGER,
  l1_peak_ns INTEGER
);

CREATE TABLE regions (
  chip INTEGER NOT NULL REFERENCES chips,
  region TEXT NOT NULL, -- DRAM, L1, L1_SMALL, TRACE, SYSTEM_MEMORY
  banks INTEGER,
  capacity_bytes_per_bank INTEGER,
  capacity_bytes INTEGER, -- of all banks
  peak_bytes INTEGER, -- of all banks; that of L1 is in chips
  peak_ns INTEGER,
  PRIMARY KEY (chip, region)
) WITHOUT ROWID;

-- The chips of an event, a buffer or a failure: those of one device or mesh.
CREATE TABLE chip_sets (
  chip_set INTEGER NOT NULL,
  chip INTEGER NOT NULL REFERENCES chips,
  PRIMARY KEY (chip_set, chip)
) WITHOUT ROWID;

CREATE TABLE processes (
  process INTEGER PRIMARY KEY, -- a PID may come again
  pid INTEGER NOT NULL,
  name TEXT,
  command TEXT,
  uid INTEGER,
  library TEXT,
  release TEXT, -- of the library
  container TEXT,
  pod TEXT,
  container_pid INTEGER,
  attached_late INTEGER, -- 1: had opened a device before ttmem attached
  start_ns INTEGER,
  exit_ns INTEGER,
  exit_status INTEGER -- as in wait(2)
);

CREATE TABLE stacks (
  stack INTEGER PRIMARY KEY,
  name TEXT, -- model.py:12 forward · ttnn.matmul
  operation TEXT, -- ttnn.matmul
  component TEXT, -- functions of the user's code, outermost first, or as --rules names it
  runtime_retained TEXT -- the kind of buffer that tt-metal keeps for itself
);

CREATE TABLE frames (
  stack INTEGER NOT NULL REFERENCES stacks,
  depth INTEGER NOT NULL, -- 0 is the innermost
  kind TEXT NOT NULL, -- python, native
  function TEXT,
  file TEXT,
  line INTEGER,
  module TEXT,
  address INTEGER, -- in the module's file
  inlined INTEGER NOT NULL,
  PRIMARY KEY (stack, depth)
) WITHOUT ROWID;

CREATE TABLE buffers (
  buffer INTEGER PRIMARY KEY,
  process INTEGER NOT NULL REFERENCES processes,
  buffer_id INTEGER NOT NULL, -- as in `ttmem log`; unique while the buffer lives
  chip_set INTEGER, -- of chip_sets
  region TEXT NOT NULL,
  layout TEXT NOT NULL,
  address INTEGER NOT NULL, -- in each bank
  size_bytes INTEGER NOT NULL, -- on each chip
  page_size_bytes INTEGER NOT NULL,
  bytes_per_bank INTEGER NOT NULL,
  banks INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL, -- on each chip, in all banks
  cores TEXT, -- JSON, [x0,y0,x1,y1] each: of a buffer on single cores
  before_attach INTEGER NOT NULL, -- 1: existed when ttmem attached
  stack INTEGER REFERENCES stacks, -- of the allocation
  birth_event INTEGER REFERENCES events,
  birth_ns INTEGER NOT NULL,
  death_event INTEGER REFERENCES events, -- NULL with a death: the event was lost
  death_ns INTEGER, -- NULL: live at the end
  death_reason TEXT, -- explicit, device_close, process_exit, lost
  owner TEXT, -- who held it last, as in `ttmem dump`: model.layers[0].wq
  tensor TEXT, -- what it is there: bf16[1,32,32,64] TILE
  class TEXT -- what it is for, as `ttmem dump --by class` has it; NULL if not known
);

-- Circular buffers, dataflow buffers and scratchpads, for each chip.
CREATE TABLE circular_buffers (
  circular_buffer INTEGER PRIMARY KEY,
  program INTEGER NOT NULL REFERENCES programs,
  chip INTEGER NOT NULL REFERENCES chips,
  kind TEXT NOT NULL, -- circular_buffer, dataflow_buffer, scratchpad
  address INTEGER NOT NULL, -- on each core
  bytes_per_core INTEGER NOT NULL,
  cores TEXT NOT NULL, -- JSON, [x0,y0,x1,y1] each
  core_count INTEGER NOT NULL,
  in_buffer INTEGER NOT NULL, -- 1: inside of an L1 buffer, which has the memory
  stack INTEGER REFERENCES stacks,
  birth_ns INTEGER NOT NULL,
  death_ns INTEGER
);

-- A program is one program of a process, from its first event to its last.
CREATE TABLE programs (
  program INTEGER PRIMARY KEY,
  process INTEGER NOT NULL REFERENCES processes,
  program_id INTEGER NOT NULL, -- as in `ttmem log`
  stack INTEGER REFERENCES stacks, -- of its first event
  first_ns INTEGER NOT NULL,
  runs INTEGER NOT NULL, -- enqueued, or by the replay of a captured trace
  last_run_ns INTEGER,
  kernel_dram_bytes INTEGER, -- binaries, on each chip
  kernel_l1_bytes_per_core INTEGER, -- text
  kernel_kind TEXT, -- worker, command_queue, fabric; command_queue_or_fabric if it is not known which
  replays INTEGER NOT NULL -- of runs: those by the replay of a captured trace
);

CREATE TABLE failures (
  event INTEGER PRIMARY KEY REFERENCES events,
  time_ns INTEGER NOT NULL,
  process INTEGER REFERENCES processes,
  chip_set INTEGER, -- of chip_sets
  region TEXT NOT NULL, -- '' of an operation that failed for a reason other than memory
  reason TEXT, -- as in docs/events.md
  size_bytes INTEGER, -- requested, on each chip
  bytes_per_bank INTEGER,
  banks INTEGER,
  free_bytes_per_bank INTEGER, -- known of the newest 1000
  largest_free_bytes_per_bank INTEGER,
  program INTEGER REFERENCES programs,
  stack INTEGER REFERENCES stacks,
  message TEXT
);

CREATE TABLE marks (
  event INTEGER PRIMARY KEY REFERENCES events,
  time_ns INTEGER NOT NULL,
  name TEXT NOT NULL,
  uid INTEGER NOT NULL,
  process INTEGER REFERENCES processes -- whose call it marks
);

-- Events that ttmem lost: figures of the process, or of all, may be wrong.
CREATE TABLE losses (
  event INTEGER PRIMARY KEY REFERENCES events,
  time_ns INTEGER NOT NULL,
  process INTEGER REFERENCES processes,
  cause TEXT NOT NULL,
  events INTEGER NOT NULL
);

CREATE TABLE events (
  event INTEGER PRIMARY KEY, -- in order of time
  time_ns INTEGER NOT NULL,
  kind TEXT NOT NULL, -- as in `ttmem log`
  process INTEGER REFERENCES processes,
  tid INTEGER,
  buffer INTEGER REFERENCES buffers,
  program INTEGER REFERENCES programs,
  chip_set INTEGER, -- of chip_sets
  stack INTEGER REFERENCES stacks, -- of a free that a close or an exit implies: of the allocation
  trace_id INTEGER -- of trace_begin, trace_end, trace_replay, trace_release: the captured trace
);
