"""In a notebook: `perfdoctor.show()` for a recording, `%%perfdoctor` for a cell."""
