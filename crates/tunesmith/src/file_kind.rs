//! What a file is, told by its first bytes, so that an error can say what to do with it.

use crate::source::names_file;
use std::fs::File;
use std::io::Read;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Artifact,
    Store,
    PyTorch,
    Numpy,
    TensorFlowLite,
    Keras,
    SafeTensors,
    Gguf,
    OpenVino,
}

/// Bytes of a file that are looked at.
const START: usize = 64;

impl FileKind {
    /// Of the file at a path; none of what has no known beginning, as ONNX models have none.
    pub fn of(path: &Path) -> Option<FileKind> {
        let mut start = Vec::new();
        let file = File::open(path).ok()?;
        file.take(START as u64).read_to_end(&mut start).ok()?;
        FileKind::of_start(&start)
    }

    fn of_start(start: &[u8]) -> Option<FileKind> {
        let begins = |with: &[u8]| start.starts_with(with);
        let behind = |at: usize, with: &[u8]| start.get(at..).is_some_and(|s| s.starts_with(with));
        let kinds = [
            (begins(&runtime::ARTIFACT_MAGIC), FileKind::Artifact),
            (begins(b"SQLite format 3\0"), FileKind::Store),
            // PyTorch writes zip archives, and wrote pickles of protocol 2 before.
            (
                begins(b"PK\x03\x04") || begins(b"\x80\x02"),
                FileKind::PyTorch,
            ),
            (begins(b"\x93NUMPY"), FileKind::Numpy),
            (behind(4, b"TFL3"), FileKind::TensorFlowLite),
            (begins(b"\x89HDF\r\n"), FileKind::Keras),
            (begins(b"GGUF"), FileKind::Gguf),
            (behind(7, b"\0{\""), FileKind::SafeTensors),
            (begins(b"<?xml") || begins(b"<net"), FileKind::OpenVino),
        ];
        kinds.into_iter().find_map(|(is, kind)| is.then_some(kind))
    }

    /// As in "it is a PyTorch file".
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Artifact => "a compiled model",
            FileKind::Store => "a store of tuning records, or another SQLite database",
            FileKind::PyTorch => "a PyTorch file, or another zip archive or pickle",
            FileKind::Numpy => "a NumPy array",
            FileKind::TensorFlowLite => "a TensorFlow Lite model",
            FileKind::Keras => "a Keras model, or another HDF5 file",
            FileKind::SafeTensors => "a file of weights (safetensors)",
            FileKind::Gguf => "a GGUF model",
            FileKind::OpenVino => "an OpenVINO model, or another XML file",
        }
    }

    /// What to do with such a file where a model is wanted.
    pub fn instead_of_model(self) -> &'static str {
        match self {
            FileKind::Artifact => {
                "`run`, `bench`, `info`, `check` and `explain` take it; to compile or tune, give the ONNX file that it was made of"
            }
            FileKind::Store => {
                "`records --store FILE` shows what it holds; as a model give an ONNX file"
            }
            FileKind::PyTorch | FileKind::SafeTensors => {
                "load it in PyTorch and export the model: torch.onnx.export(model, (example,), \"model.onnx\")"
            }
            FileKind::Numpy => {
                "give arrays to `run` with --input NAME=FILE, and as a model an ONNX file"
            }
            FileKind::TensorFlowLite | FileKind::Keras => {
                "convert it with tf2onnx: python -m tf2onnx.convert --tflite FILE (or --keras FILE) --output model.onnx"
            }
            FileKind::Gguf => "export the model that it was made of to ONNX",
            FileKind::OpenVino => "give the ONNX file that it was converted from",
        }
    }
}

/// What is wrong with a file where a compiled model is wanted, and what to do.
pub fn instead_of_artifact(path: &Path) -> Option<(String, String)> {
    let name = path.to_str()?;
    let shown = path.display();
    match FileKind::of(path) {
        Some(FileKind::Artifact) => None,
        Some(kind) => Some((
            format!("{shown} is {}, and no compiled model", kind.name()),
            match kind {
                FileKind::Store | FileKind::Numpy => {
                    "give a file .tsm, as `compile` and `tune` write it".into()
                }
                kind => kind.instead_of_model().into(),
            },
        )),
        None => {
            let is_model = path.extension().is_some_and(|e| e == "onnx")
                || (!names_file(name) && graph::builtin::MODELS.iter().any(|m| m.name == name));
            is_model.then(|| {
                (
                    format!("{shown} is a model that is not compiled yet"),
                    format!("compile it first: tunesmith compile {shown} --out compiled.tsm"),
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        let of = |start: &[u8]| FileKind::of_start(start);
        assert_eq!(of(b"PK\x03\x04\x14\0"), Some(FileKind::PyTorch));
        assert_eq!(of(b"\x93NUMPY\x01\0"), Some(FileKind::Numpy));
        assert_eq!(of(b"\x1c\0\0\0TFL3\x14"), Some(FileKind::TensorFlowLite));
        assert_eq!(
            of(b"\x40\x1f\0\0\0\0\0\0{\"__metadata__"),
            Some(FileKind::SafeTensors)
        );
        assert_eq!(of(&runtime::ARTIFACT_MAGIC), Some(FileKind::Artifact));
        // The version and the producer of an ONNX model.
        assert_eq!(of(b"\x08\x0a\x12\x07pytorch"), None);
        assert_eq!(of(b""), None);
    }
}
