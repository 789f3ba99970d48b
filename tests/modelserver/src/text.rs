//! Token texts: made up, the same for the same seed, whatever the timing.

const WORDS: [&str; 32] = [
    " the", " a", " of", " light", " river", " under", " stone", " and", " slow", " wind", " over", " field",
    " we", " see", " green", " far", " bridge", " near", " old", " water", " it", " turns", " cold",
    " morning", " then", " paper", " in", " round", " small", " house", " with", " rain",
];

/// A 64-bit mix of `value` (splitmix64's finalizer).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A seed that depends on the server's seed and the prompt.
pub(crate) fn seed(server: u64, prompt: &str) -> u64 {
    prompt.bytes().fold(mix(server), |seed, byte| mix(seed ^ u64::from(byte)))
}

/// The text of token `index` of the request with this seed.
pub(crate) fn token(seed: u64, index: u32) -> &'static str {
    let pick = mix(seed ^ u64::from(index)) % WORDS.len() as u64;
    WORDS[usize::try_from(pick).unwrap_or_default()]
}

/// Tokens of a prompt: its words, at least one.
pub(crate) fn count(prompt: &str) -> u32 {
    u32::try_from(prompt.split_whitespace().count()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_depend_on_seed_and_index_only() {
        let text = |seed| (0..20).map(|index| token(seed, index)).collect::<String>();
        assert_eq!(text(seed(1, "hello")), text(seed(1, "hello")));
        assert_ne!(text(seed(1, "hello")), text(seed(2, "hello")));
        assert_ne!(text(seed(1, "hello")), text(seed(1, "hullo")));
    }

    #[test]
    fn tokens_are_words() {
        assert_eq!((count(""), count(" a  b\nc ")), (1, 3));
    }
}
