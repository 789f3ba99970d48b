//! Which text form of the metrics a client wants.

use crate::export::prometheus::Format;

/// The form that `accept` (an `Accept` header, may be empty) prefers; `OpenMetrics` when it does not care.
pub(super) fn format(accept: &str) -> Format {
    let mut best = (0.0, Format::OpenMetrics);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let format = match parts.next().unwrap_or_default() {
            "application/openmetrics-text" => Format::OpenMetrics,
            "text/plain" | "text/*" => Format::Prometheus,
            _ => continue,
        };
        let quality =
            parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
        let better =
            quality > best.0 || (quality > 0.0 && quality >= best.0 && format == Format::OpenMetrics);
        if better {
            best = (quality, format);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_quality_wins_and_openmetrics_when_in_doubt() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                            q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let cases = [
            ("", Format::OpenMetrics),
            ("*/*", Format::OpenMetrics),
            (prometheus_2, Format::OpenMetrics),
            ("text/plain", Format::Prometheus),
            ("text/plain;version=0.0.4", Format::Prometheus),
            ("text/plain; version=0.0.4; q=0.9, application/openmetrics-text; q=0.1", Format::Prometheus),
            ("text/plain, application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text, text/plain", Format::OpenMetrics),
            ("text/plain;q=0", Format::OpenMetrics),
            ("text/plain;q=nonsense", Format::OpenMetrics),
            ("application/json", Format::OpenMetrics),
        ];
        for (accept, want) in cases {
            assert_eq!(format(accept), want, "{accept}");
        }
    }
}
