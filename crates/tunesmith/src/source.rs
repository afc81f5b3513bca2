//! Loading models: an ONNX file, a built-in name, or one operator.

use onnx::ImportOptions;
use plan::LayoutPolicy;
use std::path::Path;
use tune::source::{Precision, Source};
use tune::{Error, Result};

/// Loads a model: an ONNX file, a built-in model by its name, or one operator such as
/// `op:matmul(m=64,n=64,k=64)`. `tunesmith models` lists the names. The options fix sizes that
/// an ONNX file leaves open.
///
/// # Errors
/// If there is no such file or name, the file is no model that is supported, or options are
/// given for what has no open sizes.
pub fn load(name: &str, options: &ImportOptions) -> Result<Source> {
    let path = Path::new(name);
    if names_file(name) {
        let model = onnx::import_file(path, options).map_err(|e| Error::new(e.to_string()))?;
        let stem = path
            .file_stem()
            .map_or(name.into(), |s| s.to_string_lossy().into_owned());
        return Ok(Source {
            name: stem,
            model,
            layouts: LayoutPolicy::Blocked,
            precision: Precision::Model,
        });
    }
    let source = Source::builtin(name).map_err(|e| {
        e.help(
            "give an ONNX file, a name that `tunesmith models` lists, or op:NAME(argument=value, ...)",
        )
    })?;
    if *options != ImportOptions::default() {
        return Err(Error::new(format!(
            "import options are for ONNX files, and the shapes of {name} are fixed"
        ))
        .help("an operator takes its sizes as arguments, as in op:conv2d(n=8)"));
    }
    Ok(source)
}

/// Whether a model's name is that of a file, and not of a built-in model or an operator.
pub fn names_file(name: &str) -> bool {
    let path = Path::new(name);
    path.extension().is_some_and(|e| e == "onnx") || path.is_file()
}
