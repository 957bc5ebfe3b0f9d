"""What ended a group of tasks. Pure."""


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the group; what else is in it followed from that."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
