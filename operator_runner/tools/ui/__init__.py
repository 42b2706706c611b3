"""The web page of `operator-runner ui`; see docs/adr/0044-web-page.md."""
