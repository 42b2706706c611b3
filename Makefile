# The commands of this project. `make help` explains them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The Python that makes .venv, by default the newest of this machine; everything else runs in .venv.
PYTHON ?= $(or $(call python,3.14),$(call python,3.13),$(call python,3.12),$(call python,3.11),python3)
# The first Python of a release that can make virtual environments; pyenv has the command for
# versions that are not chosen too.
python = $(shell for python in python$(1) /usr/bin/python$(1) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python3; do \
  "$$python" -c 'import ensurepip, venv' 2>/dev/null && echo "$$python" && break; done)
override PYTHON := $(PYTHON)
# Cluster of `make demo`: `local` starts one on this machine, `current` uses that of KUBECONFIG.
CLUSTER ?= local
# Build tool of `make image`, and the names of the base image and the operator's image.
CONTAINER_TOOL ?= docker
IMAGE ?= localhost/operator-runner:latest
IMG ?= controller:latest
# Version and channels of `make bundle`, and the names of the images.
VERSION ?= 0.0.2
CHANNELS ?= alpha
DEFAULT_CHANNEL ?=
IMAGE_TAG_BASE ?= example.com/nginx-operator
BUNDLE_IMG ?= $(IMAGE_TAG_BASE)-bundle:v$(VERSION)
CATALOG_IMG ?= $(IMAGE_TAG_BASE)-catalog:v$(VERSION)
# The image of operator-registry's opm, which serves the catalog.
OPM_IMAGE ?= quay.io/operator-framework/opm:latest
# kubectl, with the cluster of KUBECONFIG.
KUBECTL ?= kubectl
# Further arguments for pytest, such as ARGS='-k scale -x'.
ARGS ?=

# Slow tests first, and otherwise in file order, so that runs are reproducible (random order:
# ARGS='-p randomly').
PARALLEL := --dist=loadgroup --no-loadscope-reorder -p no:randomly
# Tests that mostly wait run three at a time, each third with its own clusters.
THREE := --numprocesses=3 $(PARALLEL)
TWO := --numprocesses=2 $(PARALLEL)

# Each tier's results as JUnit XML, from which `make test` lists the failures of all tiers.
REPORTS := build/tests
REPORT = --junitxml=$(REPORTS)/$@.xml

# How much of the package unit tests alone execute; a choice of tests is not measured.
COVERAGE := --cov=operator_runner --cov-report= --cov-fail-under=63

# The oldest Python, that of Debian 12, and the short contract that it runs: modules of all kinds in
# cold and warm runs, without a cluster. `make test-matrix` runs the rest.
OLDEST := 3.11
SHORT_CONTRACT := tests/contract/ansible/launchers/test_kinds_of_modules.py

# The releases of ansible-core that each Python can run, and the distribution `ansible` of each.
CORES_3.11 := 2.19
CORES_3.12 := 2.19 2.20 2.21
CORES_3.13 := 2.19 2.20 2.21
CORES_3.14 := 2.20 2.21
ANSIBLE_2.19 := 12
ANSIBLE_2.20 := 13
ANSIBLE_2.21 := 14
PAIRS ?= $(foreach python,3.14 3.13 3.12 3.11,$(if $(call python,$(python)),$(CORES_$(python):%=$(python)-%)))
# What depends on ansible-core: unit tests, types of 2.18, patches and the contract of launchers.
MATRIX_TESTS := tests/unit/ansible tests/contract/ansible/launchers \
  $(addprefix tests/contract/ansible/test_,types_of_templates.py patches.py)

VENV := .venv
BIN := $(VENV)/bin
# Of the release of Python, so that an environment of another one is made again.
INSTALLED := $(VENV)/.installed-$(shell $(PYTHON) -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null)
UNDEPLOY = $(BIN)/operator-runner undeploy --kustomize='$(KUBECTL) kustomize'
UV_VERSION := 0.13.8
COMPILED := $(VENV)/.compiled
# Installed packages that stay without bytecode: the operator and its runs do not import them.
NOT_COMPILED := /(ansible_collections/(?!kubernetes/core/)|ansible_test/|kubernetes/aio/client/(api|models)/[^_])

export PIP_DISABLE_PIP_VERSION_CHECK := 1

TITLE = @printf '\n\033[1m== %s\033[0m\n'

##@ Try it

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET" } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(INSTALLED) ## Run the nginx operator on a local cluster; CLUSTER=current: that of KUBECONFIG
	@$(BIN)/python -m demo.up $(CLUSTER)

# The demo may run in an environment of another Python, which is left as it is.
.PHONY: demo-down
demo-down: $(or $(wildcard $(BIN)/operator-runner),$(INSTALLED)) ## Remove the demo
	@$(BIN)/python -m demo.down

.PHONY: run
run: $(INSTALLED) ## Run the operator as a process on the cluster of KUBECONFIG; ARGS=--reload
	@$(BIN)/operator-runner run $(ARGS)

.PHONY: olm-demo
olm-demo: $(INSTALLED) ## Install and upgrade the nginx operator with OLM on a local cluster
	@$(BIN)/python -m demo.olm

.PHONY: olm-demo-down
olm-demo-down: $(or $(wildcard $(BIN)/operator-runner),$(INSTALLED)) ## Remove the OLM demo
	@$(BIN)/python -m demo.olm_down

##@ Develop

.PHONY: venv
venv: $(INSTALLED) ## Create .venv from requirements.lock

.PHONY: test
test: ## Run check and the tests of all tiers; all failures are listed at the end
	@$(MAKE) prepare
	@rm -rf $(REPORTS); failed=; \
	for tier in check unit test-oldest contract functional e2e; do \
	  $(MAKE) $$tier || failed="$$failed $$tier"; \
	done; \
	if [ -n "$$failed" ]; then \
	  printf '\n\033[1m== Failed:%s\033[0m\n' "$$failed"; \
	  $(BIN)/python -m tests.support.failed_tests $(REPORTS); exit 1; \
	fi
	$(TITLE) "All of it passed"

.PHONY: check
check: $(INSTALLED) ## Check formatting, lint, types, import contracts
	$(TITLE) "Formatting (repair: make fmt)"
	@$(BIN)/ruff format --check .
	$(TITLE) "Lint"
	@$(BIN)/ruff check .
	$(TITLE) "Types"
	@$(BIN)/mypy
	$(TITLE) "Import contracts"
	@$(BIN)/lint-imports

.PHONY: fmt
fmt: $(INSTALLED) ## Format the code and apply lint fixes
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

# Because PYTHONDONTWRITEBYTECODE may be set: without bytecode, a start of the operator takes twice
# the CPU time. Sources that have not changed are skipped.
.PHONY: bytecode
bytecode: $(COMPILED) ## Compile installed packages and changed sources to bytecode
	@$(BIN)/python -m compileall -q operator_runner

demo olm-demo run unit attack contract contract-patches functional first-day true-status prune e2e slow bench bench-cores bench-forks bench-patches soak bench-etcd scale: bytecode

.PHONY: unit
unit: $(INSTALLED) ## Run unit tests
	$(TITLE) "Unit tests"
	@$(BIN)/pytest tests/unit $(REPORT) $(if $(ARGS),$(ARGS),$(TWO) $(COVERAGE))

.PHONY: fuzz-resources
fuzz-resources: $(INSTALLED) ## Fuzz resources, statuses and annotations for an hour
	$(TITLE) "Fuzzing"
	@$(BIN)/pytest tests/unit/fuzz --hypothesis-profile=fuzz --timeout=0 --show-capture=no $(ARGS)

.PHONY: test-oldest
test-oldest: ## Run unit tests and a short contract on the oldest Python, 3.11, if there is a newer one
	$(TITLE) "Python $(OLDEST)"
	@python='$(call python,$(OLDEST))'; \
	if [ '$(notdir $(INSTALLED))' = .installed-$(OLDEST) ]; then \
	  echo 'Skipped: $(VENV) has Python $(OLDEST), so that all tests run on it. Install a newer one to test both'; \
	elif [ -z "$$python" ]; then \
	  echo 'Skipped: no Python $(OLDEST) found on PATH, in /usr/bin or among the versions of pyenv'; \
	else \
	  $(MAKE) bytecode VENV=.venv-$(OLDEST) PYTHON="$$python"; \
	  .venv-$(OLDEST)/bin/pytest tests/unit $(SHORT_CONTRACT) $(TWO) $(REPORT) --hypothesis-profile=short $(ARGS); \
	fi

.PHONY: test-matrix
test-matrix: ## Run what depends on ansible-core with all Pythons and cores; PAIRS='3.13-2.20'
	@rm -rf $(REPORTS)/matrix; failed=; \
	for pair in $(PAIRS); do $(MAKE) test-pair-$$pair || failed=1; done; \
	printf '\n\033[1m== Results\033[0m\n'; \
	$(PYTHON) -m tests.support.matrix_table $(REPORTS)/matrix $(PAIRS); [ -z "$$failed" ]

test-pair-%:
	$(TITLE) "Python $(subst -, with ansible-core ,$*)"
	@$(MAKE) pair-$*
	@build/matrix/$*/bin/pytest $(MATRIX_TESTS) $(TWO) --junitxml=$(REPORTS)/matrix/$*.xml --hypothesis-profile=short $(ARGS)

# The environment of a pair, in build/matrix.
pair-%:
	@python='$(call python,$(firstword $(subst -, ,$*)))'; core='$(lastword $(subst -, ,$*))'; \
	[ -n "$$python" ] || { echo 'Python $(firstword $(subst -, ,$*)) not found'; exit 1; }; \
	$(MAKE) bytecode VENV=build/matrix/$* PYTHON="$$python" CORE="$$core"

.PHONY: contract
contract: $(INSTALLED) ## Run contract tests: one part at a time, on real dependencies
	$(TITLE) "Contract tests"
	@$(BIN)/pytest tests/contract $(THREE) $(REPORT) $(ARGS)

.PHONY: contract-patches
contract-patches: $(INSTALLED) ## Run the launchers' contract without each patch of ansible-core; PATCHES='deep-copies'
	$(TITLE) "Launchers without each patch"
	@$(BIN)/pytest tests/contract/ansible/launchers --without-patches='$(or $(PATCHES),all)' $(TWO) $(ARGS)

.PHONY: functional
functional: $(INSTALLED) ## Run functional tests: the whole operator on a real API server
	$(TITLE) "Functional tests"
	@$(BIN)/pytest tests/functional $(THREE) $(REPORT) $(ARGS)

.PHONY: first-day
first-day: $(INSTALLED) ## Play a role author's first day: twelve mistakes, each reported within 5 s
	$(TITLE) "A role author's first day"
	@$(BIN)/pytest tests/functional/test_first_day.py -p no:randomly --capture=no --answer-seconds=5 $(ARGS)

.PHONY: true-status
true-status: $(INSTALLED) ## Check what kubectl wait sees during 10,000 random edits, an hour; ARGS='--edits-seed 2'
	$(TITLE) "True status"
	@$(BIN)/pytest tests/functional/test_true_status.py --timeout=0 --edits=10000 $(ARGS)

.PHONY: prune
prune: $(INSTALLED) ## Check 2,000 random sequences of edits, restarts and failures with prune; ARGS='--prune-seed 3000'
	$(TITLE) "Prune"
	@$(BIN)/pytest tests/contract/proxy/test_prune.py --timeout=0 --prune-sequences=2000 $(ARGS)

# Promises of docs/security.md, attacked; with the user of the image where a run attacks.
ATTACKS := tests/contract/attacks tests/contract/ansible/test_isolation.py tests/contract/ansible/test_hostile_specs.py \
  tests/contract/proxy/test_ownership_attacks.py tests/contract/proxy/test_bounds.py tests/contract/net \
  tests/contract/conversion/test_hostile_reviews.py tests/functional/test_hostile_resources.py \
  tests/functional/test_slow_clients.py tests/functional/test_availability.py tests/functional/test_limits.py

.PHONY: attack
attack: $(INSTALLED) ## Attack the operator as docs/security.md says; prints each promise, and whether it was held
	$(TITLE) "Attacks"
	@status=0; $(BIN)/pytest $(ATTACKS) --slow $(TWO) $(REPORT) $(ARGS) || status=$$?; \
	[ ! -e $(REPORTS)/attack.xml ] || $(BIN)/python -m tests.support.attack_table $(REPORTS)/attack.xml; exit $$status

.PHONY: e2e
e2e: $(INSTALLED) ## Run end-to-end tests: the nginx operator on a local cluster
	$(TITLE) "End-to-end tests"
	@$(BIN)/pytest tests/e2e $(THREE) $(REPORT) $(ARGS)

.PHONY: slow
slow: $(INSTALLED) ## Run the tests with the mark slow, which `test` omits: all comparisons with cold runs, and kills
	$(TITLE) "Slow tests"
	@$(BIN)/pytest tests -m slow --slow $(TWO) $(ARGS)

.PHONY: fuzz
fuzz: $(INSTALLED) ## Fuzz parsers of external input; ARGS='--executions 1000000 yaml_body'
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["fuzz"])')
	@$(BIN)/python -m tests.fuzz $(ARGS)

# No test has to update the package lists, from which others download packages for images.
.PHONY: prepare
prepare: $(INSTALLED) ## Build Kubernetes and OLM, install the packages of the node and programs of tests
	$(TITLE) "The local cluster (the first time, Kubernetes and OLM are built)"
	@name=prepare-$$$$; \
	trap '$(BIN)/operator-runner cluster down --name "$$name"' EXIT; \
	$(BIN)/operator-runner cluster up --name "$$name" --install-packages; \
	$(BIN)/operator-runner cluster olm up --name "$$name"
	$(TITLE) "Programs of tests: Chromium, shells for completion, builders of images, Prometheus"
	@$(BIN)/python -c 'from tests.support import debian, prometheus; \
	  print(*map(debian.program, ("chromium", "zsh", "fish", "buildah", "debootstrap")), prometheus.programs())'

.PHONY: manifests
manifests: $(INSTALLED) ## Generate config/rbac from watches.yaml and recorded requests
	@$(BIN)/operator-runner rbac --write config/rbac

.PHONY: rbac-check
rbac-check: $(INSTALLED) ## Report missing and superfluous RBAC rules in config/
	@$(BIN)/operator-runner rbac --check config/rbac --check config/manager --check config/webhook

.PHONY: vet
vet: check ## Run check

.PHONY: molecule
molecule: $(INSTALLED) ## Run molecule on a local cluster; CLUSTER=current: that of KUBECONFIG
	@export PATH="$(CURDIR)/$(BIN):$$PATH" OPERATOR_IMAGE="$${OPERATOR_IMAGE:-none}"; \
	if [ '$(CLUSTER)' = local ]; then \
	  scratch=$$(mktemp -d); name=molecule-$$$$; \
	  trap 'operator-runner cluster down --name "$$name"; rm -rf "$$scratch"' EXIT; \
	  operator-runner cluster up --name "$$name" --install-packages; \
	  eval "$$(operator-runner cluster env --name "$$name")"; \
	  operator-runner cluster pack demo/nginx-image.yaml "$$scratch/nginx.tar"; \
	  RELATED_IMAGE_NGINX=$$(operator-runner cluster load --name "$$name" "$$scratch/nginx.tar"); \
	  export RELATED_IMAGE_NGINX; \
	fi; \
	molecule test $(ARGS)

##@ In the cluster of KUBECONFIG

.PHONY: install
install: ## Install the CRDs, for `make run`
	@$(KUBECTL) apply $(addprefix --filename=,crds $(wildcard config/crd/bases))

.PHONY: uninstall
uninstall: $(INSTALLED) ## Delete the CRDs with all resources; ARGS=--yes: without confirmation
	@$(UNDEPLOY) config/crd --with-crds $(ARGS)

.PHONY: deploy
deploy: ## Install CRDs, RBAC and the operator with image IMG
	@$(KUBECTL) kustomize config/default | sed 's|image: controller:latest$$|image: $(IMG)|' \
	  | $(KUBECTL) apply --filename - || { \
	  echo 'Not all of it is installed. "no matches for kind ServiceMonitor" or PrometheusRule: install the Prometheus' >&2; \
	  echo 'operator, which has them, or comment ../prometheus out in config/default/kustomization.yaml.' >&2; \
	  exit 1; }

.PHONY: undeploy
undeploy: $(INSTALLED) ## Delete the operator, keep resources and Pods; ARGS=--with-crds: CRDs too
	@$(UNDEPLOY) config/default $(ARGS)

##@ Measure

.PHONY: bench
bench: $(INSTALLED) ## Measure the cost of reconciles; ARGS=--quick: fewer repetitions
	@$(BIN)/python -m bench $(ARGS)

.PHONY: soak
soak: $(INSTALLED) ## Inject faults for half an hour; ARGS='--minutes 5 --seed 1'
	@$(BIN)/python -m bench.soak $(ARGS)

.PHONY: bench-forks
bench-forks: $(INSTALLED) ## Fork the preloaded process 100,000 times; ARGS=--mortal: without immortal objects
	@$(BIN)/python -m bench.forks $(ARGS)

.PHONY: bench-files
bench-files: $(INSTALLED) ## Count the files and functions of the package that one edit runs
	@$(BIN)/python -m bench.edit_files

.PHONY: bench-patches
bench-patches: $(INSTALLED) ## Measure the gain of each patch of ansible-core; ARGS='deep-copies --pairs 20'
	@$(BIN)/python -m bench.patches $(ARGS)

.PHONY: bench-cores
bench-cores: $(INSTALLED) $(CORES_3.13:%=pair-3.13-%) ## Compare warm with cold runs, with each ansible-core on Python 3.13
	@$(BIN)/python -m bench.cores $(CORES_3.13:%=build/matrix/3.13-%/bin/operator-runner) $(ARGS)

.PHONY: bench-etcd
bench-etcd: $(INSTALLED) ## Inject faults into the etcd example for ten minutes; ARGS='--minutes 60 --seed 1'
	@$(BIN)/python -m bench.etcd $(ARGS)

.PHONY: scale
scale: $(INSTALLED) ## Measure replicas that share resources, also under faults; ARGS='--minutes 5 --seed 1'
	@$(BIN)/python -m bench.scale $(ARGS)

.PHONY: dashboard-picture
dashboard-picture: $(INSTALLED) ## Draw docs/dashboard.svg with Prometheus; ARGS='--minutes 2'
	@$(BIN)/python -m bench.dashboard $(ARGS)

.PHONY: ui-pictures
ui-pictures: $(INSTALLED) ## Take the pictures of docs/ui.md with Chromium
	@$(BIN)/pytest tests/functional/test_ui.py -p no:randomly --pictures=docs/ui

##@ Operator Lifecycle Manager

BUNDLE_METADATA_OPTS ?= --channels=$(CHANNELS) $(if $(DEFAULT_CHANNEL),--default-channel=$(DEFAULT_CHANNEL))
# Project folder of a version: older versions are in releases/.
project_of = $(or $(wildcard releases/$(1)),.)

# The image in the bundle: IMG where that was given.
BUNDLED_IMG = $(if $(filter controller:latest,$(IMG)),$(IMAGE_TAG_BASE):v$(VERSION),$(IMG))

.PHONY: bundle
bundle: $(INSTALLED) ## Write the bundle of VERSION into bundle/, with image IMG
	@$(BIN)/operator-runner bundle $(call project_of,$(VERSION)) --version=$(VERSION) --image=$(BUNDLED_IMG) $(BUNDLE_METADATA_OPTS)

.PHONY: bundle-validate
bundle-validate: bundle ## Validate the bundle with OLM's validators and scorecard
	@$(BIN)/operator-runner bundle-validate

.PHONY: bundle-build
bundle-build: ## Build the bundle image BUNDLE_IMG
	$(CONTAINER_TOOL) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: bundle-push
bundle-push: ## Push the bundle image
	$(CONTAINER_TOOL) push $(BUNDLE_IMG)

RELEASES = $(sort $(notdir $(wildcard releases/*)) $(VERSION))

.PHONY: catalog
catalog: $(INSTALLED) ## Write the catalog of all versions into catalog/, with images IMAGE_TAG_BASE:vVERSION
	@$(foreach version,$(RELEASES),$(BIN)/operator-runner bundle $(call project_of,$(version)) --version=$(version) \
	  --image=$(IMAGE_TAG_BASE):v$(version) $(BUNDLE_METADATA_OPTS) --output=build/bundles/$(version)/bundle > /dev/null;)
	@$(BIN)/operator-runner catalog $(RELEASES:%=build/bundles/%/bundle)

.PHONY: catalog-build
catalog-build: catalog ## Build the catalog image CATALOG_IMG
	$(CONTAINER_TOOL) build -f catalog.Dockerfile --build-arg OPM_IMAGE=$(OPM_IMAGE) -t $(CATALOG_IMG) .

.PHONY: catalog-push
catalog-push: ## Push the catalog image
	$(CONTAINER_TOOL) push $(CATALOG_IMG)

.PHONY: operatorhub
operatorhub: catalog ## Write operators/nginx-operator for OperatorHub into build/
	@$(BIN)/operator-runner operatorhub $(RELEASES:%=build/bundles/%/bundle) --output=build

##@ Package

.PHONY: wheel
wheel: $(INSTALLED) ## Build the wheel into dist/
	@$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

.PHONY: build
build: wheel ## Build the wheel

.PHONY: image
image: ## Build the base image IMAGE and the nginx operator's image IMG
	$(CONTAINER_TOOL) build --tag $(IMAGE) --build-arg OPERATOR_RUNNER_COMMIT=$$(git rev-parse HEAD) .
	$(CONTAINER_TOOL) build --tag $(IMG) --file nginx.Dockerfile --build-arg BASE_IMAGE=$(IMAGE) .

.PHONY: docker-build
docker-build: check unit image ## Run check and unit tests, and build the images

.PHONY: docker-push
docker-push: ## Push the nginx operator's image IMG
	@case '$(IMG)' in */*) ;; *) \
	  echo 'IMG is $(IMG): the name has no registry, so it cannot be pushed. Set a registry:' >&2; \
	  echo '  make docker-build docker-push IMG=registry.example.com/team/nginx-operator:v0.0.2' >&2; \
	  exit 1; esac
	@$(CONTAINER_TOOL) push $(IMG) || { \
	  echo 'The push of $(IMG) failed. If access was denied, run $(CONTAINER_TOOL) login.' >&2; \
	  exit 1; }

.PHONY: release
release: $(INSTALLED) ## Check the versions, then build packages, bundle, catalog, images and notes
	$(TITLE) "Check the versions of package, changelog, Makefile and bundle"
	@$(BIN)/python -m release check $(VERSION)
	$(TITLE) "Write the release notes into dist/"
	@$(BIN)/python -m release notes dist
	$(TITLE) "Build wheel and source distribution into dist/"
	@$(BIN)/hatchling build --directory dist
	$(TITLE) "Write the bundle into bundle/ and the catalog into catalog/"
	@$(MAKE) bundle catalog
	$(TITLE) "Build the images $(IMAGE) and $(BUNDLED_IMG)"
	@$(MAKE) image IMG=$(BUNDLED_IMG)

# The build backend is locked as well; it takes editables for `pip install --editable`.
.PHONY: lock
lock: $(INSTALLED) ## Update requirements.lock from pyproject.toml
	@$(BIN)/pip install --quiet uv==$(UV_VERSION)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' \
	  | $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-header --extra otel --group dev --output-file requirements.lock pyproject.toml -
	@if grep -n '://' requirements.lock; then echo 'requirements.lock: no URL belongs there'; exit 1; fi

.PHONY: clean
clean: ## Remove build results and caches of this checkout
	@if [ -e .demo ]; then echo 'The demo is up: run make demo-down first'; exit 1; fi
	@rm -rf $(VENV) .venv-* build dist bin catalog catalog.Dockerfile .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	@find operator_runner tests demo bench release -name __pycache__ -type d -prune -exec rm -rf {} +

# .venv is created once, and updated when the lock or the project's settings change.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Install it (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3"; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing the locked dependencies into $(VENV) (600 MB, about half a minute) ..."
	@$(PYTHON) -m venv $$([ -e $@ ] || echo --clear) $(VENV)
ifdef CORE
	@grep '^[a-z].*==' requirements.lock | sed '/^ansible\(-core\)\?==/d; s/ *\\$$//' > $(VENV)/locked.txt
	@$(BIN)/pip install --quiet --no-compile --requirement $(VENV)/locked.txt 'ansible==$(ANSIBLE_$(CORE)).*'
else
	@$(BIN)/pip install --quiet --no-compile --no-deps --require-hashes -r requirements.lock
endif
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(COMPILED): $(INSTALLED) Makefile
	@$(BIN)/python -m compileall -q -j 0 -x '$(NOT_COMPILED)' $(VENV)/lib
	@touch $@
