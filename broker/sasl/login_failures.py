"""Why a tool cannot log in. Pure, and cheap to import: a client that does not log in catches them, too."""

from protocol.fault_codes import FaultCode, FaultError


class LoginError(FaultError):
    """The cluster does not prove that it knows the user, or says nothing that can be understood."""

    fault = FaultCode.LOGIN_FAILED


class TokenError(FaultError):
    """There is no token; the sentence says why."""

    fault = FaultCode.LOGIN_FAILED

    def __init__(self, sentence: str, *, may_pass: bool = False) -> None:
        super().__init__(sentence)
        self.may_pass = may_pass
