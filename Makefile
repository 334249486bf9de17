# make book         set up .venv, execute what changed, build the HTML and print the path to open (FRESH=1: everything anew;
#                   LIMIT=3600: the seconds that a cell may take)
# make test         lint, types and all tests; those of the site need the built book and a Chromium (`make chromium`)
# make check        lint, types and the quick tests, a minute and a half: none that is marked slow, none of the site
# make stale        the notebooks that `make book` would execute, each with its reason
# make draft        every notebook with two runs, into _build/draft
# make pdf          the built book as one PDF, _build/fedgo.pdf
# make bench        the benchmark
# make engine       NVFlare, in an environment of its own, .venv/federation; without it the tests of it are skipped
# make federation   server and five clients as processes over TLS on this machine, compared with the simulator (STORE=file:
#                   in NVFlare's simulator too, and keep what was measured)
# make matrix       `make test` without the site in an environment of its own for every Python
# make tune         successive halving on the tuning instances, some forty minutes; rewrites fedgo/experiments/data/tun*.csv; an
#                   interrupted one goes on where it was (FRESH=1: everything anew; LINE3=1: line 3 as printed;
#                   INSAMPLE=1: the paper's algorithm on the runs of the claims themselves)
# make map          the regime map: tuning, then every player on every regime; what is there and made by today's code stays
#                   (KEEP=1: what other code made too)
# make lock         resolve the versions afresh
# make clean        remove what was built (distclean: .venv and the kept traces too)

PYTHON ?= python3
PY := .venv/bin/python
TORCH := torch==2.13.0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: book test check stale draft pdf bench engine federation matrix tune map lock clean distclean chromium

book: .venv/stamp
	@$(PY) book/build.py $(if $(FRESH),--fresh) $(if $(LIMIT),--limit $(LIMIT))

stale: .venv/stamp
	@$(PY) book/build.py --stale

draft: .venv/stamp
	@$(PY) book/build.py --draft

test: .venv/stamp
	@$(MAKE) --no-print-directory check TIER= SITE=tests/test_site.py\ tests/test_pdf.py

# Two processes, one thread each: at these sizes more threads are slower. The tests of the site come last: their audit has
# two processes itself. TIER= takes in the slow tests, those of a second or more.
TIER := -m 'not slow'
ONE := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
check: .venv/stamp
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(dir $(PY))lint-imports >/dev/null || $(dir $(PY))lint-imports
	@$(PY) book/lint.py
	@$(PY) -m mypy
	@$(ONE) $(PY) -m pytest -q $(TIER) -n 2 --dist worksteal --ignore tests/test_site.py --ignore tests/test_pdf.py
	@test -z "$(SITE)" || $(PY) -m pytest -q $(SITE)

# The tests of the site and the PDF need a browser: Debian's, where there is none and root or a sudo without password.
APT := apt-get -qq -o DPkg::Lock::Timeout=60
chromium:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v "$$name" >/dev/null 2>&1 && { echo "Chromium is there: $$name"; exit 0; }; done; \
	echo "Installing Debian's package chromium ..."; root=; [ "$$(id -u)" = 0 ] || root='sudo -n'; \
	timeout 300 $$root sh -c 'export DEBIAN_FRONTEND=noninteractive; install="$(APT) install -y --no-install-recommends chromium"; \
	  $$install || { $(APT) update && $$install; }' </dev/null >/dev/null \
	  || { echo "Chromium could not be installed; without it the tests of the site are skipped." >&2; exit 1; }

pdf: .venv/stamp
	@$(PY) book/pdf.py

tune: .venv/stamp
	@$(ONE) $(PY) -m fedgo.experiments.tune $(if $(LINE3),line3) $(if $(INSAMPLE),in_sample) $(if $(FRESH),--fresh)

map: .venv/stamp
	@$(ONE) $(PY) -m fedgo.experiments.regimes $(if $(KEEP),--keep)

bench: .venv/stamp
	@$(PY) benchmarks/bench.py

# NVFlare has an environment of its own, which sees the packages of .venv: the lock and .venv stay as they are.
engine: .venv/federation/stamp

federation: .venv/federation/stamp
	@PYTHONPATH=. .venv/federation/bin/python -W ignore examples/nvflare/run.py $(if $(STORE),--simulator --store $(STORE))

.venv/federation/stamp: .venv/stamp federation.lock
	@$(PY) -m venv .venv/federation
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(.venv/federation/bin/python -c \
	  'import sysconfig; print(sysconfig.get_path("purelib"))')/fedgo.pth"
	.venv/federation/bin/python -m pip install --quiet --no-deps -r federation.lock
	@touch $@

# The newest versions that pyproject.toml allows; torch's newest release may bring gigabytes, NEWEST=torch==2.13.0 keeps it.
PYTHONS ?= python3.11 python3.12 python3.13
NEWEST ?= torch
matrix: .venv/stamp
	@failed=; for python in $(PYTHONS); do at="_build/matrix/$$python"; \
	  $$python -m venv --clear "$$at" && "$$at/bin/python" -m pip install --quiet "$(NEWEST)" -e ".[book,test]" \
	  && $(MAKE) --no-print-directory check TIER= PY="$$at/bin/python" && echo "$$python: passed" \
	  || { echo "$$python: failed"; failed=1; }; \
	done; $(PY) -m pip install --quiet --no-deps -e .; test -z "$$failed"

.venv/stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "fedgo needs Python 3.11 or newer with venv; '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -r requirements.lock
	.venv/bin/python -m pip install --quiet --no-deps -e .
	@touch $@

# A resolve in an empty environment. The local part of a version (torch's +cpu) is dropped: it names a wheel, not a release.
lock:
	@rm -rf .venv/lock && $(PYTHON) -m venv .venv/lock
	.venv/lock/bin/pip install --quiet "$(TORCH)" -e ".[book,test]"
	@.venv/lock/bin/pip freeze --all --exclude pip --exclude fedgo > .venv/lock/freeze
	@{ echo "# Exact versions of everything installed; written by \`make lock\`."; \
	  sed 's/+[^ ]*$$//' .venv/lock/freeze; } > requirements.lock
	.venv/lock/bin/pip install --quiet --constraint requirements.lock -e ".[federation]"
	@{ echo "# What \`make federation\` needs beside requirements.lock, exact versions; written by \`make lock\`."; \
	  .venv/lock/bin/pip freeze --exclude fedgo | sed 's/+[^ ]*$$//' | grep -vxF -f requirements.lock; } > federation.lock
	@rm -rf .venv/lock

clean:
	rm -rf _build book/_executed *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf .venv book/_traces
