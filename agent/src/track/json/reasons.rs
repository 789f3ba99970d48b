//! Why an answer ended: the words that engines and APIs have for it. Any other one is text of somebody, and text stays
//! nowhere.

/// The words, sorted.
pub(super) const REASONS: &[&[u8]] = &[
    b"COMPLETE",
    b"ERROR",
    b"MAX_TOKENS",
    b"OTHER",
    b"SAFETY",
    b"STOP",
    b"STOP_SEQUENCE",
    b"TOOL_CALL",
    b"abort",
    b"cancelled",
    b"completed",
    b"content_filter",
    b"end_turn",
    b"eos",
    b"eos_token",
    b"error",
    b"function_call",
    b"length",
    b"limit",
    b"load",
    b"max_length",
    b"max_output_tokens",
    b"max_tokens",
    b"model_context_window_exceeded",
    b"model_length",
    b"none",
    b"pause_turn",
    b"refusal",
    b"repetition",
    b"stop",
    b"stop_sequence",
    b"stop_token",
    b"timeout",
    b"tool_calls",
    b"tool_use",
    b"unload",
    b"word",
];

/// What stands for any other.
pub(super) const OTHER: &str = "other";

/// The model's own filter cut the answer.
pub(in crate::track) fn is_filter(reason: &str) -> bool {
    matches!(reason, "content_filter" | "refusal" | "SAFETY")
}

/// The answer reached its largest length.
pub(in crate::track) fn is_length(reason: &str) -> bool {
    matches!(
        reason,
        "length"
            | "limit"
            | "max_length"
            | "max_output_tokens"
            | "max_tokens"
            | "model_length"
            | "MAX_TOKENS"
    ) || is_context(reason)
}

/// It reached the model's, whatever length was asked for.
pub(in crate::track) fn is_context(reason: &str) -> bool {
    reason == "model_context_window_exceeded"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_and_no_mask_is_one() {
        assert!(REASONS.is_sorted());
        assert!(REASONS.iter().all(|reason| reason.is_ascii() && !reason.starts_with(b"x")));
    }
}
