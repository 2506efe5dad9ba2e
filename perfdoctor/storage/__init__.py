"""Recordings in storage that is named by a URL (`s3://`, `gs://`, `hdfs://`, `file://`), through fsspec."""
