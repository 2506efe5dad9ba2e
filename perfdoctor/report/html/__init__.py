"""Reports as one HTML file that asks no host for anything: it opens from disk, an e-mail or a CI artifact."""
