//! What the members of a body mean, by their path: one row for each. Only values that a row names are kept.
//!
//! A path is made of names and `[]` for the elements of an array. A row holds for the APIs and the sides that its
//! set has; two rows with one path must differ in theirs.

use super::{
    act::{Act, Engine, Source},
    grammar::{A, ANTHROPIC, EMBED, KSERVE, LLAMA, OLLAMA, OPENAI, Q, RESPONSES, SGLANG, TGI},
};

/// One row.
pub(super) struct Rule {
    pub path: &'static str,
    pub set: u16,
    pub act: Act,
}

const fn rule(path: &'static str, set: u16, act: Act) -> Rule {
    Rule { path, set, act }
}

const AI: u16 = OPENAI | RESPONSES | ANTHROPIC | OLLAMA;

/// Sorted by path.
pub(super) const RULES: &[Rule] = &[
    rule("[]", A | TGI | SGLANG | LLAMA, Act::Item),
    rule("[].content", A | LLAMA, Act::Whole),
    rule("[].details.finish_reason", A | TGI, Act::Finish),
    rule("[].details.generated_tokens", A | TGI, Act::Output(Source::Details)),
    rule("[].details.input_length", A | TGI, Act::Input(Source::Details)),
    rule("[].generated_text", A | TGI, Act::Whole),
    rule("[].meta_info", A | SGLANG, Act::Engine(Engine::Sglang)),
    rule("[].meta_info.completion_tokens", A | SGLANG, Act::Output(Source::MetaInfo)),
    rule("[].meta_info.finish_reason.status_code", A | SGLANG, Act::ErrorCode),
    rule("[].meta_info.finish_reason.type", A | SGLANG, Act::Reason),
    rule("[].meta_info.prompt_tokens", A | SGLANG, Act::Input(Source::MetaInfo)),
    rule("[].output_ids", A | SGLANG, Act::Whole),
    rule("[].text", A | SGLANG, Act::Whole),
    rule("choices[]", A | OPENAI, Act::Choice),
    rule("choices[].delta.audio.data", A | OPENAI, Act::Content),
    rule("choices[].delta.audio.transcript", A | OPENAI, Act::Content),
    rule("choices[].delta.content", A | OPENAI, Act::Content),
    rule("choices[].delta.function_call", A | OPENAI, Act::Content),
    rule("choices[].delta.reasoning", A | OPENAI, Act::Content),
    rule("choices[].delta.reasoning_content", A | OPENAI, Act::Content),
    rule("choices[].delta.refusal", A | OPENAI, Act::Content),
    rule("choices[].delta.tool_calls", A | OPENAI, Act::Content),
    rule("choices[].finish_reason", A | OPENAI, Act::Finish),
    rule("choices[].index", A | OPENAI, Act::Index),
    rule("choices[].message.audio.data", A | OPENAI, Act::Content),
    rule("choices[].message.audio.transcript", A | OPENAI, Act::Content),
    rule("choices[].message.content", A | OPENAI, Act::Content),
    rule("choices[].message.function_call", A | OPENAI, Act::Content),
    rule("choices[].message.reasoning", A | OPENAI, Act::Content),
    rule("choices[].message.reasoning_content", A | OPENAI, Act::Content),
    rule("choices[].message.refusal", A | OPENAI, Act::Content),
    rule("choices[].message.tool_calls", A | OPENAI, Act::Content),
    rule("choices[].text", A | OPENAI, Act::Content),
    rule("content", A | LLAMA, Act::Content),
    rule("content[].name", A | ANTHROPIC, Act::Whole),
    rule("content[].text", A | ANTHROPIC, Act::Whole),
    rule("content[].thinking", A | ANTHROPIC, Act::Whole),
    rule("content_block.name", A | ANTHROPIC, Act::Content),
    rule("content_block.text", A | ANTHROPIC, Act::Whole),
    rule("delta", A | RESPONSES, Act::Content),
    rule("delta.partial_json", A | ANTHROPIC, Act::Content),
    rule("delta.stop_reason", A | ANTHROPIC, Act::Finish),
    rule("delta.text", A | ANTHROPIC, Act::Content),
    rule("delta.thinking", A | ANTHROPIC, Act::Content),
    rule("details.finish_reason", A | TGI, Act::Finish),
    rule("details.generated_tokens", A | TGI, Act::Output(Source::Details)),
    rule("details.input_length", A | TGI, Act::Input(Source::Details)),
    rule("done", A | OLLAMA, Act::Ended),
    rule("done_reason", A | OLLAMA, Act::Finish),
    rule("error", A | AI | KSERVE | TGI | SGLANG | LLAMA, Act::Error),
    rule("eval_count", A | OLLAMA, Act::Output(Source::Ollama)),
    rule("generated_text", A | TGI, Act::Final),
    rule("id", A | KSERVE, Act::None),
    rule("incomplete_details.reason", A | RESPONSES, Act::Reason),
    rule("index", A | SGLANG | LLAMA, Act::EventIndex),
    rule("input_ids", Q | SGLANG, Act::Engine(Engine::Sglang)),
    rule("inputs", Q | TGI, Act::Engine(Engine::Tgi)),
    rule("max_completion_tokens", Q | OPENAI, Act::MaxTokens),
    rule("max_output_tokens", Q | RESPONSES, Act::MaxTokens),
    rule("max_tokens", Q | OPENAI | ANTHROPIC | KSERVE, Act::MaxTokens),
    rule("message.content", A | OLLAMA, Act::Content),
    rule("message.model", A | ANTHROPIC, Act::Model),
    rule("message.thinking", A | OLLAMA, Act::Content),
    rule("message.tool_calls", A | OLLAMA, Act::Content),
    rule("message.usage.cache_creation_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 0)),
    rule("message.usage.cache_read_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 1)),
    rule("message.usage.input_tokens", A | ANTHROPIC, Act::Input(Source::Usage)),
    rule("meta_info", A | SGLANG, Act::Engine(Engine::Sglang)),
    rule("meta_info.completion_tokens", A | SGLANG, Act::Output(Source::MetaInfo)),
    rule("meta_info.finish_reason.status_code", A | SGLANG, Act::ErrorCode),
    rule("meta_info.finish_reason.type", A | SGLANG, Act::Reason),
    rule("meta_info.prompt_tokens", A | SGLANG, Act::Input(Source::MetaInfo)),
    rule("model", Q | A | AI | LLAMA, Act::Model),
    rule("model_name", A | KSERVE, Act::Model),
    rule("model_version", A | KSERVE, Act::Version),
    rule("n_predict", Q | LLAMA, Act::MaxTokens),
    rule("object", A | OPENAI, Act::Word),
    rule("options.num_predict", Q | OLLAMA, Act::MaxTokens),
    rule("output[].arguments", A | RESPONSES, Act::Whole),
    rule("output[].content[].refusal", A | RESPONSES, Act::Whole),
    rule("output[].content[].text", A | RESPONSES, Act::Whole),
    rule("output[].name", A | RESPONSES, Act::Whole),
    rule("output[].summary[].text", A | RESPONSES, Act::Whole),
    rule("output_ids", A | SGLANG, Act::Ids),
    rule("parameters", A | KSERVE, Act::None),
    rule("parameters.max_new_tokens", Q | TGI, Act::MaxTokens),
    rule("prompt_eval_count", A | OLLAMA, Act::Input(Source::Ollama)),
    rule("response", A | OLLAMA, Act::Content),
    rule("response.error", A | RESPONSES, Act::Error),
    rule("response.incomplete_details.reason", A | RESPONSES, Act::Reason),
    rule("response.model", A | RESPONSES, Act::Model),
    rule("response.output[].arguments", A | RESPONSES, Act::Whole),
    rule("response.output[].content[].refusal", A | RESPONSES, Act::Whole),
    rule("response.output[].content[].text", A | RESPONSES, Act::Whole),
    rule("response.output[].name", A | RESPONSES, Act::Whole),
    rule("response.output[].summary[].text", A | RESPONSES, Act::Whole),
    rule("response.status", A | RESPONSES, Act::Word),
    rule("response.usage.input_tokens", A | RESPONSES, Act::Input(Source::Usage)),
    rule("response.usage.output_tokens", A | RESPONSES, Act::Output(Source::Usage)),
    rule("sampling_params", Q | SGLANG, Act::Engine(Engine::Sglang)),
    rule("sampling_params.max_new_tokens", Q | SGLANG, Act::MaxTokens),
    rule("status", A | RESPONSES, Act::Word),
    rule("stop", A | LLAMA, Act::Ended),
    rule("stop_reason", A | ANTHROPIC, Act::Finish),
    rule("stop_type", A | LLAMA, Act::Finish),
    rule("stream", Q | AI | TGI | SGLANG | LLAMA, Act::Stream),
    rule("stream_options.include_usage", Q | OPENAI, Act::IncludeUsage),
    rule("text", A | SGLANG, Act::Growth),
    rule("text", A | RESPONSES, Act::Whole),
    rule("thinking", A | OLLAMA, Act::Content),
    rule("timings.cache_n", A | OPENAI | LLAMA, Act::Cached(Source::Timings, 0)),
    rule("timings.predicted_n", A | OPENAI | LLAMA, Act::Output(Source::Timings)),
    rule("timings.prompt_n", A | OPENAI | LLAMA, Act::Input(Source::Timings)),
    rule("token", A | TGI, Act::Engine(Engine::Tgi)),
    rule("token.special", A | TGI, Act::Special),
    rule("token.text", A | TGI, Act::Content),
    rule("tokens_evaluated", A | LLAMA, Act::Input(Source::Counts)),
    rule("tokens_predicted", A | LLAMA, Act::Output(Source::Counts)),
    rule("type", A | RESPONSES | ANTHROPIC, Act::Word),
    rule("usage.cache_creation_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 0)),
    rule("usage.cache_read_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 1)),
    rule("usage.completion_tokens", A | OPENAI, Act::Output(Source::Usage)),
    rule("usage.input_tokens", A | RESPONSES | ANTHROPIC, Act::Input(Source::Usage)),
    rule("usage.output_tokens", A | RESPONSES | ANTHROPIC, Act::Output(Source::Usage)),
    rule("usage.prompt_tokens", A | OPENAI, Act::Input(Source::Usage)),
    rule("usage.total_tokens", A | EMBED, Act::Input(Source::Total)),
    rule("usage.total_tokens", A | OPENAI, Act::Count),
];

pub(super) const COUNT: usize = RULES.len();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::json::{grammar::Grammar, keys::Key};

    #[test]
    fn rules_are_sorted_and_their_names_are_kept() {
        assert!(RULES.is_sorted_by_key(|rule| rule.path));
        for rule in RULES {
            for name in rule.path.split('.').map(|part| part.trim_end_matches("[]")).filter(|n| !n.is_empty())
            {
                assert!(Key::of(name.as_bytes()).is_some(), "{name} of {}", rule.path);
            }
            assert!(rule.set & (Q | A) != 0 && rule.set & !(Q | A) != 0, "{}", rule.path);
        }
    }

    #[test]
    fn no_two_rules_say_different_things() {
        for (i, a) in RULES.iter().enumerate() {
            for b in RULES[i + 1..].iter().filter(|b| b.path == a.path) {
                assert!(!Grammar::of(a.set).has(b.set), "{}", a.path);
            }
        }
    }
}
