"""What the job is warned of names the lines that it would name without the probe."""

import pytest


@pytest.mark.slow
def test_a_warning_names_the_line_that_called(observe):
    # A window has torch itself take other ways for a step.
    seen = observe("warns.py", windows="")
    assert "UserWarning: forward 5" in seen.bare.stderr and "not writable" in seen.bare.stderr
    seen.same()
    seen.healthy()
