"""The checks that ship with perfdoctor, one file each, found by name at run time (`perfdoctor.checks`)."""
