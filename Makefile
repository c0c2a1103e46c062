# Builds into build/$(MODE)/; nothing is written beside the sources.  Start with: make help
MODE ?= release
CC   := $(if $(filter default,$(origin CC)),gcc,$(CC))
O    := build/$(MODE)
Q    := $(if $(V),,@)
PREFIX  ?= /usr/local
PYTHON  ?= /usr/bin/python3
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)
# PyTorch from PyPI, for the tests and the benchmarks against it; made once, outside the tree
TORCH_ENV ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ctrun/torch
export CTRUN_TORCH_PYTHON ?= $(TORCH_ENV)/bin/python

PROGRAMS := rendezvous launcher worker
BIN_rendezvous := ctrun-rendezvous
BIN_launcher   := ctrun
BIN_worker     := ctrun-worker
# Start-up time is a promise: ctrun links neither oneDNN nor anything else that it can do without.
LIBS_common     := -luv -lyaml
LIBS_rendezvous := -luv -lyaml -lsqlite3 -ljansson -lm
LIBS_launcher   := -luv -ljansson -lm
LIBS_worker     := -lyaml -ldnnl -lgomp -lxxhash -ljansson -lpthread -lm -ldl

# what a bare Debian 12 lacks, to build and to test
PACKAGES_BUILD := gcc make libc6-dev libuv1-dev libyaml-dev libdnnl-dev libxxhash-dev libjansson-dev libsqlite3-dev scdoc libssl-dev
PACKAGES_TEST  := g++ clang clang-format clang-tidy libclang-rt-14-dev libcmocka-dev python3 python3-pytest \
                  python3-pytest-xdist python3-venv python3-prometheus-client chromium-headless-shell iproute2 \
                  nftables openssl systemd codespell shellcheck pmccabe gcovr git binutils gdb
PACKAGES_SOAK  := python3-torch # 1.13: an old client of the store; with what it needs 140 MB

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wwrite-strings -Wcast-qual -Wpointer-arith -Wvla -Wundef \
            -Wformat=2 -Wswitch-enum -Wimplicit-fallthrough -Werror
MODE_release := -O2 -D_FORTIFY_SOURCE=3 -fstack-protector-strong
MODE_debug   := -O0 -DFAULTS
MODE_asan    := -O1 -DFAULTS -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
MODE_tsan    := -O1 -DFAULTS -fsanitize=thread
MODE_cov     := -O0 -DFAULTS --coverage
MODE_fuzz    := -O1 -DFAULTS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all

CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS   += -std=c17 -g -fPIE -ffp-contract=off $(WARNINGS) $(MODE_$(MODE))
LDFLAGS  += $(MODE_$(MODE)) -pie -Wl,-z,relro,-z,now

sources = $(shell find $(1) -name '*.c' 2>/dev/null | sort)
pages   = $(shell find $(1) -name '*.html' 2>/dev/null | sort)
objects = $(patsubst %,$(O)/%.o,$(call sources,$(1)) $(call pages,$(1)))
BINS    := $(foreach p,$(PROGRAMS),$(O)/bin/$(BIN_$(p)))
FAKES   := $(patsubst tests/fakes/%.c,$(O)/bin/fake-%,$(wildcard tests/fakes/*.c))
BENCHES := $(patsubst tests/bench/bench_%.c,$(O)/bin/bench-%,$(wildcard tests/bench/bench_*.c))
MANS    := $(patsubst %.scd,$(O)/man/%,$(notdir $(wildcard launcher/*.scd rendezvous/*.scd worker/*.scd)))
PYTEST  := $(PYTHON) -m pytest -q -p no:cacheprovider
# the system tests mostly wait: two more at once than there are processors
SYSTEM_TESTS = BIN=$(O)/bin $(PYTEST) -n $$(($$(nproc) + 2)) --durations=10 tests/system
ALL_C   := $(call sources,common $(PROGRAMS))
ALL_CH  := $(shell find common $(PROGRAMS) tests -name '*.[ch]' | sort)

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:

all: $(BINS) ## build the programs into build/MODE/bin

define program
$(O)/bin/$(BIN_$(1)): $(call objects,$(1)) $(O)/libcommon.a
	@mkdir -p $$(@D); echo '  LD    $$@'
	$$(Q)$$(CC) $$(LDFLAGS) $$(filter %.o,$$^) $$(filter %.a,$$^) $$(LDLIBS) $$(LIBS_$(1)) -o $$@
$(O)/lib$(1).a: $(filter-out %/main.c.o,$(call objects,$(1)))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))
# the server embedded in ctrun, without its command line (and the YAML that needs) and its database
$(O)/bin/ctrun: $(filter-out %/main.c.o $(O)/rendezvous/options% %/holder.c.o %/early.c.o %/check_config.c.o $(O)/rendezvous/reload% \
  %/manager.c.o %/log_queue.c.o $(O)/rendezvous/state% %/space.c.o,$(call objects,rendezvous))

$(O)/libcommon.a: $(call objects,common)
$(O)/libtest.a: $(call objects,tests/lib)
$(O)/%.a:
	@mkdir -p $(@D); echo '  AR    $@'
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Only the vector kernels may use what the processor at hand might lack: they are chosen at run time.
$(O)/%_avx2.c.o: CFLAGS += -mavx2 -mfma -mf16c
$(O)/%_avx512.c.o: CFLAGS += -mavx512f -mavx512dq -mavx512bw -mavx512vl -mfma

$(O)/%.c.o: %.c
	@mkdir -p $(@D); echo '  CC    $<'
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# a page of HTML, as it is, between _binary_…_start and …_end
$(O)/%.html.o: %.html
	@mkdir -p $(@D); echo '  LD    $<'
	$(Q)$(LD) -r -b binary -z noexecstack -o $@ $<
	$(Q)objcopy --rename-section .data=.rodata,alloc,load,readonly,data,contents $@

# unit_tests DIR LIBS: one binary for each tests/DIR/test_*.c, linked with the libraries named; run in
# the order of these lines: the longest come first
define unit_tests
UNITS_$(1) := $(patsubst %.c,$(O)/%,$(wildcard tests/$(1)/test_*.c))
UNITS += $$(UNITS_$(1))
$$(UNITS_$(1)): $(O)/%: $(O)/%.c.o $(O)/libtest.a $(foreach l,$(2),$(O)/lib$(l).a) $(O)/libcommon.a
	@echo '  LD    $$@'
	$$(Q)$$(CC) $$(LDFLAGS) $$^ $$(LDLIBS) $$(sort $$(LIBS_common) $(foreach l,$(2),$$(LIBS_$(l))) -ljansson) -lcmocka -o $$@
endef
$(eval $(call unit_tests,sim,launcher rendezvous))
$(eval $(call unit_tests,conformance,worker))
$(eval $(call unit_tests,unit/common,))
$(eval $(call unit_tests,unit/rendezvous,rendezvous))
$(eval $(call unit_tests,unit/launcher,launcher rendezvous))
$(eval $(call unit_tests,unit/worker,worker))

$(O)/bin/fake-%: $(O)/tests/fakes/%.c.o $(O)/libcommon.a
	@mkdir -p $(@D); echo '  LD    $@'
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -ljansson -o $@

$(O)/bin/bench-%: $(O)/tests/bench/bench_%.c.o $(O)/libtest.a $(O)/libworker.a $(O)/libcommon.a
	@mkdir -p $(@D); echo '  LD    $@'
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) $(LIBS_worker) -o $@

units: $(UNITS)
fakes: $(FAKES)

## --- for people ---

demo: deps-build all ## train a small model, kill a rank, watch it recover
	$(Q)BIN=$(O)/bin tests/demo/demo.sh

deps: deps-build ## install what building and testing need (Debian packages)
	$(Q)$(call install_packages,$(PACKAGES_TEST))
deps-build:
	$(Q)$(call install_packages,$(PACKAGES_BUILD))
install_packages = missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | \
	grep -q 'ok installed' || echo $$p; done); [ -z "$$missing" ] || { \
	$(SUDO) apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	$(SUDO) apt-get install -y -q --no-install-recommends $$missing; }

bench-deps: $(CTRUN_TORCH_PYTHON) ## PyTorch in the user's cache folder, for tests and benchmarks
$(TORCH_ENV)/bin/python:
	@echo 'installing PyTorch into $(TORCH_ENV) (once; about 5 GB)'
	$(Q)rm -rf $(TORCH_ENV) && python3 -m venv $(TORCH_ENV).new && \
	  $(TORCH_ENV).new/bin/python -m pip install -q 'torch==2.15.*' numpy safetensors && mv $(TORCH_ENV).new $(TORCH_ENV)

test: deps ## everything: unit, simulation, conformance, system, against real PyTorch
	$(Q)$(MAKE) --no-print-directory bench-deps
	$(Q)$(MAKE) --no-print-directory check
	$(Q)BIN=$(O)/bin $(PYTEST) -n 2 --dist loadfile tests/torch

# the simulation is one thread: TSan has nothing to see there
CHECKED = $(if $(filter tsan,$(MODE)),$(filter-out $(UNITS_sim),$(UNITS)),$(UNITS))
check: all units fakes ## the same without PyTorch; MODE=asan or MODE=tsan for sanitizers
	$(Q)SIM_SEEDS=$(or $(SIM_SEEDS),$(if $(filter asan,$(MODE)),60,500)) tests/run-units $(CHECKED)
	$(Q)$(SYSTEM_TESTS)

soak: all units fakes ## the full counts: 50 kills, thousands of simulated seeds, deep analysis
	$(Q)$(MAKE) --no-print-directory tidy ANALYZER_NODES=225000
	$(Q)CTRUN_SOAK=1 SIM_SEEDS=20000 TEST_TIMEOUT=3600 \
	  tests/run-units $(filter $(O)/tests/sim/% $(O)/tests/conformance/% $(O)/tests/unit/rendezvous/test_state%,$(UNITS))
	$(Q)CTRUN_SOAK=1 $(SYSTEM_TESTS)
	$(Q)$(MAKE) --no-print-directory bench-deps
	$(Q)$(call install_packages,$(PACKAGES_SOAK))
	$(Q)CTRUN_SOAK=1 BIN=$(O)/bin $(PYTEST) tests/torch/test_launch_torch.py

bench: all fakes $(BENCHES) ## our speed beside the machine's limits; BENCH='--quick store' for some
	$(Q)BIN=$(O)/bin $(PYTHON) tests/bench/bench.py --json $(O)/bench.json $(BENCH)

FUZZERS := $(patsubst tests/fuzz/%.c,$(O)/bin/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 10
FUZZ_JOBS    ?= $$(nproc)
FUZZ_LIMIT   ?= -max_total_time=$(FUZZ_SECONDS)
# what reads a stranger's bytes; the rest of the worker would only make the build longer
$(O)/libfuzzed.a: $(filter-out %/main.c.o,$(call objects,common rendezvous worker/checkpoint)) \
  $(filter $(O)/worker/config%,$(call objects,worker)) $(O)/tests/lib/shelf.c.o \
  $(patsubst %,$(O)/launcher/%.c.o,timers channel error_file verbs/show verbs/show_lines verbs/table verbs/value)
$(O)/bin/fuzz_%: $(O)/tests/fuzz/fuzz_%.c.o $(O)/libfuzzed.a
	@mkdir -p $(@D); echo '  LD    $@'
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer $^ $(LDLIBS) $(LIBS_worker) -luv -o $@
fuzzers: $(FUZZERS)
fuzz: ## every parser for FUZZ_SECONDS each, FUZZ_JOBS at a time, from tests/fuzz/corpus on (clang, libFuzzer)
	$(Q)$(MAKE) --no-print-directory MODE=fuzz CC=clang fuzzers
	$(Q)printf '%s\n' $(notdir $(FUZZERS)) | xargs -P $(FUZZ_JOBS) -n 1 sh -c 'mkdir -p build/fuzz/corpus/$$1; \
	  echo "  FUZZ  $$1"; build/fuzz/bin/$$1 $(FUZZ_LIMIT) -len_control=0 -max_len=65536 \
	  -artifact_prefix=build/fuzz/$$1- build/fuzz/corpus/$$1 $$(ls -d tests/fuzz/corpus/$$1 2>/dev/null) \
	  >build/fuzz/$$1.log 2>&1 || \
	  { cat build/fuzz/$$1.log; exit 255; }' sh

## --- reading the code ---

lint: format-check layers headers symbols words tidy ## everything that reads the code without running it
format: ## reformat the sources in place
	$(Q)clang-format -i $(ALL_CH)
format-check: ## whether they are so; comments have 90 columns at most
	$(Q)clang-format --dry-run -Werror $(ALL_CH)
	$(Q)! LC_ALL=C.UTF-8 grep -nP '^(?=.{91})( *\*|.*/\*)' $(ALL_CH)
layers: all units ## who may include whom, from the compiler's dependency files
	$(Q)tests/lint/layers $(O)
headers: ## every header compiles alone
	$(Q)printf '%s\n' $(filter %.h,$(ALL_CH)) | xargs -P2 -n8 sh -c 'for h; do \
	  $(CC) $(CPPFLAGS) -std=c17 -Wall -Wextra -Werror -fsyntax-only -x c $$h || exit 255; done' sh
symbols: all ## global symbols are unique in the tree
	$(Q)tests/lint/symbols $(O)
words: ## spelling; shell scripts; tests that READMEs name
	$(Q)codespell -q 3 -L ans,nd,te,numer,fo,hist,dout,inout,ore,ba,clen,wit -S '*.safetensors,build,.git,corpus' . && \
	  shellcheck .ci/run tests/run-units tests/demo/demo.sh tests/lint/layers tests/lint/symbols tests/lint/named-tests && \
	  tests/lint/named-tests
# clang's path-sensitive analysis: nodes of its graph, for each function; its own default is 225000
ANALYZER_NODES ?= 25000
tidy: ## clang-tidy, and gcc's analyzer
	$(Q)printf '%s\n' $(filter-out %_avx2.c %_avx512.c,$(ALL_C)) | xargs -P$$(nproc) -n1 sh -c \
	  'clang-tidy --quiet "$$1" -- $(CPPFLAGS) -std=c17 -Xclang -analyzer-config -Xclang max-nodes=$(ANALYZER_NODES) \
	  2>/dev/null || exit 255' sh
	$(Q)printf '%s\n' $(filter-out %_avx2.c %_avx512.c,$(ALL_C)) | xargs -P$$(nproc) -n1 sh -c \
	  '$(CC) $(CPPFLAGS) -std=c17 -O1 -fanalyzer -Werror -c "$$1" -o /dev/null || exit 255' sh
stats: ## the longest functions and files
	$(Q)pmccabe $(ALL_C) | sort -k5 -nr | awk '{print $$5, $$7, $$6}' | head -20
	$(Q)wc -l $(ALL_CH) | sort -nr | sed -n '2,15p'
coverage: ## line and branch coverage of the tests
	$(Q)$(MAKE) MODE=cov check && gcovr -r . --branches --exclude 'tests/' --print-summary build/cov

## --- installing ---

man: $(MANS)
# its OPTIONS are those of the program's own table
$(O)/man/ctrun.1: launcher/ctrun.1.scd $(O)/bin/ctrun
	@mkdir -p $(@D); $(O)/bin/ctrun --print-completion=scdoc > $@.options
	@sed -e '/^@OPTIONS@$$/{r $@.options' -e 'd}' $< | scdoc > $@
$(O)/man/%: launcher/%.scd
	@mkdir -p $(@D); scdoc < $< > $@
$(O)/man/%: rendezvous/%.scd
	@mkdir -p $(@D); scdoc < $< > $@
$(O)/man/%: worker/%.scd
	@mkdir -p $(@D); scdoc < $< > $@
install: all man install-units ## install into DESTDIR/PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/share/man/man1 \
	  $(DESTDIR)$(PREFIX)/share/man/man8 $(DESTDIR)$(PREFIX)/share/ctrun
	install -m755 $(O)/bin/ctrun $(O)/bin/ctrun-worker $(DESTDIR)$(PREFIX)/bin
	install -m755 $(O)/bin/ctrun-rendezvous $(DESTDIR)$(PREFIX)/sbin
	install -m644 $(filter %.1,$(MANS)) $(DESTDIR)$(PREFIX)/share/man/man1
	install -m644 $(filter %.8,$(MANS)) $(DESTDIR)$(PREFIX)/share/man/man8
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	$(O)/bin/ctrun --print-completion=bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ctrun
	$(O)/bin/ctrun --print-completion=zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ctrun
	install -D -m644 systemd/ctrun.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/ctrun.conf
	install -D -m644 systemd/ctrun.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/ctrun.conf
	cp -r configs $(DESTDIR)$(PREFIX)/share/ctrun/

# with the paths of PREFIX: systemd looks for a bare name in a few folders of its own only
install-units:
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in systemd/*.service; do \
	  sed -e 's|^\(Exec[A-Za-z]*=\)ctrun-rendezvous |\1$(PREFIX)/sbin/ctrun-rendezvous |' \
	    -e 's|^\(Exec[A-Za-z]*=\)ctrun |\1$(PREFIX)/bin/ctrun |' \
	    "$$unit" | install -m644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/} || exit 1; done

clean: ## remove build/
	rm -rf build
help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
.PHONY: all units fakes demo deps deps-build bench-deps test check soak bench fuzz fuzzers lint format format-check \
        layers headers symbols words tidy stats coverage man install install-units clean help

-include $(shell find $(O) -name '*.d' 2>/dev/null)
