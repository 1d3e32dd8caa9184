//! Spans in the form of OTLP.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Otlp, Status};
use prost::Message as _;

use crate::message_traces::{Span, Step, Value};
use crate::shared::Shared;
use crate::system::unix_nanoseconds;

/// The flags of a span that is recorded, and whose parent is at another place or not
/// (`opentelemetry.proto.trace.v1.SpanFlags`).
const OF_REMOTE: u32 = 0x301;
const OF_LOCAL: u32 = 0x101;

/// What every request says about the broker that has sent it.
pub struct Origin {
    pub resource: Resource,
    pub scope: InstrumentationScope,
    /// When the broker began to count, in nanoseconds since the Unix epoch.
    pub start: u64,
}

impl Origin {
    pub fn of(shared: &Shared) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let settings = shared.settings();
        let cluster = settings.cluster.as_ref();
        let instance = cluster.map_or(&host, |cluster| &cluster.broker).clone();
        let mut attributes = vec![
            text("service.name", "barid"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", instance),
            text("host.name", host),
        ];
        attributes.extend(cluster.map(|cluster| text("service.namespace", cluster.name.as_str())));
        let uptime = u64::try_from(shared.engine.clock.uptime().as_nanos()).unwrap_or(u64::MAX);
        Self {
            resource: Resource { attributes, ..Resource::default() },
            scope: InstrumentationScope {
                name: "barid".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                ..InstrumentationScope::default()
            },
            start: unix_nanoseconds().saturating_sub(uptime),
        }
    }
}

/// Writes a request with spans.
pub fn spans(origin: &Origin, spans: &[Span]) -> Vec<u8> {
    let spans = ScopeSpans {
        scope: Some(origin.scope.clone()),
        spans: spans.iter().map(span).collect(),
        ..ScopeSpans::default()
    };
    let resource = ResourceSpans {
        resource: Some(origin.resource.clone()),
        scope_spans: vec![spans],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec()
}

fn span(span: &Span) -> Otlp {
    // The names are those of the semantic conventions for messaging.
    let (operation, kind) = match span.step {
        Step::Publish => ("publish", SpanKind::Consumer),
        Step::Commit => ("commit", SpanKind::Internal),
        Step::Deliver => ("deliver", SpanKind::Producer),
    };
    let mut attributes = vec![
        text("messaging.system", span.system),
        text("messaging.operation.name", operation),
        text("messaging.destination.name", &*span.destination),
        text("messaging.client.id", &*span.client),
        text("barid.tenant", &*span.tenant),
        number("messaging.message.envelope.size", i64::try_from(span.bytes).unwrap_or(i64::MAX)),
    ];
    attributes.extend(span.facts.iter().map(|(name, value)| match value {
        Value::Text(value) => text(name, *value),
        Value::Number(value) => number(name, *value),
    }));
    Otlp {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        parent_span_id: span.parent.to_vec(),
        flags: if span.step == Step::Commit { OF_LOCAL } else { OF_REMOTE },
        name: format!("{operation} {}", span.destination).trim_end().into(),
        kind: kind.into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes,
        status: span
            .error
            .as_ref()
            .map(|error| Status { message: error.clone(), code: StatusCode::Error.into() }),
        ..Otlp::default()
    }
}

/// An attribute with a text.
pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Any::StringValue(value.into()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Any::IntValue(value))
}

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
