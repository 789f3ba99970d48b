//! Ranges of sizes as label values: requests of like size compare with each other, and there are only so many values.

/// Ranges between edges; none where there are no edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    edges: Vec<u64>,
    names: Vec<String>,
}

impl Ranges {
    /// From edges in rising order; each is the least value of a range.
    pub fn new(edges: &[u64]) -> Self {
        Self::named("", edges)
    }

    /// The same with a word before each name.
    pub fn named(word: &str, edges: &[u64]) -> Self {
        let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { return Self::default() };
        let middle = edges.windows(2).map(|pair| format!("{word}{}-{}", pair[0], pair[1] - 1));
        let names = std::iter::once(format!("{word}0-{}", first - 1)).chain(middle);
        let names = names.chain([format!("{word}{last}+")]).collect();
        Self { edges: edges.to_vec(), names }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The range of a mean of values, likewise.
    pub fn of_mean(&self, mean: f64) -> &str {
        let index = self.edges.partition_point(|edge| *edge as f64 <= mean);
        self.names.get(index).map_or("", String::as_str)
    }

    /// The range of a value; nothing where there are none.
    pub fn of(&self, value: u64) -> &str {
        let index = self.edges.partition_point(|edge| *edge <= value);
        self.names.get(index).map_or("", String::as_str)
    }
}

/// The ranges of requests. An operator can leave out each but the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRanges {
    /// Of prompt tokens.
    pub input: Ranges,
    /// Of bytes of the body, for requests that have no tokens, as those with images.
    pub body: Ranges,
    /// Of completion tokens.
    pub output: Ranges,
    /// Of the mean batch size.
    pub batch: Ranges,
}

impl Default for RequestRanges {
    fn default() -> Self {
        Self {
            input: Ranges::new(&[128, 512, 2048, 8192, 32_768]),
            body: Ranges::named(BODY, &[16 << 10, 128 << 10, 1 << 20, 8 << 20]),
            output: Ranges::default(),
            batch: Ranges::default(),
        }
    }
}

/// What stands before ranges of bytes among those of tokens.
pub const BODY: &str = "body:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_begin_ranges() {
        let ranges = Ranges::new(&[128, 512, 2048]);
        for (value, want) in [
            (0, "0-127"),
            (127, "0-127"),
            (128, "128-511"),
            (2047, "512-2047"),
            (2048, "2048+"),
            (u64::MAX, "2048+"),
        ] {
            assert_eq!(ranges.of(value), want);
        }
        assert_eq!(Ranges::default().of(7), "");
        assert_eq!(Ranges::named(BODY, &[10]).of(9), "body:0-9");
    }
}
