"""The version of this package, which files that it writes name."""

VERSION = "0.1.0"
