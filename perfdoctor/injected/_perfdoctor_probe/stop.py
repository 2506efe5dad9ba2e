"""The exception that ends an observed job once there is enough evidence."""


class StopJob(SystemExit):
    """Raised at a step boundary. A `SystemExit`, so that an uncaught one ends the process without a traceback,
    and not an `Exception`, so that a training loop's own handlers let it pass.
    """
