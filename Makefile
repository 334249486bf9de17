# make book   set up .venv, execute what changed, build the HTML and print the path to open
# make test   lint, types and tests          make bench   the benchmark
# make lock   resolve the versions afresh    make clean   remove what was built (distclean: .venv too)

PYTHON ?= python3
PY := .venv/bin/python
TORCH := torch==2.13.0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# make tune  every setting of every grid on the tuning instances; rewrites fedgo/paper/data/tuned.json
.PHONY: book test bench tune lock clean distclean chromium pdf

book: .venv/stamp
	@$(PY) book/build.py

test: .venv/stamp chromium
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pytest

# The tests of the site need a browser. Where there is none, Debian's is installed if that takes no password.
APT := apt-get -qq -o DPkg::Lock::Timeout=60
chromium:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v "$$name" >/dev/null 2>&1 && exit 0; done; \
	root=; [ "$$(id -u)" = 0 ] || root='sudo -n'; \
	timeout 300 $$root sh -c 'export DEBIAN_FRONTEND=noninteractive; install="$(APT) install -y --no-install-recommends chromium"; \
	  $$install || { $(APT) update && $$install; }' </dev/null >/dev/null 2>&1 \
	  || echo "There is no Chromium, and it could not be installed: the tests of the site will be skipped."

# make pdf   the built book as one PDF, _build/fedgo.pdf
pdf: .venv/stamp chromium
	@$(PY) book/pdf.py

tune: .venv/stamp
	@OMP_NUM_THREADS=1 $(PY) -m fedgo.paper.tune

bench: .venv/stamp
	@$(PY) benchmarks/bench.py

.venv/stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "fedgo needs Python 3.11 or newer with venv; '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet -r requirements.lock
	$(PY) -m pip install --quiet --no-deps -e .
	@touch $@

# A resolve in an empty environment. The local part of a version (torch's +cpu) is dropped: it names a wheel, not a release.
lock:
	@rm -rf .venv/lock && $(PYTHON) -m venv .venv/lock
	.venv/lock/bin/pip install --quiet "$(TORCH)" -e ".[book,test]"
	@.venv/lock/bin/pip freeze --all --exclude pip --exclude fedgo > .venv/lock/freeze
	@{ echo "# Exact versions of everything installed; written by \`make lock\`."; \
	  sed 's/+[^ ]*$$//' .venv/lock/freeze; } > requirements.lock
	@rm -rf .venv/lock

clean:
	rm -rf _build book/_executed *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf .venv
