"""Targets, as they are written and as a session last spoke; addresses that webhooks may and may not lead to."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import UsageError
from heartbeat.delivery.targets import EVENTS, STDOUT, DeliveryTarget, blocked_reason, resolve_target, target_problem


@pytest.mark.parametrize(
    ("target", "last", "place"),
    [
        ("none", "telegram:1", None),
        ("last", None, EVENTS),
        ("last", "", EVENTS),
        ("last", "telegram:12", DeliveryTarget("telegram", "12", is_carried=True)),
        ("last", "matrix:!room:server", DeliveryTarget("matrix", "!room:server", is_carried=True)),
        ("last", "telegram", EVENTS),
        ("last", "Te legram:1", EVENTS),
        ("last", "telegram:" + "9" * 600, EVENTS),
        ("events", "telegram:1", EVENTS),
        ("stdout", None, STDOUT),
        ("webhook:ops", None, DeliveryTarget("webhook", "ops")),
        ("telegram:12", None, DeliveryTarget("telegram", "12", is_carried=True)),
        ("matrix:!room:server", None, DeliveryTarget("matrix", "!room:server", is_carried=True)),
    ],
)
def test_a_target_means_a_place(target: str, last: str | None, place: DeliveryTarget | None) -> None:
    assert resolve_target(target, last) == place


@pytest.mark.parametrize("last", ["webhook:ops", "stdout:x", "events:x"])
def test_a_sender_who_calls_itself_like_one_of_our_channels_does_not_open_it(last: str) -> None:
    assert resolve_target("last", last) == EVENTS


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("", "is no target"),
        ("Last", "is no target"),
        ("telegram", "whom to reach"),
        ("telegram:", "whom to reach"),
        ("telegram: 1", "whom to reach"),
        ("telegram:1\n2", "whom to reach"),
        ("webhook", "whom to reach"),
        ("stdout:x", "takes no peer"),
        ("events:x", "takes no peer"),
        ("last:x", "is no channel"),
        ("none:x", "is no channel"),
        (":x", "is no target"),
        ("telegram:" + "9" * 600, "is no target"),
        ("x" * 65 + ":1", "is no target"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_with_what_to_write(target: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        resolve_target(target, None)
    assert "webhook:NAME" in caught.value.message
    assert len(caught.value.message) < 300


def test_a_webhook_that_is_not_configured_is_a_problem_of_the_settings() -> None:
    assert target_problem("webhook:ops", {"ops": 1}) is None
    assert target_problem("webhook:opps", {"ops": 1, "dev": 2}) == "there is no webhook 'opps'; there are: dev, ops"
    assert "none" in (target_problem("webhook:ops", {}) or "")
    assert "is no target" in (target_problem("?", {}) or "")
    assert [target_problem(target, {}) for target in ("last", "none", "stdout", "events", "signal:1")] == [None] * 5


def test_a_place_is_spelled_as_it_is_written() -> None:
    assert [str(place) for place in (EVENTS, STDOUT, DeliveryTarget("a", "b:c"))] == ["events", "stdout", "a:b:c"]


PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "223.255.255.255"),
    *("2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
]
PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"),
    *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"),
    *("fc00::1", "fd12:3456::1"),
]
NEVER = [
    *("0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:0.0.0.0"),
    *("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "::ffff:100.100.100.200"),
    *("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1", "240.0.0.1", "255.255.255.255"),
    *("192.0.0.8", "192.0.0.9", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1"),
    *("203.0.113.1", "2001:db8::1", "2001::1", "2001:20::1", "2002:7f00:1::", "2002:808:808::", "3fff::1"),
    *("::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::1", "100::1", "fec0::1", "5f00::1", "4000::1"),
]
NONSENSE = ["", "localhost", "127.1", "0x7f000001", "2130706433", "1.2.3.4.5", "[::1]", "::1/128"]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert blocked_reason(address, allow_private=False) is None
    assert blocked_reason(address, allow_private=True) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_may_be_reached_only_where_the_settings_say_so(address: str) -> None:
    assert blocked_reason(address, allow_private=False) in {"private", "loopback"}
    assert blocked_reason(address, allow_private=True) is None


@pytest.mark.parametrize("address", [*NEVER, *NONSENSE])
def test_other_addresses_are_never_reached(address: str) -> None:
    assert blocked_reason(address, allow_private=False)
    assert blocked_reason(address, allow_private=True)


def test_a_refusal_says_what_the_address_is() -> None:
    said = {
        address: blocked_reason(address, allow_private=False) for address in ("127.0.0.1", "fe80::1", "ff02::1", "::")
    }
    assert said == {"127.0.0.1": "loopback", "fe80::1": "link-local", "ff02::1": "multicast", "::": "reserved"}


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "64:ff9b::"]))
def test_an_address_is_judged_alike_however_it_is_wrapped(address: ipaddress.IPv4Address, prefix: str) -> None:
    wrapped = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(address))
    for allow in (False, True):
        assert blocked_reason(str(wrapped), allow_private=allow) == blocked_reason(str(address), allow_private=allow)


@given(st.ip_addresses())
def test_what_the_standard_library_calls_inward_is_refused_too(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    is_inward = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if is_inward or not address.is_global:
        assert blocked_reason(str(address), allow_private=False)
