//! Metrics in the form of OTLP. They are read from the text for Prometheus, so that both always tell the same.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    Summary, SummaryDataPoint,
};
use prost::Message as _;

use super::otlp::{self, Origin};

/// Writes a request with the metrics in `text`, as they are at the time `now`, in nanoseconds since the Unix epoch.
pub fn request(origin: &Origin, text: &str, now: u64) -> Vec<u8> {
    let metrics = ScopeMetrics {
        scope: Some(origin.scope.clone()),
        metrics: metrics(text, origin.start, now),
        ..ScopeMetrics::default()
    };
    let resource = ResourceMetrics {
        resource: Some(origin.resource.clone()),
        scope_metrics: vec![metrics],
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource] }.encode_to_vec()
}

fn metrics(text: &str, start: u64, now: u64) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, "gauge"));
            all.push(Metric {
                name: name.into(),
                description: help.into(),
                unit: unit(name).into(),
                data: Some(empty(kind, start, now)),
                ..Metric::default()
            });
        } else if let (Some(sample), Some(metric)) = (Sample::parse(line), all.last_mut()) {
            add(metric, sample, start, now);
        }
    }
    // OTLP has no metrics without values.
    all.retain(|metric| match &metric.data {
        Some(Data::Gauge(gauge)) => !gauge.data_points.is_empty(),
        Some(Data::Sum(sum)) => !sum.data_points.is_empty(),
        _ => true,
    });
    all
}

/// Returns the unit (UCUM) that is in a name.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name).rsplit('_').next() {
        Some("bytes") => "By",
        Some("seconds") => "s",
        Some("milliseconds") => "ms",
        _ => "1",
    }
}

fn empty(kind: &str, start: u64, now: u64) -> Data {
    match kind {
        "counter" => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        "summary" => {
            let (start_time_unix_nano, time_unix_nano) = (start, now);
            let point = SummaryDataPoint {
                start_time_unix_nano,
                time_unix_nano,
                ..SummaryDataPoint::default()
            };
            Data::Summary(Summary { data_points: vec![point] })
        }
        _ => Data::Gauge(Gauge { data_points: Vec::new() }),
    }
}

/// A line with a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if rest.starts_with('{') {
            while !rest.starts_with('}') {
                let (label, behind) = rest[1..].split_once("=\"")?;
                let (value, behind) = unescaped(behind)?;
                labels.push((label, value));
                rest = behind;
            }
            rest = &rest[1..];
        }
        Some(Self { name, labels, value: rest.trim_start() })
    }
}

/// Reads the value of a label up to its closing quote. Returns it, and what is behind.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

/// Adds a value to its metric.
fn add(metric: &mut Metric, sample: Sample<'_>, start: u64, now: u64) {
    let number = || sample.value.parse::<f64>().unwrap_or_default();
    let points = match &mut metric.data {
        Some(Data::Summary(Summary { data_points })) => {
            let Some(point) = data_points.first_mut() else { return };
            if sample.name.ends_with("_sum") {
                point.sum = number();
            } else if sample.name.ends_with("_count") {
                point.count = sample.value.parse().unwrap_or_default();
            } else if let Some((_, quantile)) = sample.labels.first() {
                let (quantile, value) = (quantile.parse().unwrap_or_default(), number());
                point.quantile_values.push(ValueAtQuantile { quantile, value });
            }
            return;
        }
        Some(Data::Gauge(gauge)) => &mut gauge.data_points,
        Some(Data::Sum(sum)) => &mut sum.data_points,
        _ => return,
    };
    let value = match sample.value.parse::<i64>() {
        Ok(whole) => Value::AsInt(whole),
        Err(_) => Value::AsDouble(number()),
    };
    let attributes: Vec<KeyValue> =
        sample.labels.into_iter().map(|(name, value)| otlp::text(name, value)).collect();
    points.push(NumberDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(value),
        ..NumberDataPoint::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP a_bytes_total Bytes of a.
# TYPE a_bytes_total counter
a_bytes_total{tenant=\"x\\\"{y}\\\\\",direction=\"in\"} 18
a_bytes_total{tenant=\"\"} 2
# HELP b Some b.
# TYPE b gauge
b 0.5
# HELP none Not known.
# TYPE none gauge
# HELP c_seconds Time of c.
# TYPE c_seconds summary
c_seconds{quantile=\"0.5\"} 0.25
c_seconds_sum 7.5
c_seconds_count 3
";

    #[test]
    fn every_value_is_there() {
        let all = metrics(TEXT, 1, 2);
        let names: Vec<_> = all.iter().map(|one| (&*one.name, &*one.unit)).collect();
        assert_eq!(names, [("a_bytes_total", "By"), ("b", "1"), ("c_seconds", "s")]);
        assert_eq!(all[0].description, "Bytes of a.");
        let Some(Data::Sum(sum)) = &all[0].data else { panic!("{:?}", all[0]) };
        assert!(sum.is_monotonic && sum.data_points.len() == 2);
        let first = &sum.data_points[0];
        assert_eq!(first.value, Some(Value::AsInt(18)));
        assert_eq!(
            first.attributes,
            [otlp::text("tenant", "x\"{y}\\"), otlp::text("direction", "in")]
        );
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1, 2));
        let Some(Data::Gauge(gauge)) = &all[1].data else { panic!("{:?}", all[1]) };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(0.5)));
        let Some(Data::Summary(summary)) = &all[2].data else { panic!("{:?}", all[2]) };
        let point = &summary.data_points[0];
        assert_eq!((point.count, point.sum, point.quantile_values[0].value), (3, 7.5, 0.25));
    }
}
