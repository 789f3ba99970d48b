//! A real Prometheus scrapes the agent, and the queries that people paste give values.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::process::Process;
use system::rig::{Load, ServerOptions, Shape};
use system::run::Stage;
use system::{agent, host, wait};

const LIMIT: Duration = Duration::from_mins(1);

/// As the design page gives them.
const QUERIES: [&str; 2] = [
    "histogram_quantile(0.95, sum by (le, model_name, model_version) (rate(inference_request_duration_seconds_bucket[5m])))",
    "histogram_quantile(0.99, sum by (le, model_name) (rate(inference_ttft_seconds_bucket[5m])))",
];

pub(crate) fn queries(dir: &Path) -> Result<()> {
    let mut stage = Stage::set(&ServerOptions::new(Shape::Split), dir, &[])?;
    let (mut prometheus, url) = start(&stage, dir)?;
    let mut load = Load::for_seconds(4, 10.0).start(stage.server.port, dir)?;
    for query in QUERIES {
        let seconds = wait::until(&format!("a value of {query}"), LIMIT, || {
            prometheus.check_alive()?;
            // Not listening yet, or no two samples yet.
            Ok(ask(&url, query).ok().flatten())
        })?;
        ensure!(seconds > 0.0 && seconds < 30.0, "{query} gives {seconds} s");
    }
    load.finish(LIMIT)?;
    lint(&stage.agent.metrics_text()?)?;
    prometheus.stop(LIMIT)?;
    stage.server.stop()?;
    stage.agent.stop()
}

fn start(stage: &Stage, dir: &Path) -> Result<(Process, String)> {
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: stagelens\n  static_configs: [{{targets: ['{}']}}]\n",
        stage.agent.address()
    );
    let config_file = dir.join("prometheus.yml");
    fs::write(&config_file, config)?;
    let listen = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let mut command = Command::new(host::tool("prometheus")?);
    command
        .arg(format!("--config.file={}", config_file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
        .arg(format!("--web.listen-address={listen}"))
        .stdout(Stdio::null());
    Ok((Process::start("prometheus", command, dir)?, format!("http://{listen}/api/v1/query")))
}

/// The first finite value of an instant query.
fn ask(url: &str, query: &str) -> Result<Option<f64>> {
    let mut response = ureq::get(url).query("query", query).call()?;
    let answer = agent::json(&response.body_mut().read_to_string()?)?;
    let series = answer["data"]["result"].as_array().context("an instant query answers with a vector")?;
    let value = |series: &Value| series["value"][1].as_str()?.parse::<f64>().ok();
    Ok(series.iter().filter_map(value).find(|value| value.is_finite()))
}

/// `promtool check metrics`: names, types and help texts as Prometheus wants them.
fn lint(metrics: &str) -> Result<()> {
    let mut child = Command::new(host::tool("promtool")?)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("stdin of promtool is piped")?.write_all(metrics.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "promtool finds fault with /metrics: {said}");
    Ok(())
}
