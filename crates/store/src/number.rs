//! Numbers in JSON: floats that may be infinite or not a number.
//!
//! JSON has no spelling for these, and the difference between a wrong result
//! and the expected one often is one of them, so they are written as the
//! strings `"NaN"`, `"inf"` and `"-inf"`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Spelling {
    Number(f64),
    Text(String),
}

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else if value.is_nan() {
        serializer.serialize_str("NaN")
    } else {
        serializer.serialize_str(if *value > 0.0 { "inf" } else { "-inf" })
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match Spelling::deserialize(deserializer)? {
        Spelling::Number(value) => Ok(value),
        Spelling::Text(text) => match text.as_str() {
            "NaN" => Ok(f64::NAN),
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            _ => Err(D::Error::custom(format!(
                "`{text}` is not a number; expected a JSON number, \"NaN\", \"inf\" or \"-inf\""
            ))),
        },
    }
}
