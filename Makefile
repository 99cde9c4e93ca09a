# parallel_apply: apply a logical replication subscription with several writers.
#
#   make, make install, make installcheck      as for every extension (PGXS)
#   make check [TESTS="t/pool/basic.pl"]        everything, see tools/check
#   make check-core [MAJOR=18] [VARIANT=all]   PostgreSQL's own tests, see tools/check_core
#   make check-majors                          check with every major, see tools/check_majors
#   make lint | demo | stress | mutants        see tools/lint, bench/demo, t/stress/stress, tools/mutants
#   make check-cassert [MAJOR=18]              check with a server that checks itself, see tools/check_cassert
#   make demo-pictures                         draw the pictures of README.md by a run of the demo
#   make dist                                  archives of the committed tree, in dist/
#   make check-clang                           another compiler and its analyzer, see tools/check_clang
#   make check-load [KINDS=stops]              check on a slow machine, see tools/check_load
#   make check-fuzz [FUZZ_SECONDS=300]         what no publisher sends, see tools/check_fuzz
#   make soak [SOAK_SECONDS=7200]              nothing grows, see t/stress/soak
#   make check-upgrade [UPGRADES=15:18]        pg_upgrade between majors, see tools/check_upgrade
#   make check-patroni                         a subscriber that is a cluster, see tools/check_patroni
#   make check-packages                        build and try all packages, see packaging/check
#   SELFTEST=1, for developers: the library has what sql/selftest.sql calls

PG_CONFIG ?= pg_config

# Where this file is; PGXS has $(srcdir) only when it is included.
here := $(dir $(lastword $(MAKEFILE_LIST)))
files = $(patsubst $(here)%,%,$(sort $(wildcard $(addprefix $(here),$(1)))))

# The version of the release; the SQL objects have that of the control file.
release := $(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' $(here)META.json)

MODULE_big = parallel_apply
EXTENSION = parallel_apply
PGFILEDESC = "parallel_apply - logical replication applied by several writers"

# A folder uses only those before it, see src/README.md.
folders = common shmem stats order session_state catalog sender receiver writer sql failed $(if $(SELFTEST),test)
OBJS = $(patsubst %.c,%.o,$(foreach folder,$(folders),$(call files,src/$(folder)/*.c)) \
	src/parallel_apply.c)
PG_CPPFLAGS = -I$(srcdir)/include -DPAPPLY_VERSION='"$(release)"'
ifdef SELFTEST
PG_CPPFLAGS += -DPAPPLY_SELFTEST
endif

# Functions call those of other files directly, not through a table.  From 16 on, a flag of
# PGXS has this effect.
comma := ,
SHLIB_LINK = $(if $(filter linux,$(PORTNAME)),-Wl$(comma)-Bsymbolic)

# In sql/, a name with -- is an installation script, every other one is a test.
DATA = $(call files,sql/*--*.sql)
tests = $(patsubst sql/%.sql,%,$(filter-out $(DATA),$(call files,sql/*.sql)))
REGRESS = $(filter install,$(tests)) $(filter-out install $(if $(SELFTEST),,selftest),$(tests))
# Tests of installcheck; PGXS would look for t/*.pl.
PROVE_TESTS ?= t/*/*.pl
REGRESS_OPTS = --temp-instance=./tmp_check --temp-config=$(srcdir)/t/regress.conf
NO_LOCALE = 1
ENCODING = UTF8
EXTRA_CLEAN = src/*.o src/*/*.o

# These need neither PGXS nor a server: tools/check runs where -dev packages are yet to
# be installed, and the `check` of PGXS only refuses.
own = check check-core check-majors check-cassert check-clang check-fuzz check-load check-monitoring check-neighbors check-patroni check-upgrade lint demo demo-pictures stress soak mutants dist check-packages

ifneq ($(filter $(own),$(MAKECMDGOALS)),)

.PHONY: $(MAKECMDGOALS)
.NOTPARALLEL:
check check-core check-majors check-cassert check-clang check-fuzz check-load check-monitoring check-neighbors check-patroni check-upgrade lint mutants: ; @tools/$(subst -,_,$@)
stress: ; @t/stress/stress
soak: ; @TESTS=t/stress/soak PAPPLY_TEST_SECONDS=99999 tools/check
demo: ; @bench/demo
demo-pictures: ; @bench/demo_pictures --run
check-packages: ; @packaging/check
dist:
	@mkdir -p dist
	@for format in tar.gz zip; do \
		git archive --format=$$format --prefix=parallel_apply-$(release)/ \
			-o dist/parallel_apply-$(release).$$format HEAD || exit; \
	done
# The goals that were given along with one of these, as in `make clean check`
$(filter-out $(own),$(MAKECMDGOALS)): ; @$(MAKE) --no-print-directory $@

else

# No bitcode: it would need clang, and nothing here is called from a query plan.
override with_llvm = no
PGXS := $(shell $(PG_CONFIG) --pgxs)
has_tap = perl -MIPC::Run -e 'print 1 if -e shift' \
	$(dir $(PGXS))../test/perl/PostgreSQL/Test/Cluster.pm 2>/dev/null
ifneq ($(filter installcheck,$(MAKECMDGOALS)),)
TAP_TESTS := $(shell $(has_tap))
endif
include $(PGXS)

# The program has a makefile of its own, since PGXS builds one thing at a time.  It needs
# the headers of libpq, and a static library that some packages of the server do not have.
program = bin/pg_verify_subscription
client_files = $(includedir)/libpq-fe.h $(pkglibdir)/libpgfeutils.a
ifeq ($(wildcard $(client_files)),$(client_files))
all: all-program
install: install-program
clean: clean-program
uninstall: uninstall-program
.PHONY: all-program install-program clean-program uninstall-program
all-program install-program clean-program uninstall-program:
	@mkdir -p $(program)
	@$(MAKE) -C $(program) -f $(abspath $(here))/$(program)/Makefile \
		PG_CONFIG=$(PG_CONFIG) $(if $(VPATH),VPATH=$(abspath $(here))/$(program)) $(@:-program=)
else
all: without-program
.PHONY: without-program
without-program: ; @echo "$(program) is not built: it needs $(client_files)"
endif

$(OBJS): $(wildcard $(here)include/*.h $(here)src/*/*.h) $(here)META.json
# A build in another directory has no directories yet; a rule would find those of
# the source tree.
$(shell mkdir -p $(sort $(dir $(OBJS))))

endif
