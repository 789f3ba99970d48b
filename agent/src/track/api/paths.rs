//! Patterns of paths. `{model}` and `{version}` stand for one segment each.

/// A pattern.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// The whole path.
    Exact(&'static str),
    /// Its end; what is before (a gateway's prefix) does not matter.
    Suffix(&'static str),
}

/// What a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::track) struct Target {
    pub model: Option<String>,
    pub version: Option<String>,
}

impl Pattern {
    /// What a path names; `None` if it does not fit.
    pub(super) fn target(self, path: &str) -> Option<Target> {
        let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
        let (pattern, exact) = match self {
            Self::Exact(pattern) => (pattern, true),
            Self::Suffix(pattern) => (pattern, false),
        };
        let mut target = Target::default();
        let mut segments = path.rsplit('/');
        // Both begin with a slash, so that what is before it is empty, and is a prefix if it is not.
        for expected in pattern.rsplit('/').take(pattern.matches('/').count()) {
            let segment = segments.next()?;
            match expected {
                "{model}" => target.model = Some(decode(segment)?),
                "{version}" => target.version = Some(decode(segment)?),
                _ if segment == expected => {}
                _ => return None,
            }
        }
        let before = segments.next()?;
        (!exact || (before.is_empty() && segments.next().is_none())).then_some(target)
    }
}

/// A segment without its percent signs; `None` for an empty one or one that is no text.
fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let hex = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        match (first, rest) {
            (b'%', [a, b, behind @ ..]) => {
                bytes.push(hex(a)? << 4 | hex(b)?);
                rest = behind;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_models_and_versions() {
        let infer = Pattern::Suffix("/v2/models/{model}/versions/{version}/infer");
        let exact = Pattern::Exact("/predictions/{model}");
        for (pattern, path, expected) in [
            (infer, "/v2/models/m/versions/3/infer", Some("m 3")),
            (infer, "/gw/v2/models/org%2Fm-1/versions/3/infer/", Some("org/m-1 3")),
            (infer, "/v2/models//versions/3/infer", None),
            (infer, "/v2/models/m/infer", None),
            (infer, "v2/models/m/versions/3/infer", None),
            (infer, "/v2/models/%zz/versions/3/infer", None),
            (exact, "/predictions/m", Some("m -")),
            (exact, "/gw/predictions/m", None),
            (exact, "/predictions/", None),
            (Pattern::Exact("/"), "/", Some("- -")),
            (Pattern::Exact("/"), "/a", None),
        ] {
            let text = pattern.target(path).map(|target| {
                let or_none = |part: Option<String>| part.unwrap_or_else(|| "-".into());
                format!("{} {}", or_none(target.model), or_none(target.version))
            });
            assert_eq!(text.as_deref(), expected, "{path}");
        }
    }
}
