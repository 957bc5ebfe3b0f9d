"""Versions and suites, in Kafka's words and in OpenSSL's."""

import pytest

from broker.edge.tls import failure_of, versions_of

BOTH = ("TLSv1.2", "TLSv1.3")
NEWER = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def test_without_suites_the_librarys_own_are_spoken():
    assert versions_of(BOTH, ()) == ("TLSv1.2", "TLSv1.3", "")
    assert versions_of(("TLSv1.3",), ()) == ("TLSv1.3", "TLSv1.3", "")


def test_suites_of_1_2_alone_leave_1_3_out_as_in_java():
    suites = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_CBC_SHA")
    expected = ("TLSv1.2", "TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA")
    assert versions_of(BOTH, suites) == expected


def test_suites_of_1_3_alone_leave_1_2_out():
    assert versions_of(BOTH, NEWER) == ("TLSv1.3", "TLSv1.3", "")


@pytest.mark.parametrize(
    ("protocols", "suites", "reason"),
    [
        (BOTH, NEWER[:1], "of TLS 1.3 all suites are spoken or none"),
        (BOTH, ("TLS_RSA_WITH_RC4_128_MD5",), "is not a suite"),
        (("TLSv1.3",), ("TLS_RSA_WITH_AES_128_CBC_SHA",), "no version"),
    ],
)
def test_what_cannot_be_had_is_refused(protocols, suites, reason):
    with pytest.raises(ValueError, match=reason):
        versions_of(protocols, suites)


def test_every_suite_that_is_translated_is_one_of_openssls():
    """The names are OpenSSL's own, whichever of them it was built with."""
    names = versions_of(
        ("TLSv1.2",),
        [
            f"TLS_{exchange}_WITH_AES_{bits}"
            for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA")
            for bits in ("128_GCM_SHA256", "256_GCM_SHA384")
        ],
    ).ciphers
    assert names.split(":") == [
        *("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        *("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"),
        *("DHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES256-GCM-SHA384"),
        *("AES128-GCM-SHA256", "AES256-GCM-SHA384"),
    ]


def test_reasons_of_failures_are_few_words():
    assert failure_of("TLSV1_ALERT_UNKNOWN_CA") == "refused by client"
    assert failure_of("PEER_DID_NOT_RETURN_A_CERTIFICATE") == "no certificate"
    assert failure_of("SOMETHING_NEW") == "other"
