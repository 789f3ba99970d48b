//! The version of a model by rule, where nothing on the wire says it.
//!
//! Servers carry versions in names, each operator in a way of its own: `llama3:8b`, `ranker@2024-05`, `prod-ocr-v12`. A
//! rule is such a name with `{model}` and `{version}` in the place of the two; the first rule that fits a name splits it.

use std::fmt;

use thiserror::Error;

const MODEL: &str = "{model}";
const VERSION: &str = "{version}";

/// Why a text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// One of the two is missing or there twice.
    #[error("a rule has {MODEL} and {VERSION} in it, each once")]
    Places,
    /// Nothing tells where one ends and the other begins.
    #[error("something must stand between {MODEL} and {VERSION}")]
    Touching,
}

/// How a name is made of a model and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    before: String,
    between: String,
    behind: String,
    model_first: bool,
}

impl Rule {
    /// Reads a rule.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let once = |word: &str| text.match_indices(word).count() == 1;
        let (Some(model), Some(version)) = (text.find(MODEL), text.find(VERSION)) else {
            return Err(RuleError::Places);
        };
        if !once(MODEL) || !once(VERSION) {
            return Err(RuleError::Places);
        }
        let model_first = model < version;
        let (first, second) = if model_first { (MODEL, VERSION) } else { (VERSION, MODEL) };
        let (start, end) = (model.min(version), model.max(version));
        let between = &text[start + first.len()..end];
        if between.is_empty() {
            return Err(RuleError::Touching);
        }
        let (before, behind) = (&text[..start], &text[end + second.len()..]);
        let [before, between, behind] = [before, between, behind].map(str::to_owned);
        Ok(Self { before, between, behind, model_first })
    }

    /// Model and version, if the name is made so. The version is as short as it can be.
    fn split<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        let inner = name.strip_prefix(&*self.before)?.strip_suffix(&*self.behind)?;
        let (model, version) = if self.model_first {
            inner.rsplit_once(&*self.between)?
        } else {
            let (version, model) = inner.split_once(&*self.between)?;
            (model, version)
        };
        (!model.is_empty() && !version.is_empty()).then_some((model, version))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = if self.model_first { (MODEL, VERSION) } else { (VERSION, MODEL) };
        write!(f, "{}{first}{}{second}{}", self.before, self.between, self.behind)
    }
}

/// Splits the name of a model by the first rule that fits, unless its version is known.
pub(crate) fn apply(rules: &[Rule], model: &mut Option<String>, version: &mut Option<String>) {
    let Some(name) = model.as_deref().filter(|_| version.is_none()) else { return };
    let split = rules.iter().find_map(|rule| rule.split(name));
    let Some((name, number)) = split.map(|(name, number)| (name.to_owned(), number.to_owned())) else {
        return;
    };
    (*model, *version) = (Some(name), Some(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_by_the_first_rule_that_fits() {
        let rules: Vec<Rule> = ["{model}@{version}", "v{version}/{model}", "prod-{model}-v{version}.bin"]
            .map(|r| Rule::parse(r).unwrap())
            .into();
        let cases = [
            (("ranker@2024-05", None), ("ranker", Some("2024-05"))),
            (("a@b@3", None), ("a@b", Some("3"))),
            (("v2/a/b", None), ("a/b", Some("2"))),
            (("prod-ocr-v12.bin", None), ("ocr", Some("12"))),
            (("plain", None), ("plain", None)),
            (("@3", None), ("@3", None)),
            (("a@", None), ("a@", None)),
            (("a@3", Some("7")), ("a@3", Some("7"))),
        ];
        for ((name, known), (want, version)) in cases {
            let (mut model, mut found) = (Some(name.to_owned()), known.map(str::to_owned));
            apply(&rules, &mut model, &mut found);
            assert_eq!((model.as_deref(), found.as_deref()), (Some(want), version), "{name}");
        }
        assert_eq!(rules[1].to_string(), "v{version}/{model}");
    }

    #[test]
    fn what_is_no_rule_says_why() {
        for (text, want) in [
            ("", RuleError::Places),
            ("{model}", RuleError::Places),
            ("{model}-{version}-{model}", RuleError::Places),
            ("{model}{version}", RuleError::Touching),
        ] {
            assert_eq!(Rule::parse(text), Err(want), "{text}");
        }
    }
}
