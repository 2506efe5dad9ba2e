"""The checks that ship with perfdoctor, a file or a package each, found by name at run time (`perfdoctor.checks`)."""
