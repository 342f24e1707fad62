"""The version of the distribution; the build reads it here."""

VERSION = "0.1.0"
