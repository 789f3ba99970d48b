//! Random numbers that are the same everywhere for the same seed.

/// `SplitMix64`: small, and good enough to choose requests.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Independent streams for each `(seed, stream)`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        let offset = mixed.next().wrapping_add(stream.wrapping_mul(0xda94_2042_e4dd_58b5));
        let mut random = Self(offset);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in that share of cases.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let width = u64::from(high - low) + 1;
        low + u32::try_from(self.next() % width).unwrap_or(0)
    }

    /// Exponentially distributed with that mean: gaps of a Poisson process.
    pub(crate) fn gap(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| {
            let mut r = Random::new(seed, stream);
            [r.next(), r.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn means_are_right() {
        let mut r = Random::new(7, 0);
        let n = 20_000;
        let mean = |sum: f64| sum / f64::from(n);
        let gaps = mean((0..n).map(|_| r.gap(2.0)).sum());
        let hits = mean((0..n).map(|_| f64::from(u8::from(r.chance(0.3)))).sum());
        let numbers = mean((0..n).map(|_| f64::from(r.between(16, 256))).sum());
        assert!((gaps - 2.0).abs() < 0.1, "{gaps}");
        assert!((hits - 0.3).abs() < 0.02, "{hits}");
        assert!((numbers - 136.0).abs() < 3.0, "{numbers}");
        assert!(!r.chance(0.0) && r.chance(1.0));
    }
}
