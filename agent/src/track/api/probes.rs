//! Requests that ask how a server is or that administer it, which are kept apart from work.

/// Their paths, for any method.
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
    "/api/pull",
    "/api/push",
    "/api/create",
    "/api/copy",
    "/api/delete",
    "/favicon.ico",
    "/sleep",
    "/wake_up",
    "/pause",
    "/resume",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/collective_rpc",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/start_profile",
    "/stop_profile",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/lora-adapters",
    "/flush_cache",
    "/get_load",
    "/get_internal_state",
    "/set_internal_state",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
    "/get_weights_by_name",
    "/weights_checker",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/pause_generation",
    "/continue_generation",
    "/abort_request",
    "/slow_down",
    "/configure_logging",
    "/clear_hicache_storage_backend",
    "/start_expert_distribution_record",
    "/stop_expert_distribution_record",
    "/dump_expert_distribution_record",
];
/// Paths that are probes when nothing is sent to them.
const READ_PROBES: &[&str] = &["/", "/v2"];
/// What begins the paths of administration, for any method.
const ADMIN: &[&str] = &[
    "/api/blobs/",
    "/grpc.health.v1.Health/",
    "/grpc.reflection.",
    "/update_weights",
    "/v2/cudasharedmemory/",
    "/v2/logging",
    "/v2/repository/",
    "/v2/systemsharedmemory/",
    "/v2/trace/",
];
/// Methods of the `KServe` service that do no work.
const KSERVE_GRPC: &[&str] = &[
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
];
/// The same over HTTP, behind the model.
const KSERVE_HTTP: &[&str] = &["/ready", "/config", "/stats"];

/// A request that asks how the server is, not for work.
pub(in crate::track) fn is_probe(method: &str, path: &str) -> bool {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    let reads = matches!(method, "GET" | "HEAD");
    PROBES.contains(&path)
        || method == "OPTIONS"
        || ADMIN.iter().any(|begin| path.starts_with(begin))
        || (reads && (READ_PROBES.contains(&path) || path.starts_with("/v1/models/")))
        || is_kserve_probe(path)
}

fn is_kserve_probe(path: &str) -> bool {
    if let Some(method) = path.strip_prefix("/inference.GRPCInferenceService/") {
        return KSERVE_GRPC.contains(&method) || method.starts_with("Repository");
    }
    path.starts_with("/v2/models/") && KSERVE_HTTP.iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_from_work() {
        for (method, path, expected) in [
            ("POST", "/v1/chat/completions", false),
            ("POST", "/", false),
            ("GET", "/", true),
            ("HEAD", "/", true),
            ("GET", "/health", true),
            ("GET", "/health_generate", true),
            ("GET", "/metrics/", true),
            ("POST", "/api/show", true),
            ("POST", "/api/pull", true),
            ("POST", "/api/chat", false),
            ("GET", "/v1/models/a/b", true),
            ("POST", "/v1/models/a:predict", false),
            ("GET", "/v2/models/m/versions/1/ready", true),
            ("GET", "/v2/models/m/stats", true),
            ("POST", "/v2/models/m/infer", false),
            ("POST", "/v2/repository/index", true),
            ("POST", "/grpc.health.v1.Health/Check", true),
            ("POST", "/inference.GRPCInferenceService/ModelReady", true),
            ("POST", "/inference.GRPCInferenceService/RepositoryIndex", true),
            ("POST", "/inference.GRPCInferenceService/ModelInfer", false),
            ("GET", "/predictions/m", false),
            ("OPTIONS", "/v1/chat/completions", true),
            ("POST", "/sleep", true),
            ("POST", "/wake_up", true),
            ("POST", "/reset_prefix_cache", true),
            ("POST", "/v1/load_lora_adapter", true),
            ("POST", "/v1/unload_lora_adapter", true),
            ("POST", "/start_profile", true),
            ("POST", "/stop_profile", true),
            ("GET", "/flush_cache", true),
            ("POST", "/update_weights_from_disk", true),
            ("POST", "/update_weights_from_tensor", true),
            ("POST", "/release_memory_occupation", true),
            ("POST", "/resume_memory_occupation", true),
            ("POST", "/abort_request", true),
            ("POST", "/sleepless", false),
            ("POST", "/tokenize", false),
        ] {
            assert_eq!(is_probe(method, path), expected, "{method} {path}");
        }
    }
}
