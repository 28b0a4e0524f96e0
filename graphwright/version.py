"""The version, importable by every package."""

VERSION = "0.1.0"
