"""The one kind of error that is the user's to mend."""


class UserError(ValueError):
    """A mistake in arguments or data: one line that says what is wrong, where, and what to do.

    `python -m training` prints the line without a traceback and exits with status 2.
    """
