module operator-runner.dev/tests/prometheus-crds

go 1.24
