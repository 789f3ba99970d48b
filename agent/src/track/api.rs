//! The inference APIs: how a request's path tells each, and how its bodies are read. One row for each.

mod paths;
mod probes;

pub(super) use paths::Target;
use paths::{Pattern, Pattern::Exact, Pattern::Suffix};
pub(super) use probes::is_probe;

use super::json::{Engine, Grammar};

/// When an answer is a stream, where neither side's bytes say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// The request says so, or it is not known.
    Asked,
    /// Unless the request says no.
    Default,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// One API.
#[derive(Debug)]
pub(super) struct Api {
    /// As in records.
    pub name: &'static str,
    /// Paths of its requests. The first row that fits counts.
    paths: &'static [Pattern],
    /// The engine whose API it is, if members of a body may give it away where the path does not.
    engine: Option<Engine>,
    /// The path is shared: [`Engine`] decides.
    shared: bool,
    /// What can be read in bodies.
    pub grammar: Grammar,
    pub streams: Streams,
    /// Its answers bring text; one without any is empty.
    pub generates: bool,
    /// Its streams end with a marker or a reason; one without is cut short.
    pub marks_end: bool,
}

const fn generates(name: &'static str, paths: &'static [Pattern], grammar: Grammar) -> Api {
    Api {
        name,
        paths,
        engine: None,
        shared: false,
        grammar,
        streams: Streams::Asked,
        generates: true,
        marks_end: true,
    }
}

const fn plain(name: &'static str, paths: &'static [Pattern], grammar: Grammar) -> Api {
    Api { generates: false, marks_end: false, streams: Streams::Never, ..generates(name, paths, grammar) }
}

const APIS: &[Api] = &[
    generates("openai.chat", &[Suffix("/chat/completions")], Grammar::OPENAI),
    Api { shared: true, ..generates("openai.completions", &[Exact("/completions")], Grammar::COMPLETIONS) },
    generates("openai.completions", &[Suffix("/completions")], Grammar::OPENAI),
    generates("openai.responses", &[Suffix("/responses")], Grammar::RESPONSES),
    generates("anthropic.messages", &[Suffix("/v1/messages")], Grammar::ANTHROPIC),
    Api { streams: Streams::Default, ..generates("ollama.chat", &[Suffix("/api/chat")], Grammar::OLLAMA) },
    Api {
        streams: Streams::Default,
        ..generates("ollama.generate", &[Suffix("/api/generate")], Grammar::OLLAMA)
    },
    plain("ollama.embed", &[Suffix("/api/embed"), Suffix("/api/embeddings")], Grammar::OLLAMA),
    plain("openai.embeddings", &[Suffix("/embeddings")], Grammar::EMBED),
    plain("rerank", &[Suffix("/rerank")], Grammar::EMBED),
    plain("score", &[Suffix("/score")], Grammar::EMBED),
    plain(
        "kserve.infer",
        &[Suffix("/v2/models/{model}/infer"), Suffix("/v2/models/{model}/versions/{version}/infer")],
        Grammar::KSERVE,
    ),
    plain(
        "kserve.generate",
        &[Suffix("/v2/models/{model}/generate"), Suffix("/v2/models/{model}/versions/{version}/generate")],
        Grammar::KSERVE,
    ),
    Api {
        streams: Streams::Always,
        ..plain(
            "kserve.generate_stream",
            &[
                Suffix("/v2/models/{model}/generate_stream"),
                Suffix("/v2/models/{model}/versions/{version}/generate_stream"),
            ],
            Grammar::KSERVE,
        )
    },
    // Its bodies are no JSON; what they say is for the reader of gRPC messages.
    Api {
        streams: Streams::Asked,
        ..plain(
            "kserve.grpc",
            &[
                Exact("/inference.GRPCInferenceService/ModelInfer"),
                Exact("/inference.GRPCInferenceService/ModelStreamInfer"),
            ],
            Grammar::NONE,
        )
    },
    Api {
        engine: Some(Engine::Tgi),
        streams: Streams::Always,
        ..generates("tgi.generate_stream", &[Suffix("/generate_stream")], Grammar::TGI)
    },
    Api { engine: Some(Engine::Tgi), ..generates("tgi.generate", &[], Grammar::TGI) },
    Api { engine: Some(Engine::Sglang), ..generates("sglang.generate", &[], Grammar::SGLANG) },
    Api {
        shared: true,
        streams: Streams::Asked,
        ..plain("http", &[Suffix("/generate"), Exact("/")], Grammar::GENERATE)
    },
    Api {
        engine: Some(Engine::LlamaCpp),
        ..generates("llamacpp.completion", &[Suffix("/completion")], Grammar::LLAMA)
    },
    generates("llamacpp.infill", &[Suffix("/infill")], Grammar::LLAMA),
    Api {
        streams: Streams::Asked,
        ..plain(
            "torchserve.predict",
            &[Exact("/predictions/{model}"), Exact("/predictions/{model}/{version}")],
            Grammar::ANY,
        )
    },
];

/// What is none of these.
const OTHER: Api = Api { streams: Streams::Asked, ..plain("http", &[], Grammar::ANY) };

impl Api {
    /// Any other.
    pub(super) const fn other() -> &'static Self {
        &OTHER
    }

    /// By method and path; with what the path names.
    pub(super) fn of(method: &str, path: &str) -> (&'static Self, Target) {
        if method != "POST" {
            return (&OTHER, Target::default());
        }
        APIS.iter()
            .find_map(|api| api.paths.iter().find_map(|pattern| Some((api, pattern.target(path)?))))
            .unwrap_or((&OTHER, Target::default()))
    }

    /// The same, once members of a body have given the engine away.
    pub(super) fn resolved(&'static self, engine: Option<Engine>) -> &'static Self {
        if !self.shared || engine.is_none() {
            return self;
        }
        let fits = |api: &&Self| match engine {
            Some(Engine::Tgi) => api.name == "tgi.generate",
            _ => api.engine == engine,
        };
        APIS.iter().find(fits).unwrap_or(self)
    }

    /// Whether the answer is a stream, by a request that was read without a loss and had this flag.
    pub(super) fn streams(&self, flag: Option<bool>) -> Option<bool> {
        match self.streams {
            Streams::Asked => flag,
            Streams::Default => Some(flag.unwrap_or(true)),
            Streams::Always => Some(true),
            Streams::Never => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_api() {
        for (method, path, expected) in [
            ("POST", "/v1/chat/completions", "openai.chat"),
            ("POST", "/gw/openai/v1/completions", "openai.completions"),
            ("POST", "/completions", "openai.completions"),
            ("GET", "/v1/chat/completions", "http"),
            ("POST", "/v1/responses", "openai.responses"),
            ("GET", "/v1/responses/resp_1", "http"),
            ("POST", "/v1/embeddings", "openai.embeddings"),
            ("POST", "/rerank", "rerank"),
            ("POST", "/v2/rerank", "rerank"),
            ("POST", "/v1/score", "score"),
            ("POST", "/v1/messages", "anthropic.messages"),
            ("POST", "/v1/messages/count_tokens", "http"),
            ("POST", "/v1/threads/1/messages", "http"),
            ("POST", "/api/chat", "ollama.chat"),
            ("POST", "/api/generate", "ollama.generate"),
            ("POST", "/api/embeddings", "ollama.embed"),
            ("POST", "/v2/models/m/infer", "kserve.infer"),
            ("POST", "/v2/models/m/versions/3/generate", "kserve.generate"),
            ("POST", "/v2/models/m/generate_stream", "kserve.generate_stream"),
            ("POST", "/inference.GRPCInferenceService/ModelStreamInfer", "kserve.grpc"),
            ("POST", "/generate_stream", "tgi.generate_stream"),
            ("POST", "/generate", "http"),
            ("POST", "/", "http"),
            ("POST", "/completion", "llamacpp.completion"),
            ("POST", "/infill", "llamacpp.infill"),
            ("POST", "/predictions/m", "torchserve.predict"),
            ("POST", "/predictions/m/1.0/x", "http"),
            ("POST", "/a/b", "http"),
        ] {
            assert_eq!(Api::of(method, path).0.name, expected, "{method} {path}");
        }
    }

    #[test]
    fn members_tell_engines_that_share_a_path() {
        for (path, engine, expected) in [
            ("/generate", Some(Engine::Tgi), "tgi.generate"),
            ("/generate", Some(Engine::Sglang), "sglang.generate"),
            ("/generate", None, "http"),
            ("/", Some(Engine::Tgi), "tgi.generate"),
            ("/completions", Some(Engine::LlamaCpp), "llamacpp.completion"),
            ("/v1/completions", Some(Engine::LlamaCpp), "openai.completions"),
        ] {
            assert_eq!(Api::of("POST", path).0.resolved(engine).name, expected, "{path} {engine:?}");
        }
    }
}
