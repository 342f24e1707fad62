"""Export of spans to an OpenTelemetry collector, OTLP over HTTP, by the standard variables OTEL_*.

The spans are sent by a thread of the SDK from a bounded queue: what a slow collector does not take is dropped there.
"""

import os

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision

from gateway.runs.trace import RunTrace, Span
from wire.traceparent import TraceParent
from wire.version import VERSION

_NANOSECONDS = 1_000_000_000


class _GivenIds(IdGenerator):
    """The ids of the span that is made next."""

    place = TraceParent("", "", is_sampled=False)

    def generate_trace_id(self) -> int:
        return int(self.place.trace_id, 16)

    def generate_span_id(self) -> int:
        return int(self.place.span_id, 16)


class OtlpTracer:
    """Implements ``gateway.runs.trace.Tracer``; OTEL_TRACES_SAMPLER decides which traces are recorded."""

    def __init__(self) -> None:
        resource = Resource.create({SERVICE_VERSION: VERSION})
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "pool"}))
        self._ids = _GivenIds()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("pool", VERSION)

    def begin(self, parent: TraceParent | None) -> RunTrace:
        """Implements ``Tracer.begin``."""
        trace_id = os.urandom(16).hex() if parent is None else parent.trace_id
        decision = self._provider.sampler.should_sample(_context(parent), int(trace_id, 16), "invoke_agent").decision
        root = TraceParent(trace_id, os.urandom(8).hex(), decision is Decision.RECORD_AND_SAMPLE)
        return RunTrace(root, None if parent is None else parent.span_id)

    def export(self, spans: list[Span]) -> None:
        """Implements ``Tracer.export``."""
        for span in spans:
            self._ids.place = span.place
            made = self._tracer.start_span(
                span.name,
                _context(None if span.parent_id is None else span.place._replace(span_id=span.parent_id)),
                kind=otel.SpanKind.SERVER if span.is_entry else otel.SpanKind.INTERNAL,
                attributes=span.attributes if span.error is None else {**span.attributes, "error.type": span.error},
                links=[] if span.link is None else [otel.Link(_span_context(span.link))],
                start_time=round(span.start * _NANOSECONDS),
            )
            if span.error is not None:
                made.set_status(otel.StatusCode.ERROR, span.error)
            made.end(round(span.end * _NANOSECONDS))

    def close(self) -> None:
        """Send what is left, within the SDK's own limits of time. Blocks."""
        self._provider.shutdown()


def _context(parent: TraceParent | None) -> Context:
    """The context of a child of ``parent``; that of a first span."""
    if parent is None:
        return Context()
    return otel.set_span_in_context(otel.NonRecordingSpan(_span_context(parent)), Context())


def _span_context(place: TraceParent) -> otel.SpanContext:
    flags = otel.TraceFlags(otel.TraceFlags.SAMPLED if place.is_sampled else otel.TraceFlags.DEFAULT)
    return otel.SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=True, trace_flags=flags)
