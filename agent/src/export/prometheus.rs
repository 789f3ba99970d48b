//! Metric families of the table [`METRICS`], each with a cap on its label sets, and their text forms.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, prometheus_text, text},
    metrics::{
        MetricType, TypedMetric, counter::Counter, gauge::Gauge, histogram::Histogram as ClientHistogram,
    },
    registry::{Registry, Unit as ClientUnit},
};

mod labels;

use labels::Labels;

use super::{
    metrics::{Id, Kind, METRICS, Metric, Unit},
    ranges::RequestRanges,
};

/// Label value of the series that takes what the cap keeps out.
pub const OVERFLOW: &str = "other";

/// Settings of the families.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Label sets per family.
    pub max_series: usize,
    /// Bucket boundaries added to the times of requests, seconds.
    pub extra_buckets: Vec<f64>,
    /// Ranges of sizes by which requests are told apart.
    pub ranges: RequestRanges,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_series: 1000, extra_buckets: Vec::new(), ranges: RequestRanges::default() }
    }
}

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// All families.
#[derive(Debug)]
pub struct Metrics {
    families: Vec<Family>,
    ranges: RequestRanges,
    registry: Registry,
}

impl Metrics {
    /// Empty families for every row of the table.
    pub fn new(settings: &Settings) -> Self {
        let mut registry = Registry::default();
        let families =
            METRICS.iter().map(|metric| Family::register(metric, settings, &mut registry)).collect();
        Self { families, ranges: settings.ranges.clone(), registry }
    }

    /// Ranges of sizes by which requests are told apart.
    pub fn ranges(&self) -> &RequestRanges {
        &self.ranges
    }

    /// Adds to a counter.
    pub fn add(&self, id: Id, labels: &[&str], n: u64) {
        match &self.families[id as usize] {
            Family::Count(family) => _ = family.with(labels, |counter| counter.inc_by(n)),
            Family::CountSeconds(family) => _ = family.with(labels, |counter| counter.inc_by(n as f64)),
            Family::Gauge(_) | Family::Histogram(_) => debug_assert!(false, "{id:?} is not a counter"),
        }
    }

    /// Observes a value of a histogram.
    pub fn observe(&self, id: Id, labels: &[&str], value: f64) {
        match &self.families[id as usize] {
            Family::Histogram(family) => family.with(labels, |histogram| histogram.observe(value)),
            _ => debug_assert!(false, "{id:?} is not a histogram"),
        }
    }

    /// Sets a gauge, or a counter whose total is kept elsewhere.
    pub fn set(&self, id: Id, labels: &[&str], value: f64) {
        match &self.families[id as usize] {
            Family::Gauge(family) => _ = family.with(labels, |gauge| gauge.set(value)),
            Family::CountSeconds(family) => {
                family.with(labels, |counter| counter.inner().store(value.to_bits(), Ordering::Relaxed));
            }
            _ => debug_assert!(false, "{id:?} is neither a gauge nor seconds"),
        }
    }

    /// Sets a counter whose total is kept elsewhere.
    pub fn set_total(&self, id: Id, labels: &[&str], total: u64) {
        match &self.families[id as usize] {
            Family::Count(family) => {
                family.with(labels, |counter| counter.inner().store(total, Ordering::Relaxed));
            }
            _ => debug_assert!(false, "{id:?} is not a counter"),
        }
    }

    /// Forgets all label sets of a gauge, before the ones that still exist are set.
    pub fn clear(&self, id: Id) {
        match &self.families[id as usize] {
            Family::Gauge(family) => family.clear(),
            _ => debug_assert!(false, "{id:?} is not a gauge"),
        }
    }

    /// All families as text.
    pub fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        self.count_series();
        let mut out = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut out, &self.registry)?,
            Format::Prometheus => prometheus_text::encode(&mut out, &self.registry)?,
        }
        Ok(out)
    }

    fn count_series(&self) {
        let of_targets = |metric: &Metric| !metric.name.starts_with("stagelens_");
        for (metric, family) in METRICS.iter().zip(&self.families).filter(|(metric, _)| of_targets(metric)) {
            let (series, overflow) = family.size();
            if series > 0 {
                self.set(Id::Series, &[metric.name], series as f64);
            }
            if overflow > 0 {
                self.set_total(Id::SeriesOverflow, &[metric.name], overflow);
            }
        }
    }
}

type Count = Counter<u64, AtomicU64>;
type CountSeconds = Counter<f64, AtomicU64>;
type Level = Gauge<f64, AtomicU64>;

#[derive(Debug)]
enum Family {
    Count(Capped<Count>),
    CountSeconds(Capped<CountSeconds>),
    Gauge(Capped<Level>),
    Histogram(Capped<ClientHistogram>),
}

impl Family {
    fn register(metric: &'static Metric, settings: &Settings, registry: &mut Registry) -> Self {
        let cap = settings.max_series;
        match (metric.kind, metric.unit) {
            (Kind::Counter, Unit::Seconds) => {
                Self::CountSeconds(Capped::register(metric, cap, registry, CountSeconds::default))
            }
            (Kind::Counter, _) => Self::Count(Capped::register(metric, cap, registry, Count::default)),
            (Kind::Gauge, _) => Self::Gauge(Capped::register(metric, cap, registry, Level::default)),
            (Kind::Histogram(buckets), _) => {
                let mut boundaries = buckets.boundaries();
                if buckets.takes_extra() {
                    boundaries.extend(&settings.extra_buckets);
                    boundaries.sort_by(f64::total_cmp);
                    boundaries.dedup();
                }
                let new = move || ClientHistogram::new(boundaries.iter().copied());
                Self::Histogram(Capped::register(metric, cap, registry, new))
            }
        }
    }

    /// Label sets, and values that went to the overflow series.
    fn size(&self) -> (usize, u64) {
        match self {
            Self::Count(family) => family.size(),
            Self::CountSeconds(family) => family.size(),
            Self::Gauge(family) => family.size(),
            Self::Histogram(family) => family.size(),
        }
    }
}

/// Values by label set, at most `cap` of them and one more for all others. Cheap to clone: the registry has one.
struct Capped<M> {
    inner: Arc<Inner<M>>,
}

struct Inner<M> {
    metric: &'static Metric,
    cap: usize,
    new: Box<dyn Fn() -> M + Send + Sync>,
    series: RwLock<BTreeMap<Labels, M>>,
    overflow: AtomicU64,
}

impl<M> fmt::Debug for Capped<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capped").field("metric", &self.inner.metric.name).finish_non_exhaustive()
    }
}

impl<M: EncodeMetric + TypedMetric + Send + Sync + 'static> Capped<M> {
    fn register(
        metric: &'static Metric,
        cap: usize,
        registry: &mut Registry,
        new: impl Fn() -> M + Send + Sync + 'static,
    ) -> Self {
        let inner =
            Inner { metric, cap, new: Box::new(new), series: RwLock::default(), overflow: AtomicU64::new(0) };
        let inner = Arc::new(inner);
        let (name, help, registered) = (metric.base_name(), metric.help, Self { inner: Arc::clone(&inner) });
        match metric.unit {
            Unit::None => registry.register(name, help, registered),
            Unit::Seconds => registry.register_with_unit(name, help, ClientUnit::Seconds, registered),
            Unit::Bytes => registry.register_with_unit(name, help, ClientUnit::Bytes, registered),
        }
        Self { inner }
    }

    /// Uses the value of a label set, which is made if there is room for it.
    fn with<T>(&self, labels: &[&str], use_it: impl FnOnce(&M) -> T) -> T {
        debug_assert_eq!(labels.len(), self.inner.metric.labels.len(), "{}", self.inner.metric.name);
        let mut key = self.labels(labels.iter().map(|&label| Cow::Owned(label.to_owned())).collect());
        let series = self.inner.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(metric) = series.get(&key) {
            return use_it(metric);
        }
        if series.len() >= self.inner.cap {
            self.inner.overflow.fetch_add(1, Ordering::Relaxed);
            key = self.labels(vec![Cow::Borrowed(OVERFLOW); labels.len()]);
        }
        drop(series);
        let mut series = self.inner.series.write().unwrap_or_else(PoisonError::into_inner);
        use_it(series.entry(key).or_insert_with(&self.inner.new))
    }

    fn labels(&self, values: Vec<Cow<'static, str>>) -> Labels {
        Labels { names: self.inner.metric.labels, values }
    }

    fn size(&self) -> (usize, u64) {
        let series = self.inner.series.read().unwrap_or_else(PoisonError::into_inner);
        (series.len(), self.inner.overflow.load(Ordering::Relaxed))
    }

    fn clear(&self) {
        self.inner.series.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl<M: EncodeMetric + TypedMetric> EncodeMetric for Capped<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let series = self.inner.series.read().unwrap_or_else(PoisonError::into_inner);
        series.iter().try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(labels)?))
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    /// A family without values is not exposed at all: an absent number is not known, never 0.
    fn is_empty(&self) -> bool {
        self.inner.series.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::*;

    fn metrics(max_series: usize) -> Metrics {
        Metrics::new(&Settings { max_series, extra_buckets: vec![0.7, 1.0], ..Settings::default() })
    }

    /// One value in every family.
    fn full() -> Metrics {
        let metrics = metrics(100);
        for metric in METRICS {
            let labels = vec!["a \"b\" \\ c"; metric.labels.len()];
            match (metric.kind, metric.unit) {
                (Kind::Counter, Unit::Seconds) | (Kind::Gauge, _) => metrics.set(metric.id, &labels, 1.5),
                (Kind::Counter, _) => metrics.add(metric.id, &labels, 3),
                (Kind::Histogram(_), _) => metrics.observe(metric.id, &labels, 0.6),
            }
        }
        metrics
    }

    #[test]
    fn names_come_out_exactly_as_declared() {
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let text = full().encode(format).unwrap();
            let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
            for metric in METRICS {
                let suffixes: &[&str] = match metric.kind {
                    Kind::Histogram(_) => &["_bucket", "_sum", "_count"],
                    Kind::Counter | Kind::Gauge => &[""],
                };
                for suffix in suffixes {
                    let name = format!("{}{suffix}", metric.name);
                    let is_it = |line: &&&str| line.split(['{', ' ']).next() == Some(&name);
                    assert!(samples.iter().any(|line| is_it(&line)), "{name} is not in\n{text}");
                }
            }
        }
    }

    #[test]
    fn a_family_without_values_is_absent() {
        let text = metrics(10).encode(Format::OpenMetrics).unwrap();
        assert!(!text.contains("inference_"), "{text}");
    }

    #[test]
    fn extra_boundaries_are_added_once_and_only_to_times_of_requests() {
        let text = full().encode(Format::OpenMetrics).unwrap();
        let count = |metric: &str, le: &str| {
            let (name, le) = (format!("{metric}_bucket{{"), format!("le=\"{le}\""));
            text.lines().filter(|line| line.starts_with(&name) && line.contains(&le)).count()
        };
        assert_eq!(count("inference_ttft_seconds", "0.7"), 1);
        assert_eq!(count("inference_ttft_seconds", "1.0"), 1);
        assert_eq!(count("cuda_alloc_seconds", "0.7"), 0);
    }

    #[test]
    fn beyond_the_cap_values_go_to_other_and_are_counted() {
        let metrics = metrics(2);
        for model in ["a", "b", "c", "d", "a"] {
            metrics.add(Id::Requests, &[model, "1"], 1);
        }
        let text = metrics.encode(Format::Prometheus).unwrap();
        for line in [
            "inference_requests_total{model_name=\"a\",model_version=\"1\"} 2",
            "inference_requests_total{model_name=\"b\",model_version=\"1\"} 1",
            "inference_requests_total{model_name=\"other\",model_version=\"other\"} 2",
            "stagelens_series_overflow_total{family=\"inference_requests_total\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("model_name=\"c\""), "{text}");
    }

    #[test]
    fn promtool_has_nothing_to_object_to() {
        let promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut promtool) = promtool else {
            eprintln!("skipped: promtool is not installed (Debian package prometheus)");
            return;
        };
        let text = full().encode(Format::Prometheus).unwrap();
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
