//! A real Prometheus scrapes the agent's metrics, and the queries of the design return values.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::{
    collections::BTreeMap,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    export::{Export, http, prometheus},
    pipeline::Output,
    request::RequestRecord,
};

/// Ended with the test, however that ends.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn finish_request(export: &Export, n: u32) {
    let record = RequestRecord {
        model: Some("m".into()),
        streaming: Some(true),
        e2e_s: Some(0.1 + f64::from(n % 10) / 100.0),
        ttft_s: Some(0.05),
        ..RequestRecord::default()
    };
    export.take(&Output::Request(Box::new(record)));
}

fn start(dir: &std::path::Path, target: &str) -> Option<(Guard, String)> {
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
         scrape_configs: [{{job_name: stagelens, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Some((Guard(child), format!("http://{address}/api/v1/query")))
}

/// Values by model of an instant query; empty while there are none.
fn query(url: &str, query: &str) -> BTreeMap<(String, String), f64> {
    let answer = ureq::get(url).query("query", query).call();
    let Ok(body) = answer.and_then(|answer| answer.into_body().read_to_string()) else {
        return BTreeMap::new();
    };
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let result = body["data"]["result"].as_array().unwrap();
    let series = |series: &serde_json::Value| {
        let (labels, value) = (&series["metric"], text(&series["value"][1]).parse().unwrap());
        ((text(&labels["model_name"]), text(&labels["model_version"])), value)
    };
    result.iter().map(series).filter(|(_, value): &(_, f64)| !value.is_nan()).collect()
}

#[test]
fn the_queries_of_the_design_return_values() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let settings = prometheus::Settings { max_series: 100, ..prometheus::Settings::default() };
    let export = Export::new(100, &settings);
    let listener = runtime.block_on(http::bind(([127, 0, 0, 1], 0).into())).unwrap();
    let target = listener.local_addr().unwrap().to_string();
    runtime.spawn(http::serve(listener, Arc::clone(&export), std::future::pending()));
    let dir = tempfile::tempdir().unwrap();
    let Some((_prometheus, url)) = start(dir.path(), &target) else {
        eprintln!("skipped: prometheus is not installed (Debian package prometheus)");
        return;
    };
    let duration = "histogram_quantile(0.95, sum by (le, model_name, model_version) \
                    (rate(inference_request_duration_seconds_bucket[5m])))";
    let ttft = "histogram_quantile(0.95, sum by (le, model_name) (rate(inference_ttft_seconds_bucket[5m])))";
    let deadline = Instant::now() + Duration::from_secs(30);
    for n in 0.. {
        finish_request(&export, n);
        let (by_version, by_model) = (query(&url, duration), query(&url, ttft));
        if let (Some(&p95), Some(&ttft)) =
            (by_version.get(&("m".into(), "unknown".into())), by_model.get(&("m".into(), String::new())))
        {
            assert!((0.1..=0.25).contains(&p95) && (0.04..=0.06).contains(&ttft), "{p95} {ttft}");
            return;
        }
        assert!(Instant::now() < deadline, "no values: {by_version:?} {by_model:?}");
        // Prometheus scrapes when it does and tells nobody: there is nothing to wait for but time.
        std::thread::sleep(Duration::from_millis(50));
    }
}
