"""The version, in one place: packaging, `--version` and every recording read it here."""

VERSION = "0.1.0"
