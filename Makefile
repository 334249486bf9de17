# make book        set up .venv, execute the chapters that are stale, build the pages, print the path to open
# make stale       the chapters that `make book` would execute, each with what has changed
# make draft       every chapter with two runs, few other samples and another seed, into _build/draft
# make test        lint, types and all tests; those of the pages need the built book and a Chromium
# make check       lint, types and the quick tests: before every commit
# make bench       how long the algorithms take
# make attack      attack letters, files and studies for ten minutes, or SECONDS; with STORE=1 for the page on reliability; TIMES=1 measures a study
# make study       the rows that the table of an experiment lacks: make study NAME=tune; all rows again: NAME="tune --fresh"
# make federation  server and clients as processes over TLS on this machine, compared with the simulator; installs NVFlare
# make lock        resolve the versions afresh
# make clean       remove all that was made, .venv and the stored traces too

PYTHON ?= python3
PY := .venv/bin/python
# At these sizes more threads are slower.
ONE := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# pip leaves compiling to the first import of a package. If that may not write, as in many containers, every start takes
# ten seconds more.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: book stale draft test check bench attack study federation lock clean

# Sphinx reads the pages that changed. All are read where more has, or the last build was not good.
FRAME := _toc.yml _config.yml requirements.lock book/api book/ext book/_assets fedgo
book: .venv/stamp
	@$(PY) book/execute.py
	@test -f _build/good && test -z "$$(find $(FRAME) -type f -not -path '*/__pycache__/*' -newer _build/good)" \
	  || rm -rf _build/html _build/.doctrees
	@rm -f _build/good
	@echo "Building the pages ..."
	@.venv/bin/jupyter-book build . -W -n --keep-going -q
	@touch _build/good
	@echo "Open $(CURDIR)/_build/html/index.html"

stale: .venv/stamp
	@$(PY) book/execute.py --stale

draft: .venv/stamp
	@$(PY) book/execute.py --draft

check: SOME := -m 'not slow'
check test: .venv/test.stamp
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@.venv/bin/codespell
	@rm -rf _build/lint && mkdir -p _build/lint && cp notebooks/*.md notebooks/beyond/*.md _build/lint
	@.venv/bin/jupytext --quiet --to ipynb _build/lint/*.md
	@$(PY) -m ruff check --line-length 80 --config lint.pycodestyle.max-line-length=80 _build/lint/*.ipynb
	@$(PY) -m ruff format --check --line-length 80 _build/lint/*.ipynb
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo --no-cache
	@$(ONE) $(PY) -m pytest -q -n $$($(PY) -c 'import os; print(1 + os.cpu_count())') --dist worksteal $(SOME)

bench: .venv/stamp
	@$(ONE) $(PY) benchmarks/bench.py

attack: .venv/test.stamp
	@$(ONE) $(PY) $(if $(TIMES),benchmarks/request_times.py,tests/beyond/attack.py) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(STORE),--store)

study: .venv/stamp
	@$(ONE) $(PY) -m fedgo.beyond $(NAME)

# NVFlare has an environment of its own, which sees the packages of .venv: the lock and .venv stay as they are.
federation: .venv/federation/stamp
	@PYTHONPATH=. .venv/federation/bin/python -W ignore examples/nvflare/run.py $(if $(STORE),--store $(STORE))

.venv/federation/stamp: .venv/stamp federation.lock
	@$(PY) -m venv .venv/federation
	@$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(.venv/federation/bin/python -c \
	  'import sysconfig; print(sysconfig.get_path("purelib"))')/fedgo.pth"
	.venv/federation/bin/python -m pip install --quiet --no-compile --no-deps -r federation.lock
	@touch $@

# .venv holds absolute paths, so .venv/stamp names its folder. In a tree that was copied or renamed it is made again.
ifneq "$(shell cat .venv/stamp 2>/dev/null || pwd)" "$(CURDIR)"
.PHONY: .venv/stamp
endif
.venv/stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || { \
	  echo "fedgo needs Python 3.11 to 3.14 with venv; '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@test ! -s .venv/stamp || test "$$(cat .venv/stamp)" = "$(CURDIR)" || { \
	  echo "This tree was copied from, or renamed after, $$(cat .venv/stamp): making its own .venv."; rm -rf .venv; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --no-compile -r requirements.lock
	.venv/bin/python -m pip install --quiet --no-compile --no-deps -e .
	@echo "$(CURDIR)" > $@

.venv/test.stamp: .venv/stamp test.lock
	.venv/bin/python -m pip install --quiet --no-compile --no-deps -r test.lock
	@touch $@

# The newest versions that pyproject.toml allows; torch's newest release may bring gigabytes, so its version is said here.
# soupsieve 3 needs Python 3.11.5, and Debian 12 has 3.11.2. The local part of a version (torch's +cpu) is dropped: it
# names a wheel, not a release.
TORCH := torch==2.13.0
LIMITS := "$(TORCH)" "soupsieve<3" "setuptools>=77"
lock:
	@rm -rf .venv/lock && $(PYTHON) -m venv .venv/lock
	.venv/lock/bin/pip install --quiet $(LIMITS) -e ".[book]"
	@{ echo "# Exact versions of what the book needs; written by \`make lock\`."; \
	  .venv/lock/bin/pip freeze --all --exclude pip --exclude fedgo | sed 's/+[^ ]*$$//'; } > requirements.lock
	@for extra in test federation; do \
	  rm -rf .venv/lock && $(PYTHON) -m venv .venv/lock && \
	  .venv/lock/bin/pip install --quiet --constraint requirements.lock -e ".[book,$$extra]" && \
	  { echo "# What the extra $$extra needs beside requirements.lock, exact versions; written by \`make lock\`."; \
	    .venv/lock/bin/pip freeze --all --exclude pip --exclude fedgo | sed 's/+[^ ]*$$//' \
	    | grep -vxF -f requirements.lock; } > "$$extra.lock" || exit 1; \
	done
	@rm -rf .venv/lock

clean:
	rm -rf .venv _build dist book/_executed book/_traces *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
