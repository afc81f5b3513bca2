//! Which versions of the file format and of operator sets can be imported.
//!
//! A newer set may change what an operator means without a change of its form,
//! so nothing newer is read than what the importers were written for.

use crate::error::ImportError;
use crate::proto::ModelProto;
use std::collections::HashMap;

/// Those of the package onnx 1.23, whose node tests are run.
const NEWEST_FORMAT: i64 = 14;
const OLDEST: i64 = 7;
const NEWEST: i64 = 28;

pub(crate) fn standard_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Onnxruntime knows this set without an import. Exporters (tf2onnx for one) write its operators and import nothing.
const KNOWN_UNASKED: (&str, i64) = ("com.microsoft", 1);

/// The version of every operator set that a model may use, by domain. Sets of
/// which there are no operators here may have any.
///
/// # Errors
/// If a version is missing, contradicts another, or is too old or too new.
pub(crate) fn operator_sets(model: &ModelProto) -> Result<HashMap<String, i64>, ImportError> {
    match model.ir_version() {
        ..1 => return Err(ImportError::Invalid("it has no IR version".into())),
        found if found > NEWEST_FORMAT => {
            return Err(ImportError::NewFormat {
                found,
                newest: NEWEST_FORMAT,
            });
        }
        _ => {}
    }
    if model.opset_import.is_empty() {
        return Err(ImportError::Decode("it names no operator set".into()));
    }
    let mut sets = HashMap::new();
    for set in &model.opset_import {
        let (domain, found) = (standard_domain(set.domain()), set.version());
        let newest = match domain {
            "" if found < OLDEST => return Err(ImportError::OldOpset(found)),
            "" => NEWEST,
            _ if domain == KNOWN_UNASKED.0 => KNOWN_UNASKED.1,
            _ => i64::MAX,
        };
        if found > newest {
            return Err(ImportError::NewOpset {
                domain: domain.to_string(),
                found,
                newest,
            });
        }
        let known = sets.insert(domain.to_string(), found);
        if let Some(other) = known.filter(|v| *v != found) {
            return Err(ImportError::Invalid(format!(
                "it names two versions of the operator set `{}`, {other} and {found}",
                set.domain()
            )));
        }
    }
    sets.entry(KNOWN_UNASKED.0.to_string())
        .or_insert(KNOWN_UNASKED.1);
    Ok(sets)
}
