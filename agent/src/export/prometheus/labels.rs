//! The labels of one series.

use std::{borrow::Cow, fmt};

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// Label values; the names are the metric's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) values: Vec<Cow<'static, str>>,
    pub(super) names: &'static [&'static str],
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        // To Prometheus a label without a value is none: so it is left out.
        let pairs = self.names.iter().zip(&self.values).filter(|(_, value)| !value.is_empty());
        pairs.into_iter().try_for_each(|(name, value)| (*name, &**value).encode(encoder.encode_label()))
    }
}
