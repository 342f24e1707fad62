import pytest

from wire.traceparent import TraceParent, trace_members

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled", "sent"), [("01", True, "01"), ("00", False, "00"), ("03", True, "01")])
def test_a_header_names_a_span_and_whether_its_trace_is_recorded(flags: str, sampled: bool, sent: str) -> None:  # noqa: FBT001  # a parameter
    parent = TraceParent.parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert parent == TraceParent(TRACE, SPAN, sampled)
    assert str(parent) == f"00-{TRACE}-{SPAN}-{sent}"


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN[1:]}-01",
    ],
)
def test_a_header_of_another_form_is_no_name(header: str) -> None:
    assert TraceParent.parse(header) is None


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        ("a=1", True),
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE, t1@v-1/x=a b:c", True),
        ("a=" + "x" * 256, True),
        ("", False),
        ("a", False),
        ("A=1", False),
        ("a=1,", False),
        ("a=1\n", False),
        ("a=\u00e9", False),
        ("a=" + "x" * 257, False),
        (",".join(f"k{number}=1" for number in range(33)), False),
        (",".join(f"k{number}={'x' * 100}" for number in range(6)), False),
        ("a=" + " " * 510, False),
    ],
)
def test_what_systems_of_tracing_say_is_handed_on_or_dropped(state: str, is_kept: bool) -> None:  # noqa: FBT001  # a parameter
    parent = f"00-{TRACE}-{SPAN}-01"
    assert trace_members(parent, state) == {"traceparent": parent, **({"tracestate": state} if is_kept else {})}
    assert trace_members("", state) == {}
