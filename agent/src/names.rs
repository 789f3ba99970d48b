//! Names of values of enums without fields: the words that JSON, labels, tables and sentences share.

use serde::Serialize;

/// The name that JSON has for such a value; empty for a value of another form.
pub fn name(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// The names of several, for a sentence: `hw thermal and sw power cap`.
pub fn listed(values: impl IntoIterator<Item = impl Serialize>) -> String {
    let words: Vec<String> = values.into_iter().map(|value| name(value).replace('_', " ")).collect();
    words.join(" and ")
}
