//! What a request's path says: the API it speaks, and whether it is a probe.

/// Paths of health checks, metrics and administration (any method).
const PROBES: &[&str] = &[
    "/health",
    "/healthz",
    "/livez",
    "/readyz",
    "/ready",
    "/live",
    "/ping",
    "/metrics",
    "/prometheus/metrics",
    "/load",
    "/version",
    "/info",
    "/v1/models",
    "/get_model_info",
    "/model_info",
    "/get_server_info",
    "/server_info",
    "/health_generate",
    "/is_sleeping",
    "/is_paused",
    "/tokenizer_info",
    "/get_world_size",
    "/v2/health/live",
    "/v2/health/ready",
    "/props",
    "/slots",
    "/v1/health",
    "/perf_metrics",
    "/steady_clock_offset",
    "/api/version",
    "/api/tags",
    "/api/ps",
    "/api/show",
    "/favicon.ico",
];
/// Paths that are probes when nothing is sent to them.
const READ_PROBES: &[&str] = &["/", "/v2"];

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// Chat completions of the common API.
    OpenAiChat,
    /// Text completions, likewise.
    OpenAiCompletions,
    /// Any other.
    Http,
}

impl Api {
    /// By method and path; a prefix before the API's own path (a gateway's) does not matter.
    pub(super) fn of(method: &str, path: &str) -> Self {
        if method != "POST" {
            Self::Http
        } else if path.ends_with("/chat/completions") {
            Self::OpenAiChat
        } else if path.ends_with("/completions") {
            Self::OpenAiCompletions
        } else {
            Self::Http
        }
    }

    /// As in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai.chat",
            Self::OpenAiCompletions => "openai.completions",
            Self::Http => "http",
        }
    }

    /// Its answers have choices with content and a finish reason.
    pub(super) fn is_openai(self) -> bool {
        self != Self::Http
    }
}

/// A request that asks how the server is, not for work.
pub(super) fn is_probe(method: &str, path: &str) -> bool {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    let reads = matches!(method, "GET" | "HEAD");
    PROBES.contains(&path)
        || method == "OPTIONS"
        || (reads && (READ_PROBES.contains(&path) || path.starts_with("/v1/models/")))
        || (path.starts_with("/v2/models/") && path.ends_with("/ready"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (method, path, api, probe) in [
            ("POST", "/v1/chat/completions", "openai.chat", false),
            ("POST", "/gw/openai/v1/completions", "openai.completions", false),
            ("GET", "/v1/chat/completions", "http", false),
            ("POST", "/v1/embeddings", "http", false),
            ("POST", "/", "http", false),
            ("GET", "/", "http", true),
            ("GET", "/health", "http", true),
            ("GET", "/metrics/", "http", true),
            ("POST", "/api/show", "http", true),
            ("GET", "/v1/models/a/b", "http", true),
            ("GET", "/v2/models/m/versions/1/ready", "http", true),
            ("POST", "/v2/models/m/infer", "http", false),
            ("OPTIONS", "/v1/chat/completions", "http", true),
        ] {
            assert_eq!(
                (Api::of(method, path).name(), is_probe(method, path)),
                (api, probe),
                "{method} {path}"
            );
        }
    }
}
