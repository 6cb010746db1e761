module muster.dev/e2e/binaries/lab-pause

go 1.26.0
