# ttmem: README.md explains the common targets, CONTRIBUTING.md the others.

GO ?= go
# The compiler of the committed BPF object, from bpf/gen.go.
CLANG_VERSION := $(shell sed -n 's/.*-cc clang-\([0-9]*\) .*/\1/p' bpf/gen.go)
# Root, for the tests that place probes.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
# Installs the packages "$$@", which takes some minutes for compilers and a browser.
APT_INSTALL := command -v apt-get >/dev/null || { echo "install $$* (or what they are called here) first"; exit 1; }; \
	echo "installing with apt, once: $$* …"; began=$$(date +%s); \
	$(SUDO) apt-get -o Acquire::Retries=3 update -qq && \
	$(SUDO) apt-get -o Acquire::Retries=3 install -y -qq "$$@" >/dev/null && \
	echo "installed $$\# packages in $$(( $$(date +%s) - began )) s"
PREFIX ?= /usr/local
# The newest release in CHANGELOG.md. ttmem --version prints the release and the commit.
RELEASE := $(shell sed -n 's/^## \([0-9.]*\)$$/\1/p' CHANGELOG.md | head -n 1)
BUILD := $(RELEASE)$(addprefix +,$(shell git describe --always --dirty --exclude '*' 2>/dev/null))
# The release of ttnn that the demo and the rig use.
VERSION ?= 0.81.1
PYTHON ?=
BOARD ?= n150

# All targets compile in the same way, so that the tests and checks need no packages of their own.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath

.PHONY: all build wheel dist demo test releases check long arm64 chip chiptools card hostile faults busy fuzz soak bench vmtest vmtools rig generate install clean tools

all: build

build: bin/ttmem

bin/ttmem: $(shell find . -name '*.go' -not -path './bin/*') $(shell find cmd/ttmem/internal/web aggregate/export docs -type f) \
		$(wildcard bpf/*.o) go.mod go.sum
	$(GO) build -ldflags '-w -X main.build=$(BUILD)' -o $@ ./cmd/ttmem

# Installs the program, its systemd units, documentation, manual pages and shell completions. DESTDIR
# is for packagers.
UNITS := $(PREFIX)/lib/systemd/system
install: bin/ttmem
	install -D -m 755 bin/ttmem $(DESTDIR)$(PREFIX)/bin/ttmem
	install -D -m 644 -t $(DESTDIR)$(UNITS) docs/service/ttmem.socket docs/service/ttmem.service
	sed -i 's|/usr/local/bin|$(PREFIX)/bin|' $(DESTDIR)$(UNITS)/ttmem.service
	@find docs LICENSE README.md CHANGELOG.md python/ttmem/README.md -type f \
		-exec install -D -m 644 {} $(DESTDIR)$(PREFIX)/share/doc/ttmem/{} \;
	@umask 022 && share=$(DESTDIR)$(PREFIX)/share && bin/ttmem --version >/dev/null && \
	install -d $$share/man/man1 $$share/bash-completion/completions \
		$$share/zsh/site-functions $$share/fish/vendor_completions.d && \
	bin/ttmem man $$share/man/man1 && \
	bin/ttmem completion bash > $$share/bash-completion/completions/ttmem && \
	bin/ttmem completion zsh > $$share/zsh/site-functions/_ttmem && \
	bin/ttmem completion fish > $$share/fish/vendor_completions.d/ttmem.fish || \
	echo "without manual pages and completions"

# The first Python here that has pip, for the build of the wheel.
PIP = $(shell for python in python3 "$$HOME"/.pyenv/versions/3.*/bin/python3; do \
	$$python -m pip --version >/dev/null 2>&1 && { echo $$python -m pip; break; }; done)
# The time of the commit, of all files of a release: the same commit gives the same bytes.
COMMITTED = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# What is packed, below $(DIST)/root/usr.
DIST ?= bin/dist
COMPRESS ?= -9
.PHONY: $(DIST)/root
$(DIST)/root: bin/ttmem
	@rm -rf $@ && mkdir -p $(DIST) && umask 022 && \
	$(MAKE) --no-print-directory install DESTDIR=$(DIST)/root PREFIX=/usr >/dev/null

# A wheel for pip: the program, the Python package, documentation, manual pages and completions.
WHEEL = rm -f $(DIST)/*.whl; pip="$(PIP)"; [ "$$pip" ] || { echo "make $@: no Python with pip: apt install python3-pip"; exit 1; }; \
	umask 022; TTMEM_INSTALLED=$(abspath $(DIST))/root/usr SOURCE_DATE_EPOCH=$(COMMITTED) \
	$$pip wheel $(PIP_FLAGS) --quiet --disable-pip-version-check --no-deps --wheel-dir $(DIST) ./python/ttmem
wheel: $(DIST)/root
	@set -e; $(WHEEL); rm -r $(DIST)/root; ls -s $(DIST)/*.whl

# A release: a wheel, a tarball to unpack in /usr, a Debian package, and checksums.
dist: $(DIST)/root
	@rm -f $(DIST)/ttmem* $(DIST)/SHA256SUMS
	@set -e; $(WHEEL)
	@set -e; export SOURCE_DATE_EPOCH=$(COMMITTED); umask 022; \
	tar -C $(DIST)/root/usr --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$$SOURCE_DATE_EPOCH \
		-cf - . | gzip $(COMPRESS)n > $(DIST)/ttmem-$(RELEASE)-linux-amd64.tar.gz; \
	install -d $(DIST)/root/DEBIAN; \
	printf '%s\n' 'Package: ttmem' 'Version: $(RELEASE)' 'Architecture: amd64' 'Section: devel' 'Priority: optional' \
		'Maintainer: the authors of ttmem <ttmem@localhost>' \
		'Description: shows what uses the memory of Tenstorrent devices' \
		' ttmem traces unmodified programs that use tt-metal or ttnn, from outside, with' \
		' eBPF: how much of each chip is in use, by which process and line of code.' \
		> $(DIST)/root/DEBIAN/control; \
	dpkg-deb --root-owner-group --build $(DIST)/root $(DIST)/ttmem_$(RELEASE)_amd64.deb >/dev/null; \
	rm -r $(DIST)/root; cd $(DIST); sha256sum ttmem* > SHA256SUMS; ls -sh

clean:
	rm -rf bin

# Sets up the real ttnn on its mock device, once, and traces a program on it. It checks the
# host before it downloads anything.
demo: bin/ttmem bin/rig
	@[ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || { \
		echo "make demo: tracing needs root, and there is no sudo here: run it as root"; exit 1; }
	@$(SUDO) bin/ttmem doctor > bin/doctor.txt || { cat bin/doctor.txt; exit 1; }
	bin/rig -version $(VERSION) -python "$(PYTHON)" -board $(BOARD) -env > bin/demo.env
	@. ./bin/demo.env && rm -f bin/demo.ttmem && echo '$$ ttmem run -o bin/demo.ttmem -- python e2e/programs/demo.py' && \
	bin/ttmem run -o bin/demo.ttmem -- python e2e/programs/demo.py

bin/rig: $(wildcard e2e/rig/*.go e2e/rig/chip/* e2e/rig/cmd/rig/*.go) go.mod
	$(GO) build -o $@ ./e2e/rig/cmd/rig

# All tests on the newest ttnn, except those with a separate target. Never cached: Go's cache does
# not notice changes of the ttmem that e2e builds. What takes longest goes first: e2e, and the packages
# that start programs. Tests wait for programs that start, so more of them run at once than there are
# processors. Without the tables for debuggers, the tests are linked in half the time. With GOGC, compiling, linking and
# the tests themselves collect garbage more rarely.
CPUS := $(shell nproc)
TRACING := ./tracer ./tracer/internal/stack ./tracer/internal/heap ./tracer/owner ./tracer/doctor ./e2e/rig
TEST = $(SUDO) GOGC=400 $(GO) test -vet=off -ldflags=-w -count=1 -p $$(( $(CPUS) + 1 )) -parallel $$(( $(CPUS) + 2 )) -timeout 60m
test: tools bin/rig
	@$(SUDO) bin/rig -all || echo "the tests that need what failed will fail"
	@echo "testing, eight to thirteen minutes on two processors: the results of other packages come after those of e2e"
	$(TEST) ./e2e $(TRACING) $$($(GO) list ./... | grep -vxF "$$($(GO) list ./e2e $(TRACING) $(HOSTILE) $(FAULTS))")

# The tests that run programs on several releases of ttnn, on the older ones: all packages with such tests, and in each
# only these tests (see tracetest.Tests).
releases: tools bin/rig
	@$(SUDO) bin/rig -older || echo "the tests that need what failed will fail"
	$(TEST) $$(grep -rl --include='*_test.go' --exclude-dir=tracetest 'tracetest\.Tests(' . | xargs -n 1 dirname | sort -u) -releases older

# The long forms of the tests: all releases, 100 runs where the short form has a few.
long: tools
	$(SUDO) $(GO) test -vet=off -count=1 -timeout 120m ./tracer ./tracer/internal/heap ./tracer/owner ./tracer/layout ./cmd/ttmem ./e2e -long -releases all

# ttmem built for arm64, where it shows recordings.
arm64: tools
	$(SUDO) $(GO) test -vet=off -count=1 -v ./e2e -run 'TestOtherProcessors$$' -long

# Programs on simulated chips that execute firmware and kernels, compared with the library and with the
# kernels' ELF files: prints the tables of docs/chips.md. FORM=short takes a minute.
chip: chiptools bin/rig
	@$(SUDO) bin/rig -chip -python 3.10 >/dev/null
	$(SUDO) $(GO) test -vet=off ./e2e -run 'TestChip$$' -count=1 -v -timeout 60m -chip $(if $(filter short,$(FORM)),short,full)

# The same checks and more on the cards of this machine, with the ttnn of PYTHON: fast dispatch, captured traces,
# several chips. Writes REPORT, for an issue.
REPORT ?= bin/card.md
card: tools bin/ttmem
	@mkdir -p $(dir $(REPORT))
	$(SUDO) env TTMEM_BINARY=$(abspath bin/ttmem) $(GO) test -vet=off ./e2e -run 'TestCard$$' -count=1 -v -timeout 60m -card $(abspath $(REPORT)) -card-python $(or $(PYTHON),python3)

# Attacks by ordinary users on a running ttmem, for 30 minutes: ATTACK=lease selects some by name,
# SEED=7 damages recordings in another way, FORM=short takes three minutes.
ATTACK ?=
SEED ?= 1
HOSTILE := ./e2e/hostile
hostile: tools
	$(SUDO) $(GO) test $(HOSTILE) -count=1 -timeout 180m -v $(if $(ATTACK),-run 'TestHostile$$/($(ATTACK))') $(if $(filter short,$(FORM)),,-long) -seed $(SEED)

# Faults: 200 random signals to ttmem and to traced programs, full disks, limits, processes that
# end or change at the wrong moment. FAULT=disk selects some by name, SEED=7 draws other signals
# and moments, FORM=short takes two minutes.
FAULT ?=
FAULTS := ./e2e/faults
faults: tools
	$(SUDO) $(GO) test $(FAULTS) -count=1 -timeout 120m -v $(if $(FAULT),-run 'TestFaults$$/($(FAULT))') $(if $(filter short,$(FORM)),,-long) -seed $(SEED)

# The duration of soak and fuzz: FOR=10m.
FOR ?= 60m

# Random real programs under a service: its memory, descriptors, goroutines and BPF maps may not
# grow, and nothing may be lost. SEED=7 runs others.
soak: tools
	$(SUDO) $(GO) test ./e2e -run 'TestSoak$$' -count=1 -timeout 0 -v -soak $(FOR) -seed $(SEED)

# The README's first minutes with all processors taken, and 200 starts of a short program, for an hour:
# FORM=short takes two minutes.
busy: tools
	$(SUDO) $(GO) test ./e2e -run 'TestBusyHost$$' -count=1 -parallel 8 -timeout 180m -v -busy $(if $(filter short,$(FORM)),short,full)

# Random input for every parser of data from other users' processes and files. FOR is divided among
# the targets; TARGET=FuzzOpen selects some by name. A failing input is written below the package's
# testdata/fuzz, and is a test from then on: commit it with the fix. If that test passes, only Go's
# fuzzer failed, which happens at the end of its time.
TARGET ?= Fuzz
fuzz:
	@set -e; \
	targets=$$(grep -rEo --include='*_test.go' '^func Fuzz\w+' . | sed -E 's|/[^/]*:func | |' | grep -E '$(TARGET)'); \
	share=$$(( ($$(echo $(FOR) | sed 's/h/*3600+/; s/m/*60+/; s/s//; s/+*$$/+0/')) / $$(echo "$$targets" | wc -l) + 1 )); \
	echo "$$targets" | { failed=; while read -r package target; do \
		echo "== $$package $$target: $$share s"; \
		$(GO) test $$package -run '^$$' -fuzz "^$$target$$" -fuzztime $${share}s -fuzzminimizetime 100x </dev/null || \
			$(GO) test $$package -run "^$$target$$" </dev/null || failed="$$failed $$target"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }; }

# Formatting, vet and staticcheck.
check:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# The cost of tracing, compared with other tracers: BENCH="-parts loop,new" selects parts.
# Installs bpftrace and perf on Debian and Ubuntu; elsewhere the bench names missing rows.
BENCH ?=
bench:
	@for tool in bpftrace:bpftrace perf:linux-perf; do \
		command -v $${tool%:*} >/dev/null || { echo "installing $${tool#*:}"; \
		$(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq $${tool#*:} >/dev/null; } || true; done
	$(SUDO) $(GO) run ./e2e/bench -version $(VERSION) $(BENCH)

# Tests on Debian's kernels in QEMU: KERNEL=6.12, KERNEL=6.1,newest; FORM=short for the
# checks that CI runs. MIRROR=URL names a mirror of Debian where the host's apt has none.
# More: VMTEST="-markdown table.md", and go run ./e2e/vm -h.
KERNEL ?=
FORM ?= full
VMTEST ?=
vmtest: vmtools
	$(SUDO) $(GO) run ./e2e/vm -form $(FORM) $(if $(KERNEL),-kernel $(KERNEL)) $(if $(MIRROR),-mirror $(MIRROR)) $(VMTEST)

# Sets up the real ttnn without a card, for manual use: make rig VERSION=0.76.0
rig: bin/rig
	bin/rig -version $(VERSION) -python "$(PYTHON)" -board $(BOARD)

# Regenerates the committed BPF bindings and objects, and the library of ttmem.mark().
generate: tools
	$(GO) generate ./bpf ./tracer/doctor ./tracer/layout

# Installs the tools that boot kernels on Debian or Ubuntu. They may be in /sbin, which PATH may
# lack.
vmtools:
	@PATH=$$PATH:/usr/sbin:/sbin; set --; \
	for tool in qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod mke2fs:e2fsprogs \
		mmdebstrap:mmdebstrap xz:xz-utils zstd:zstd; do \
		command -v $${tool%:*} >/dev/null || set -- "$$@" $${tool#*:}; done; \
	ldd "$$(command -v busybox)" 2>&1 | grep -q 'not a dynamic' || set -- "$$@" busybox-static; \
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || set -- "$$@" debian-archive-keyring; \
	[ $$# = 0 ] || { $(APT_INSTALL); }

# Installs the compiler of the kernels that run on simulated chips.
chiptools:
	@set --; \
	[ -e /usr/lib/picolibc/riscv64-unknown-elf ] || set -- "$$@" picolibc-riscv64-unknown-elf; \
	for tool in riscv64-unknown-elf-g++:gcc-riscv64-unknown-elf g++:g++; do \
		command -v $${tool%:*} >/dev/null || set -- "$$@" $${tool#*:}; done; \
	[ $$# = 0 ] || { $(APT_INSTALL); }

# Installs the pinned clang, libbpf's headers and the tests' tools on Debian or Ubuntu: gdb,
# binutils, a C compiler, a browser, sqlite3, shells.
tools:
	@set --; \
	command -v clang-$(CLANG_VERSION) >/dev/null && command -v llvm-strip-$(CLANG_VERSION) >/dev/null || set -- clang-$(CLANG_VERSION) llvm-$(CLANG_VERSION); \
	[ -e /usr/include/bpf/bpf_helpers.h ] || set -- "$$@" libbpf-dev; \
	[ -e /usr/share/bash-completion/bash_completion ] || set -- "$$@" bash-completion; \
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || set -- "$$@" debian-archive-keyring; \
	for tool in gdb:gdb gcc:gcc g++:g++ readelf:binutils sudo:sudo chromium:chromium sqlite3:sqlite3 openssl:openssl tmux:tmux zsh:zsh fish:fish qemu-aarch64:qemu-user; do \
		command -v $${tool%:*} >/dev/null || set -- "$$@" $${tool#*:}; done; \
	[ $$# = 0 ] || { $(APT_INSTALL); }
